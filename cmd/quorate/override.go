package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/user"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	authv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationv1 "k8s.io/client-go/kubernetes/typed/authentication/v1"

	"github.com/quorate/quorate/coordinator"
	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/pkg/options"
	"github.com/quorate/quorate/pkg/rollout"
)

func override() *cobra.Command {
	o := options.NewClient()
	var guards []string
	var f overrideFlags
	cmd := control(o, &cobra.Command{
		Use:   "override [STATEFULSET] {GUARD[,GUARD…] --reason=TEXT | --clear}",
		Short: "Keep guards from holding a rollout: the escape hatch, at your own risk",
		Long: `Keeps the named guards from holding this rollout, for an hour or for as long as --for says. The
override ends earlier when the rollout is complete, or if the template changes. It applies to
these guards only: a guard that was overridden before and is not named now holds again. Whatever
an overridden guard protects is then in your hands. Status, events and metrics show the override
for as long as it lasts, with your name and your reason.

If the coordinator does not name a guard, that guard is not what holds the rollout. To override
it would only take a protection away, so the command refuses. It also refuses while no
coordinator reports. --force overrides the guard all the same, for this rollout and the next
ones, until its time is over. The time is by this machine's clock.

Exit codes:
  0  the guards are overridden, or with --clear no guard is any longer
  1  failure, or refused: the coordinator does not name such a guard, or you did not confirm
  2  bad input

Guards that can be overridden (docs/reference.md says what each of them protects):

  ` + strings.Join(rollout.Overridable(), "\n  ") +
			fmt.Sprintf(controlsLong, rollout.ControlOverrideGuards+"=GUARD,GUARD \\\n    "+
				rollout.ControlOverrideUntil+"=2026-01-02T15:04:05Z"),
		Example: `  # One voter is gone for good, and the other two serve:
  quorate override -n garden etcd-main QuorumFloor --reason="etcd-main-2 has lost its disk"`,
		Args: func(_ *cobra.Command, args []string) error {
			// A StatefulSet has no capital letter in its name, and every guard has one.
			var err error
			guards, err = guardsOf(args)
			if err != nil {
				return err
			}
			switch {
			case f.clear && len(guards) > 0:
				return badInput{errors.New("--clear: ends every override, so name no guard")}
			case !f.clear && len(guards) == 0:
				return badInput{fmt.Errorf("name at least one guard (%s), or give --clear",
					strings.Join(rollout.Overridable(), ", "))}
			case len(args)-countGuards(args) > 1:
				return tooMany(args)
			}
			return f.check()
		},
	}, func(cmd *cobra.Command, cfg coordinator.Config, before found) error {
		return f.run(cmd, o, cfg, before, guards)
	})
	f.add(cmd.Flags())
	statefulSets := cmd.ValidArgsFunction
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		if begun != "" && unicode.IsUpper(rune(begun[0])) || len(args) > 0 {
			return rollout.Overridable(), cobra.ShellCompDirectiveNoFileComp
		}
		return statefulSets(cmd, args, begun)
	}
	return cmd
}

// overrideFlags are what override is asked for, beside the guards.
type overrideFlags struct {
	clear, yes, force bool
	reason            string
	lasts             time.Duration
}

const (
	longestOverride = 7 * 24 * time.Hour
	longestReason   = 256
)

func (f *overrideFlags) add(fs *pflag.FlagSet) {
	fs.BoolVar(&f.clear, "clear", false, "end every override")
	fs.BoolVarP(&f.yes, "yes", "y", false, "do it without asking")
	fs.BoolVar(&f.force, "force", false,
		"override guards that the coordinator does not name, or while no coordinator reports")
	fs.StringVar(&f.reason, "reason", "", "why you override it; required, and shown by quorate status")
	fs.DurationVar(&f.lasts, "for", time.Hour, "when the override ends by itself, from 1m to 168h")
}

func (f *overrideFlags) check() error {
	if f.clear {
		return nil
	}
	if f.reason = strings.TrimSpace(f.reason); f.reason == "" {
		return badInput{errors.New(
			"--reason: is required: say in a few words why you override it; quorate status shows it to the next " +
				"reader")}
	}
	switch {
	case len(f.reason) > longestReason:
		return badInput{fmt.Errorf("--reason: has %d bytes, and may have %d", len(f.reason), longestReason)}
	case f.lasts < time.Minute || f.lasts > longestOverride:
		return badInput{fmt.Errorf("--for: %v: must be from 1m to 168h", f.lasts)}
	}
	return nil
}

func (f *overrideFlags) run(cmd *cobra.Command, o *options.Client, cfg coordinator.Config, before found,
	guards []string) error {
	controls := map[string]*string{rollout.ControlOverrideGuards: nil, rollout.ControlOverrideUntil: nil,
		rollout.ControlOverrideRevision: nil, rollout.ControlOverrideBy: nil, rollout.ControlOverrideReason: nil}
	if f.clear {
		lease, err := annotateAll(cmd.Context(), cfg, controls)
		if err != nil {
			return err
		}
		return say(cmd, lease, "%s/%s: no guard is overridden any more (before: %s)", cfg.Namespace,
			cfg.StatefulSet, listOf(before.Override))
	}
	ends := "at %s"
	if !f.force {
		if err := named(cfg, before, guards); err != nil {
			return err
		}
		controls[rollout.ControlOverrideRevision] = &before.revision
		ends = "with this rollout, at %s at the latest"
	}
	warn(cmd.ErrOrStderr(), cfg, guards)
	if !f.yes {
		if err := confirm(cmd.Context(), cmd.InOrStdin(), cmd.ErrOrStderr(), theName, cfg.StatefulSet); err != nil {
			return err
		}
	}
	until := time.Now().Add(f.lasts).UTC().Truncate(time.Second)
	list, by, text := strings.Join(guards, ","), person(cmd.Context(), o), until.Format(time.RFC3339)
	controls[rollout.ControlOverrideUntil] = &text
	controls[rollout.ControlOverrideGuards], controls[rollout.ControlOverrideBy] = &list, &by
	controls[rollout.ControlOverrideReason] = &f.reason
	lease, err := annotateAll(cmd.Context(), cfg, controls)
	if err != nil {
		return err
	}
	return say(cmd, lease, "%s/%s: OVERRIDDEN %s (before: %s). It ends "+ends+", or with: %s override%s --clear",
		cfg.Namespace, cfg.StatefulSet, list, listOf(before.Override), report.Clock(until), name(cmd), arguments(cfg))
}

// named returns an error if the coordinator does not name every one of the guards: it is not what holds the rollout.
func named(cfg coordinator.Config, before found, guards []string) error {
	set := cfg.Namespace + "/" + cfg.StatefulSet
	if before.told == nil {
		return fmt.Errorf("no coordinator has reported on %s in the last %v, so no guard is known to hold it; "+
			"see quorate status%s. To override %s anyway, give --force", set, report.FreshFor,
			arguments(cfg), strings.Join(guards, ","))
	}
	for _, guard := range guards {
		if !before.told.Names(rollout.Guard(guard)) && !slices.Contains(before.Override, rollout.Guard(guard)) {
			return fmt.Errorf("%s does not hold %s: its coordinator says %q. Overriding another guard only removes a "+
				"protection. To do it anyway, give --force", guard, set, before.told.Headline())
		}
	}
	return nil
}

// person is who gives the order: the user as the API server knows them, or else on this machine.
func person(ctx context.Context, o *options.Client) string {
	ctx, cancel := context.WithTimeout(ctx, o.RequestTimeout)
	defer cancel()
	if rc, err := o.Kubernetes.RESTConfig("quorate/" + version()); err == nil {
		if client, err := authenticationv1.NewForConfig(rc); err == nil {
			review, err := client.SelfSubjectReviews().Create(ctx, &authv1.SelfSubjectReview{}, metav1.CreateOptions{})
			if err == nil && review.Status.UserInfo.Username != "" {
				return review.Status.UserInfo.Username
			}
		}
	}
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return "somebody"
}

func isGuard(arg string) bool { return strings.ContainsFunc(arg, unicode.IsUpper) }

func countGuards(args []string) int {
	n := 0
	for _, arg := range args {
		if isGuard(arg) {
			n++
		}
	}
	return n
}

// tooMany says that more than one StatefulSet is named.
func tooMany(args []string) error {
	var sets []string
	for _, arg := range args {
		if !isGuard(arg) {
			sets = append(sets, arg)
		}
	}
	return badInput{fmt.Errorf("name one StatefulSet, not %s; guards have capital letters", strings.Join(sets, ", "))}
}

// guardsOf takes the guards out of the arguments. If one cannot be overridden, the error names those
// that can.
func guardsOf(args []string) ([]string, error) {
	var guards []string
	for _, arg := range args {
		if !isGuard(arg) {
			for _, guard := range rollout.Overridable() {
				if strings.EqualFold(arg, guard) {
					return nil, badInput{fmt.Errorf("%q: did you mean the guard %s?", arg, guard)}
				}
			}
			continue
		}
		for guard := range strings.SplitSeq(arg, ",") {
			switch guard = strings.TrimSpace(guard); {
			case guard == "" || slices.Contains(guards, guard):
			case !slices.Contains(rollout.Overridable(), guard):
				return nil, badInput{notOverridable(guard)}
			default:
				guards = append(guards, guard)
			}
		}
	}
	return guards, nil
}

// notOverridable says why a word does not name a guard that can be overridden.
func notOverridable(word string) error {
	can := rollout.Overridable()
	if row := rollout.RowOf(rollout.Guard(word)); row != nil {
		return fmt.Errorf("%s cannot be overridden. What to do about it: %s", word, report.Plain(row.Do))
	}
	if meant := nearest(word, can); meant != "" {
		return fmt.Errorf("%q is not a guard; did you mean %s?", word, meant)
	}
	return fmt.Errorf("%q is not a guard; use %s", word, strings.Join(can, ", "))
}

func listOf(guards []rollout.Guard) string {
	if len(guards) == 0 {
		return "none"
	}
	names := make([]string, len(guards))
	for i, g := range guards {
		names[i] = string(g)
	}
	return strings.Join(names, ",")
}

// warn says what each guard protects.
func warn(w io.Writer, cfg coordinator.Config, guards []string) {
	fmt.Fprintf(w,
		"WARNING: these guards will not hold %s/%s while they are overridden, and data or quorum may be lost:\n",
		cfg.Namespace, cfg.StatefulSet)
	for _, guard := range guards {
		if row := rollout.RowOf(rollout.Guard(guard)); row != nil {
			fmt.Fprintf(w, "\n  %s protects this: %s\n", guard, report.Plain(row.Protects))
		}
	}
	fmt.Fprintln(w)
}
