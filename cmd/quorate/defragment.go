package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/coordinator"
	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/pkg/options"
	"github.com/quorate/quorate/pkg/rollout"
)

const (
	// renewAsking is how often the request is made anew while it is waited for: it holds for ten minutes.
	renewAsking = record.RequestLasts / 2
	// takenUpWithin is how long the owner of the lock may take to answer with what it sees.
	takenUpWithin = 30 * time.Second
	// heldFor is how long a defragmentation may be held before the command gives up. A hold does not clear by itself.
	heldFor = 5 * time.Second
)

// defragmentFlags are what a defragmentation is asked for with.
type defragmentFlags struct {
	dryRun, yes bool
	timeout     time.Duration
}

func defragment() *cobra.Command {
	o := options.NewClient()
	var f defragmentFlags
	cmd := &cobra.Command{
		Use:        "defragment [STATEFULSET]",
		SuggestFor: []string{"defrag", "compact"},
		Short:      "Defragment the members, one at a time",
		Long: `Defragments etcd's members, one at a time. etcd never gives back the space of what was deleted
and compacted. A defragmentation rewrites a member's database without that space. Meanwhile the
member answers nothing: some seconds for a gigabyte on a fast disk, minutes on a slow one.

The command does not do this itself. It writes a request on the Lease quorate-STATEFULSET, bound
to the cluster by its ID, and the coordinator carries it out: the followers first, and the
leader last, after it has handed over. Before each member, every voter must serve and have
caught up, and no pod may be leaving, missing, or new and not settled. A rollout comes first.
Members with less than 5 % free are left alone. The command first shows the size of each
database, and then what the coordinator does or waits for, until it is done. It needs no access
to etcd.

If --timeout or an interrupt ends the command earlier, it takes the request back. A
defragmentation that has begun goes on, because nothing can stop it. quorate history shows how
long each member was away, and how much space that freed.

If the host defragments on its own schedule, as etcd-backup-restore does, Quorate holds with the
guard HostDefragments, so that two members are never away at the same time.

Exit codes:
  0  done, or nothing to gain (with --dry-run: the databases were shown)
  1  failure: refused, out of time, interrupted, or no coordinator answers
  2  bad input`,
		Example: `  # How large are the databases, and what is free in them?
  quorate defragment -n garden etcd-main --dry-run

  # Do it, and wait for no longer than half an hour:
  quorate defragment -n garden etcd-main --yes --timeout 30m`,
		Args: func(cmd *cobra.Command, args []string) error {
			if f.timeout < 0 {
				return badInput{fmt.Errorf("--timeout: %v: must not be negative", f.timeout)}
			}
			return oneStatefulSet(cmd, args)
		},
	}
	control(o, cmd, f.run)
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "show the databases, and request nothing")
	cmd.Flags().BoolVarP(&f.yes, "yes", "y", false, "do it without asking")
	cmd.Flags().DurationVar(&f.timeout, "timeout", 0, "end with exit code 1 after this time (0: never)")
	return cmd
}

func (f *defragmentFlags) run(cmd *cobra.Command, cfg coordinator.Config, before found) (err error) {
	if err := coordinated(cfg, before); err != nil {
		return err
	}
	ctx := cmd.Context()
	if f.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, f.timeout, fmt.Errorf("--timeout: not done after %v", f.timeout))
		defer cancel()
	}
	// The first request names no cluster, so nothing is done on it but to look.
	a := defragmenting{asking{cfg: cfg, every: defaultPoll,
		Request: rollout.Request{Operation: rollout.RequestDefragment}}}
	defer func() { err = errors.Join(err, a.withdraw(ctx)) }()
	if err := a.write(ctx); err != nil {
		return err
	}
	r, err := a.seen(ctx)
	if err != nil {
		return err
	}
	cluster, err := strconv.ParseUint(r.Cluster, 16, 64)
	if err != nil {
		return fmt.Errorf("the coordinator does not know etcd's cluster: %s", r.Reason)
	}
	out := cmd.OutOrStdout()
	for _, line := range databases(&r) {
		fmt.Fprintln(out, line)
	}
	if f.dryRun {
		return nil
	}
	if !f.yes {
		fmt.Fprintln(cmd.ErrOrStderr(), "Each member in turn answers nothing while it is defragmented.")
		if err := confirm(ctx, cmd.InOrStdin(), cmd.ErrOrStderr(), theName, cfg.StatefulSet); err != nil {
			return err
		}
	}
	a.Cluster, a.first = cluster, time.Time{}
	if err := a.write(ctx); err != nil {
		return err
	}
	return a.follow(ctx, func(text string) { fmt.Fprintln(out, text) })
}

// databases are a line for each member.
func databases(r *report.Report) []string {
	var lines []string
	for i := range r.Members {
		m := &r.Members[i]
		if m.Database == nil {
			lines = append(lines, m.Pod+": the size of its database is not known ("+m.Detail+")")
			continue
		}
		d := m.Database
		quota := "no quota"
		if d.Quota > 0 {
			quota = fmt.Sprintf("quota %s (%s)", rollout.SizeText(d.Quota), d.QuotaFrom)
		}
		lines = append(lines, fmt.Sprintf("%s: %s, in use %s, a defragmentation would free %s; %s", m.Pod,
			rollout.SizeText(d.Size), rollout.SizeText(d.Size-d.Free), rollout.SizeText(d.Free), quota))
	}
	return lines
}

// defragmenting is a request for a defragmentation.
type defragmenting struct{ asking }

// seen waits for what the owner of the lock says to the request.
func (a *defragmenting) seen(ctx context.Context) (report.Report, error) {
	var said error
	for begun := time.Now(); time.Since(begun) < takenUpWithin; {
		now, err := a.read(ctx)
		if said = err; err == nil && a.work(&now.report, rollout.DutyDefragment) != nil {
			return now.report, nil
		}
		if err := a.wait(ctx); err != nil {
			return report.Report{}, err
		}
	}
	return report.Report{}, errors.Join(fmt.Errorf("no coordinator has answered within %v: see whether the "+
		"sidecars run, and what they log", takenUpWithin), said)
}

// follow says what is done and what is waited for, until it is over.
func (a *defragmenting) follow(ctx context.Context, say func(string)) error {
	told, said, held := map[time.Time]bool{}, "", time.Time{}
	for {
		now, err := a.read(ctx)
		for _, e := range now.history {
			if a.about(e) && !told[e.At] {
				told[e.At] = true
				say(strings.TrimSpace(e.What+" "+e.Pod) + ": " + e.Reason)
			}
		}
		if w := a.work(&now.report, rollout.DutyDefragment); err == nil && w != nil {
			if text := w.Headline() + ": " + w.Reason; text != said {
				said = text
				say(text)
			}
			switch {
			case w.Duty == rollout.DutyDefragment && w.Action == rollout.ActionComplete:
				return nil
			case w.Action != rollout.ActionHold:
				held = time.Time{}
			case held.IsZero():
				held = time.Now()
			case time.Since(held) >= heldFor:
				return denied(w)
			}
		}
		if time.Since(a.At) >= renewAsking {
			if err := a.write(ctx); err != nil {
				say("the request cannot be renewed: " + err.Error())
			}
		}
		if err := a.wait(ctx); err != nil {
			return err
		}
	}
}

// about is true for what the request has led to.
func (a *defragmenting) about(e report.Entry) bool {
	return !e.At.Before(a.first) && (e.What == report.Defragmented || e.What == report.Disarmed ||
		e.What == report.LeaderMoved && e.Rule == string(rollout.RuleDefragment))
}
