package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/pkg/options"
	"github.com/quorate/quorate/pkg/rollout"
)

// killSwitch pauses many StatefulSets, or ends their pauses.
type killSwitch struct {
	verb, done, undo string
	// pauses is true if it pauses.
	pauses bool
}

var (
	pauseAll  = killSwitch{verb: "pause", done: "paused", undo: "resume", pauses: true}
	resumeAll = killSwitch{verb: "resume", done: "resumed", undo: "pause"}
)

const fleetLong = `

With several names, -A (all namespaces) or -l (labels of the StatefulSets) it acts on many at
once. -A and -l say how many there are and ask for that number; --yes skips the question. The
command reports each one as it is done. If one fails, the command names it, goes on with the
others, and ends with exit code 1. Run it again to retry those that failed.`

// withFleet lets a command that sets a control do so for many StatefulSets.
func withFleet(cmd *cobra.Command, o *options.Client, s killSwitch) *cobra.Command {
	var flags fleetFlags
	var yes bool
	flags.add(cmd.Flags())
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "with -A or -l: do it without asking")
	check, one := cmd.Args, cmd.RunE
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if err := flags.check(cmd, o, args); err != nil {
			return err
		}
		if !flags.many(args) {
			return check(cmd, args)
		}
		for _, name := range []string{"wait", "timeout"} {
			if f := cmd.Flags().Lookup(name); f != nil && f.Changed {
				return badInput{fmt.Errorf("--%s: goes with one StatefulSet", name)}
			}
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !flags.many(args) {
			return one(cmd, args)
		}
		f, err := reachFleet(o, flags, args)
		if err != nil {
			return err
		}
		return s.run(cmd, f, yes)
	}
	cmd.ValidArgsFunction = completeStatefulSets(o, ours)
	return cmd
}

func (s killSwitch) run(cmd *cobra.Command, f *fleet, yes bool) error {
	meant, already, err := s.choose(cmd.Context(), f)
	if err != nil {
		return err
	}
	out, errs := cmd.OutOrStdout(), cmd.ErrOrStderr()
	if already > 0 && s.pauses {
		fmt.Fprintf(errs, "%s: %d of them %s paused already; a later resume of all ends those pauses too\n", name(cmd),
			already, isAre(already))
	}
	if len(meant) == 0 {
		fmt.Fprintf(errs, "%s: there is nothing to %s %s\n", name(cmd), s.verb, f.whose())
		return nil
	}
	if len(f.names) == 0 && !yes {
		fmt.Fprintf(errs, "%s %s %s: %s\n", s.verb, report.Plural(len(meant), "1 StatefulSet", "%d StatefulSets"),
			f.whose(), someOf(inWordsAll(meant)))
		err := confirm(cmd.Context(), cmd.InOrStdin(), errs, "how many they are", fmt.Sprint(len(meant)))
		if err != nil {
			return err
		}
	}
	failed, first := s.setAll(cmd.Context(), f, meant, out, func(err error) { complain(cmd, err) })
	done := len(meant) - len(failed)
	fmt.Fprintf(out, "%d of %d %s %s; to undo that: %s %s%s\n", done, len(meant), isAre(done), s.done, name(cmd),
		s.undo, f.arguments())
	switch {
	case cmd.Context().Err() != nil:
		return fmt.Errorf("interrupted: %d of %d are %s", done, len(meant), s.done)
	case first != nil:
		return ofFleet{fmt.Errorf("%d of %d could not be %s: %s: %w", len(failed), len(meant), s.done,
			strings.Join(inWordsAll(failed), ", "), first)}
	}
	return nil
}

// ofFleet is an error about one of many.
type ofFleet struct{ error }

func (e ofFleet) Unwrap() error { return e.error }

func isAre(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

func inWordsAll(keys []objectKey) []string {
	words := make([]string, len(keys))
	for i, key := range keys {
		words[i] = key.namespace + "/" + key.name
	}
	slices.Sort(words)
	return words
}

// arguments name these StatefulSets again.
func (f *fleet) arguments() string {
	text := " -n " + f.namespace
	if f.all {
		text = " -A"
	}
	if f.selector != "" {
		text += " -l '" + f.selector + "'"
	}
	return strings.Join(append([]string{text}, f.names...), " ")
}

// choose returns the StatefulSets whose pause is to change, and how many are as they should be already. A pause is for
// whatever Quorate could roll, also where it has not begun and there is no Lease yet. A resume is for what is paused.
func (s killSwitch) choose(ctx context.Context, f *fleet) (meant []objectKey, already int, err error) {
	leases, err := f.readLeases(ctx)
	if err != nil {
		return nil, 0, err
	}
	among := map[objectKey]bool{}
	switch {
	case len(f.names) > 0:
		for _, name := range f.names {
			key := objectKey{f.namespace, name}
			if err := f.exists(ctx, key); err != nil {
				return nil, 0, err
			}
			among[key] = true
		}
	case s.pauses || f.selector != "":
		sets, err := f.readSets(ctx)
		if err != nil {
			return nil, 0, err
		}
		for key, set := range sets {
			if !s.pauses || ours.is(set, f.o.Kubernetes.EtcdContainer) {
				among[key] = true
			}
		}
	default:
		for key := range leases {
			among[key] = true
		}
	}
	for key := range among {
		if record.Controls(leases[key]).Paused == s.pauses {
			already++
			continue
		}
		meant = append(meant, key)
	}
	slices.SortFunc(meant, func(a, b objectKey) int {
		return strings.Compare(a.namespace+"/"+a.name, b.namespace+"/"+b.name)
	})
	return meant, already, nil
}

// atOnce is how many Leases are written at a time. An API server has seats for many more, and others need them.
const atOnce = 8

// setAll sets the control on each Lease, and tells of each. It returns those that failed, and the first reason.
func (s killSwitch) setAll(ctx context.Context, f *fleet, meant []objectKey, out io.Writer, complain func(error)) (
	failed []objectKey, first error) {
	var value *string
	if yes := "true"; s.pauses {
		value = &yes
	}
	var mu sync.Mutex
	var workers sync.WaitGroup
	next := make(chan objectKey)
	for range min(atOnce, len(meant)) {
		workers.Go(func() {
			for key := range next {
				err := ctx.Err()
				if err == nil {
					_, err = annotate(ctx, f.config(key.namespace, key.name), rollout.ControlPaused, value)
				}
				mu.Lock()
				if err == nil {
					_, err = fmt.Fprintf(out, "%s/%s is %s\n", key.namespace, key.name, s.done)
				} else if ctx.Err() == nil {
					complain(fmt.Errorf("%s/%s: %w", key.namespace, key.name, err))
				}
				if err != nil {
					failed = append(failed, key)
				}
				if first == nil {
					first = err
				}
				mu.Unlock()
			}
		})
	}
	for _, key := range meant {
		next <- key
	}
	close(next)
	workers.Wait()
	return failed, first
}
