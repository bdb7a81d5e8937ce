package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate/quorate/coordinator"
	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/internal/workload"
	"github.com/quorate/quorate/pkg/options"
	"github.com/quorate/quorate/pkg/rollout"
)

const controlsLong = `

Controls are annotations of the Lease quorate-STATEFULSET. (A flag in the pod template would
itself start a rollout, and etcd-druid replaces a StatefulSet's metadata.) If there is no Lease,
it is created. Nothing else on it changes. kubectl can do the same:

  kubectl annotate lease quorate-STATEFULSET --overwrite %s

The annotations quorate.dev/partition (only ordinals from this one on) and
quorate.dev/max-unavailable (a number or a percentage) are set in the same way.`

func pause() *cobra.Command {
	var still bool
	var timeout time.Duration
	o := options.NewClient()
	cmd := control(o, &cobra.Command{
		Use:        "pause [STATEFULSET… | -A | -l LABELS]",
		SuggestFor: []string{"stop", "hold"},
		Short:      "Hold a rollout",
		Long: `Holds a rollout: no pod is removed and no leader is moved until quorate resume. A removal
that was already sent still takes effect. A pod that crashes, or that somebody else deletes,
still comes back with the new revision, because that is how OnDelete works. With another
update strategy the StatefulSet controller rolls the pods, and a pause cannot hold it.

With --wait it also waits until nothing is under way any more: the record has no intent, and
every pod exists and is Ready. After that somebody else may take pods, for example the
StatefulSet controller once the update strategy is RollingUpdate again. If --timeout or an
interrupt ends the wait, the exit code is 1, and the rollout stays paused.` + fleetLong +
			fmt.Sprintf(controlsLong, rollout.ControlPaused+"=true"),
		Example: `  # Hold one rollout, and wait until nothing is under way any more:
  quorate pause -n garden etcd-main --wait

  # Hold all rollouts of this cluster:
  quorate pause -A`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case timeout < 0:
				return badInput{fmt.Errorf("--timeout: %v: must not be negative", timeout)}
			case timeout > 0 && !still:
				return badInput{fmt.Errorf("--timeout: %v: goes with --wait", timeout)}
			}
			return oneStatefulSet(cmd, args)
		},
	}, func(cmd *cobra.Command, cfg coordinator.Config, before found) error {
		if err := pauseIt(cmd, cfg, before); err != nil || !still {
			return err
		}
		if err := awaitStill(cmd.Context(), cmd.OutOrStdout(), cfg, timeout); err != nil {
			return err
		}
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s/%s is still: the record has no intent, and every pod is Ready\n",
			cfg.Namespace, cfg.StatefulSet)
		return err
	})
	cmd.Flags().BoolVar(&still, "wait", false, "wait until nothing is under way any more")
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "with --wait: end with exit code 1 after this time (0: never)")
	return withFleet(cmd, o, pauseAll)
}

func pauseIt(cmd *cobra.Command, cfg coordinator.Config, before found) error {
	yes := "true"
	lease, err := annotate(cmd.Context(), cfg, rollout.ControlPaused, &yes)
	if err != nil {
		return err
	}
	was := "is paused"
	if before.Paused {
		was = "was paused already"
	}
	if before.strategy != appsv1.OnDeleteStatefulSetStrategyType {
		fmt.Fprintf(cmd.ErrOrStderr(),
			"WARNING: the update strategy of %s/%s is %s, not OnDelete: the StatefulSet controller itself "+
				"replaces its pods, and a pause cannot hold it\n", cfg.Namespace, cfg.StatefulSet,
			before.strategy)
		return say(cmd, lease, "%s/%s %s for Quorate alone; to end that: %s resume%s", cfg.Namespace,
			cfg.StatefulSet, was, name(cmd), arguments(cfg))
	}
	return say(cmd, lease, "%s/%s %s: nothing is removed until: %s resume%s", cfg.Namespace, cfg.StatefulSet, was,
		name(cmd), arguments(cfg))
}

func resume() *cobra.Command {
	o := options.NewClient()
	cmd := control(o, &cobra.Command{
		Use:        "resume [STATEFULSET… | -A | -l LABELS]",
		SuggestFor: []string{"unpause", "continue", "start"},
		Short:      "Let a paused rollout go on, or one that holds before the last member of an older version",
		Long: `Lets a paused rollout go on. Other controls stay as they are.

It also lets the last member of an older minor version go, if that is what the rollout holds for
(--hold-before-last) and the coordinator has reported that for this revision. The permission is
an annotation that names the rollout, so the next one stops there again. If the rollout is paused,
resume only ends the pause. Run it again when the rollout holds.` + fleetLong + `
With many StatefulSets, resume only ends pauses.` +
			fmt.Sprintf(controlsLong, rollout.ControlPaused+"-"),
		Example: `  # Let one rollout go on:
  quorate resume -n garden etcd-main

  # End all pauses of this cluster:
  quorate resume -A`,
	}, func(cmd *cobra.Command, cfg coordinator.Config, before found) error {
		controls := map[string]*string{rollout.ControlPaused: nil}
		was := "goes on"
		switch {
		case before.Paused:
		case before.beforeLast:
			was = "goes on, and its last member of the older version goes"
			controls[rollout.ControlAllowLast] = &before.allowance
		default:
			was = "was not paused"
		}
		lease, err := annotateAll(cmd.Context(), cfg, controls)
		if err != nil {
			return err
		}
		return say(cmd, lease, "%s/%s %s; to hold it again: %s pause%s", cfg.Namespace, cfg.StatefulSet, was, name(cmd),
			arguments(cfg))
	})
	return withFleet(cmd, o, resumeAll)
}

// control completes a command that sets controls.
func control(o *options.Client, cmd *cobra.Command,
	run func(*cobra.Command, coordinator.Config, found) error) *cobra.Command {
	if cmd.Args == nil {
		cmd.Args = oneStatefulSet
	}
	cmd.ValidArgsFunction = completeStatefulSet(o, ours)
	o.AddFlags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cfg, err := reach(cmd.Context(), o, slices.DeleteFunc(slices.Clone(args), isGuard))
		if err != nil {
			return err
		}
		before, err := existing(cmd.Context(), cfg)
		if err != nil {
			return err
		}
		return run(cmd, cfg, before)
	}
	return cmd
}

// found is what was there before a control is set.
type found struct {
	rollout.Controls
	strategy appsv1.StatefulSetUpdateStrategyType
	// told is what the coordinator reports now, nil if none does.
	told *report.Report
	// beforeLast is true where the coordinator's last report says that this very rollout holds before the
	// last member of an older version, and allowance is what lets that go.
	beforeLast bool
	allowance  string
	// revision is the StatefulSet's update revision.
	revision string
}

// existing returns what is there. It refuses to set a control for a StatefulSet that does not exist,
// because nobody would ever read it.
func existing(ctx context.Context, cfg coordinator.Config) (found, error) {
	ctx, cancel := context.WithTimeout(ctx, cfg.RequestTimeout)
	defer cancel()
	set, err := cfg.StatefulSets.Get(ctx, cfg.StatefulSet, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return found{}, noSuch(ctx, cfg, err)
	case err != nil:
		return found{}, fmt.Errorf("get StatefulSet %s: %w", cfg.StatefulSet, err)
	}
	lease, err := record.Read(ctx, cfg.Leases, cfg.StatefulSet)
	if err != nil {
		return found{}, err
	}
	facts := workload.SetFacts(set, cfg.Names)
	// A report that cannot be read says nothing about a hold. Status says that it cannot be read.
	last, _, _ := report.FromLease(lease)
	there := found{
		Controls: record.Controls(lease).At(facts.UpdateRevision, time.Now()), strategy: set.Spec.UpdateStrategy.Type,
		beforeLast: last.UpdateRevision == facts.UpdateRevision && last.HeldBy(rollout.GuardBeforeLast),
		allowance:  facts.Allowance(), revision: facts.UpdateRevision,
	}
	if last.Fresh(time.Now(), record.Parse(lease)) {
		there.told = &last
	}
	return there, nil
}

func annotate(ctx context.Context, cfg coordinator.Config, key string, value *string) (*coordinationv1.Lease, error) {
	return annotateAll(ctx, cfg, map[string]*string{key: value})
}

func annotateAll(ctx context.Context, cfg coordinator.Config,
	controls map[string]*string) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, cfg.RequestTimeout)
	defer cancel()
	return record.Control(ctx, cfg.Leases, cfg.StatefulSet, controls)
}

// say prints what was done, and what holds the rollout anyway.
func say(cmd *cobra.Command, lease *coordinationv1.Lease, format string, args ...any) error {
	if _, err := fmt.Fprintf(cmd.OutOrStdout(), format+"\n", args...); err != nil {
		return err
	}
	for _, bad := range record.Controls(lease).Bad {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: the rollout is held anyway, by a control that cannot be read: %s\n",
			name(cmd), bad)
	}
	return nil
}

// arguments name this StatefulSet again.
func arguments(cfg coordinator.Config) string { return " -n " + cfg.Namespace + " " + cfg.StatefulSet }

// theName is what an order about one StatefulSet asks for.
const theName = "the name of the StatefulSet"

// confirm asks for something that only somebody knows who has read what is to be done. If there is no terminal, --yes
// is needed.
func confirm(ctx context.Context, in io.Reader, out io.Writer, what, answer string) error {
	if !isTerminal(in) {
		return badInput{errors.New("--yes: is required, because there is no terminal to ask on")}
	}
	return ask(ctx, in, out, what, answer)
}

// ask waits for the answer, or an interrupt.
func ask(ctx context.Context, in io.Reader, out io.Writer, what, wanted string) error {
	fmt.Fprintf(out, "Type %s (%s) to go on: ", what, wanted)
	type line struct {
		text string
		err  error
	}
	lines := make(chan line, 1)
	// Nothing can interrupt reading from a terminal. After an interrupt, this goroutine ends with the
	// process.
	go func() {
		text, err := bufio.NewReader(in).ReadString('\n')
		lines <- line{text, err}
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(out)
		return errors.New("interrupted; nothing was changed")
	case answer := <-lines:
		switch {
		case answer.err != nil && !errors.Is(answer.err, io.EOF):
			return answer.err
		case ctx.Err() != nil || strings.TrimSpace(answer.text) != wanted:
			return errors.New("nothing was changed")
		}
		return nil
	}
}
