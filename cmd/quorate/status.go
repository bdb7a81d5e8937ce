package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	authorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"github.com/quorate/quorate/coordinator"
	"github.com/quorate/quorate/internal/adoption"
	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/pkg/options"
	"github.com/quorate/quorate/pkg/rollout"
)

type statusFlags struct {
	fleetFlags
	output     string
	watch      bool
	failOnHold bool
	timeout    time.Duration
	every      time.Duration
}

// statusOutputs are the values of --output.
var statusOutputs = []string{"table", outputWide, "json", "yaml", outputName, outputJSONPath}

// table is true if a person reads the output.
func (f *statusFlags) table() bool { return f.output == "table" || f.output == outputWide }

func status() *cobra.Command {
	o := options.NewClient()
	// Without a member of etcd to ask, the command shows what the coordinator has reported.
	o.Etcd.Endpoints, o.Etcd.Optional = nil, true
	var f statusFlags
	cmd := &cobra.Command{
		Use:        "status [STATEFULSET… | -A | -l LABELS]",
		SuggestFor: []string{"get", "describe", "show", "ps"},
		Short:      "Show how far a rollout is, what it waits for, since when, and what to do",
		Long: `Shows whether the cluster is safe, how far a rollout is, what it does or waits for and since
when, what to do about it, who coordinates, which controls are set, and every pod with its
member. It changes nothing.

Without --endpoints it asks Kubernetes only. It reads the StatefulSet, its pods, and what the
coordinator last reported on the Lease. An old report is not believed: the coordinator is then
shown as silent. (So your clock and the coordinator's must agree to within half a minute.)
With --endpoints it asks every etcd member and decides as quorate plan does.

With --watch it shows every change, and ends with exit code 0 when the rollout is complete.
(kubectl rollout status refuses to do that under OnDelete.) Complete means that the StatefulSet
controller has seen the newest template, that every pod in range (at or above the partition)
is up to date and has been Ready for minReadySeconds, and that the coordinator, or etcd if it
is asked, says so too.

With -o json or yaml it prints the status of an Etcd resource as etcd-druid's proposal DEP-01
has it: the members, and the conditions Ready, AllMembersReady, BackupReady (if the host
reports on backups) and Updated. The whole report is under rollout.

Without STATEFULSET it takes the only one in the namespace with update strategy OnDelete
and an etcd container.

Several names, a namespace with several StatefulSets, -A (all namespaces) or -l (labels of the
StatefulSets) show a line for each. The lines come from the Leases alone, so a thousand clusters
are one request. A StatefulSet that never had a coordinator has no Lease, and -A shows it only
together with -l. VERDICT is UNKNOWN unless a coordinator is reporting now. REPORTED says how old
the report is: SILENT means in the middle of a rollout, and idle means since a rollout completed,
when nobody asks etcd any more. To see what Kubernetes says about one of them, give its name
alone. -o wide shows the controls and the reasons. --watch goes on until it is stopped.

Exit codes:
  0  something is being done, complete, or not Quorate's to roll (idle); with --watch:
     complete, or, with several StatefulSets, asked to stop
  1  failure: the Kubernetes API cannot be read; with --watch also: --timeout, an interrupt,
     or a StatefulSet that is not Quorate's to roll, or that was deleted or may no longer be
     read (any other failure to read is retried)
  2  bad input: a flag, its value, or no such StatefulSet
  3  holding, waiting or silent, or any of several is; with --watch only with --fail-on-hold,
     when the rollout holds`,
		Example: `  # What is going on? (from a laptop, by kubectl's context)
  quorate status -n garden etcd-main

  # Wait for the end of a rollout, for half an hour at most:
  quorate status -n garden etcd-main --watch --timeout=30m

  # Which clusters are not known to be safe, of all there are?
  quorate status -A -o jsonpath='{range .items[?(@.verdict.safety!="SAFE")]}{.namespace}/{.name}{"\n"}{end}'`,
		Args:              func(cmd *cobra.Command, args []string) error { return f.fleetFlags.check(cmd, o, args) },
		ValidArgsFunction: completeStatefulSets(o, ours),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := errors.Join(checkOutput(f.output, statusOutputs...), f.check(args)); err != nil {
				return badInput{err}
			}
			names := args
			var cfg coordinator.Config
			if !f.fleetFlags.many(args) {
				var err error
				var several ambiguous
				cfg, err = reach(cmd.Context(), o, args)
				switch {
				case errors.As(err, &several) && len(o.Etcd.Endpoints) == 0 && f.timeout == 0:
					names = several.names
				case err != nil:
					return err
				}
			}
			if f.fleetFlags.many(names) {
				fl, err := reachFleet(o, f.fleetFlags, names)
				if err != nil {
					return err
				}
				return f.many(cmd, fl)
			}
			look := func(ctx context.Context) (report.Status, error, error) { return f.look(ctx, o, cfg) }
			if f.watch {
				return f.follow(cmd.Context(), cmd, look)
			}
			s, complaint, err := look(cmd.Context())
			if err != nil {
				return err
			}
			complain(cmd, complaint)
			if err := f.show(cmd.OutOrStdout(), s); err != nil {
				return err
			}
			if s.Waits() {
				return errWaiting
			}
			return nil
		},
	}
	fs := cmd.Flags()
	o.AddFlags(fs)
	o.AddEtcdFlags(fs)
	o.AddRolloutFlags(fs)
	f.add(fs)
	fs.StringVarP(&f.output, "output", "o", "table", "table, wide, json, yaml, name or jsonpath=TEMPLATE")
	fs.BoolVarP(&f.watch, "watch", "w", false, "show every change until the rollout is complete")
	fs.DurationVar(&f.timeout, "timeout", 0,
		"with --watch: end with exit code 1 if the rollout is not complete after this time (0: never)")
	fs.DurationVar(&f.every, "every", 2*time.Second,
		"with --watch: how often to look (a rollout's steps take seconds; without this flag a fleet is looked at "+
			"every 10s)")
	fs.BoolVar(&f.failOnHold, "fail-on-hold", false,
		"with --watch: end with exit code 3 as soon as a rollout holds, because it needs somebody to act")
	completeOutput(cmd, statusOutputs...)
	return cmd
}

func (f *statusFlags) check(args []string) error {
	switch {
	case f.failOnHold && !f.watch:
		return errors.New("--fail-on-hold: goes with --watch; without it, the exit code is 3 anyway")
	case f.timeout > 0 && f.fleetFlags.many(args):
		return fmt.Errorf("--timeout: %v: goes with one StatefulSet; a watch of several goes on until it is stopped",
			f.timeout)
	case f.timeout < 0:
		return fmt.Errorf("--timeout: %v: must not be negative", f.timeout)
	case f.timeout > 0 && !f.watch:
		return fmt.Errorf("--timeout: %v: goes with --watch", f.timeout)
	case f.every < time.Second/10:
		return fmt.Errorf("--every: %v: must be at least 100ms", f.every)
	case f.watch && !f.table():
		return fmt.Errorf("--output: %q: --watch shows a table", f.output)
	}
	return nil
}

// look makes a status of what can be seen now, with a complaint about what cannot.
func (f *statusFlags) look(ctx context.Context, o *options.Client, cfg coordinator.Config) (
	s report.Status, complaint, err error) {
	ask := len(cfg.Endpoints) > 0
	dump, etcd, noEtcd, err := look(ctx, cfg, ask)
	if err != nil {
		return s, nil, err
	}
	seen, unreadable := outside(dump, &dump.StatefulSets[0], o.Kubernetes.Names(), etcd, time.Now())
	seen.Asked, seen.Policy, seen.State.Self = ask, policy(o, &seen), cfg.PodName
	s = report.Look(seen)
	if without, all := adoption.Without(dump, &dump.StatefulSets[0], o.Kubernetes.Names()); !all {
		s.Without = without
	}
	down, words, _ := adoption.Crashed(dump, &dump.StatefulSets[0], o.Kubernetes.Names())
	s.Crashed(down)
	if words != "" && !s.Current && !s.Claimed && s.Action != rollout.ActionIdle {
		s.Nobody = words
	} else if s.Unattended() {
		rc, err := o.Kubernetes.RESTConfig("quorate/" + version())
		if err != nil {
			return s, nil, badInput{err}
		}
		client, err := authorizationv1.NewForConfig(rc)
		if err != nil {
			return s, nil, badInput{err}
		}
		asking, cancel := context.WithTimeout(ctx, cfg.RequestTimeout)
		defer cancel()
		if do := unattended(asking, dump, o.Kubernetes.Names(),
			refusedBy(client.LocalSubjectAccessReviews(cfg.Namespace))); do != "" {
			s.Do = do
		}
	}
	return s, errors.Join(noEtcd, unreadable), nil
}

func (f *statusFlags) show(w io.Writer, s report.Status) error {
	switch {
	case f.table():
		return s.Table(w, screen(w))
	case f.output == outputName:
		_, err := fmt.Fprintln(w, objectName(s.StatefulSet))
		return err
	}
	return encode(w, f.output, "EtcdStatus", s.Etcd())
}

// follow shows every change until the rollout is complete. It redraws a terminal, and writes a line per
// change to anything else.
func (f *statusFlags) follow(ctx context.Context, cmd *cobra.Command,
	look func(context.Context) (s report.Status, complaint, err error)) error {
	if f.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, f.timeout)
		defer cancel()
	}
	ticks := time.NewTicker(f.every)
	defer ticks.Stop()
	var last report.Status
	said, failed := "", ""
	for first := true; ; first = false {
		s, complaint, err := look(ctx)
		switch {
		case ctx.Err() != nil:
			return f.ended(ctx, last, failed)
		case first && forGood(err):
			return err
		case apierrors.IsNotFound(err):
			return fmt.Errorf("there is nothing to wait for any more: the StatefulSet %s/%s is gone", last.Namespace,
				last.StatefulSet)
		case apierrors.IsForbidden(err):
			return fmt.Errorf("there is nothing to wait for any more: %w", err)
		case forGood(err):
			return err
		case err != nil:
			if failed != err.Error() {
				complain(cmd, fmt.Errorf("%w; looking again", err))
			}
			failed = err.Error()
		default:
			last, failed = s, ""
			drawn, err := draw(cmd.OutOrStdout(), s, &said)
			if err != nil {
				return err
			}
			if drawn {
				complain(cmd, complaint)
			}
			switch s.Action {
			case rollout.ActionComplete:
				return nil
			case rollout.ActionHold:
				if f.failOnHold {
					return errWaiting
				}
			case rollout.ActionIdle:
				return fmt.Errorf("there is nothing to wait for: %s", report.Clean(s.Reason))
			default: // There is more to wait for.
			}
		}
		select {
		case <-ctx.Done():
			return f.ended(ctx, last, failed)
		case <-ticks.C:
		}
	}
}

// forGood is true for an error that no amount of waiting repairs. Any other one may be over at the next look.
func forGood(err error) bool {
	var bad badInput
	return apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || errors.As(err, &bad)
}

// ended says what the rollout was still waiting for.
func (f *statusFlags) ended(ctx context.Context, last report.Status, failed string) error {
	why := "stopped"
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		why = fmt.Sprintf("--timeout: not complete after %v", f.timeout)
	}
	switch {
	case failed != "":
		return fmt.Errorf("%s: %s", why, failed)
	case last.Action == "":
		return errors.New(why)
	}
	return fmt.Errorf("%s: %s; %s", why, last.Progress, report.Clean(last.Headline()+": "+last.Reason))
}

// clearScreen moves to the upper left corner and erases everything.
const clearScreen = "\x1b[H\x1b[2J"

// draw shows a status. It returns false if it would repeat what it said last.
func draw(w io.Writer, s report.Status, said *string) (bool, error) {
	if isTerminal(w) {
		var text bytes.Buffer
		text.WriteString(clearScreen)
		if err := s.Table(&text, screen(w)); err != nil {
			return false, err
		}
		_, err := text.WriteTo(w)
		return true, err
	}
	key := s.Key() + s.Progress.String() + s.Nobody
	if key == *said {
		return false, nil
	}
	*said = key
	_, err := fmt.Fprintln(w, s.Line())
	return true, err
}
