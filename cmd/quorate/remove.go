package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"

	"github.com/quorate/quorate/coordinator"
	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/internal/rollout"
	"github.com/quorate/quorate/pkg/options"
)

// removeFlags are what remove-member is asked for.
type removeFlags struct {
	all, dryRun bool
	forget      string
	every       time.Duration
}

func removeMember() *cobra.Command {
	o := options.NewClient()
	o.Etcd.Endpoints, o.Etcd.Optional = nil, true
	var f removeFlags
	cmd := &cobra.Command{
		Use:   "remove-member {MEMBER… | --all-ghosts | --forget MEMBER}",
		Short: "Have ghosts removed from etcd's member list",
		Long: `Has ghosts removed from etcd's member list. A ghost is a member that an ordinal of the
StatefulSet has left behind, for example after a scale-in that nobody finished: its ordinal is
out of range, it has no pod, and it has not answered for ghost-after (10 minutes). It still
counts for the quorum: with two ghosts beside three members, four of five voters would have to
serve before a rollout may take one. quorate status names the ghosts.

The command does not remove anything itself. It writes a request on the Lease, bound to the
cluster and the member by their IDs, and the coordinator carries it out, one member at a time:
while every pod is there, Ready and serving, nobody scales or adds a member, and those that
serve are a quorum before and after. A member that serves is never removed. The command shows
what the coordinator waits for, and ends when the members are gone, when the coordinator
refuses, or after ten minutes, when the request has run out. It needs no access to etcd.

MEMBER is a name or an ID. Do not remove a ghost whose pod is to come back. If its volume is still
there, it comes back as the same member, with its data, once you scale out again.

If nobody can tell whether a removal has happened, and it may not be repeated, its member stands
on the Lease as a suspect: it counts as a voter, and nobody relies on it. Ask for its removal
again. If it serves again and is to stay, --forget it, once the command that asked for its
removal has ended more than a minute ago.

Exit codes:
  0  every member is gone from the list, or forgotten (with --dry-run: may be asked for)
  1  failure: refused, not done in ten minutes, interrupted, or no such ghost is known
  2  bad input`,
		Example: `  # Two of five members were scaled away, and the rollout holds with QuorumFloor:
  quorate remove-member -n garden --statefulset etcd-main --all-ghosts

  # One of them:
  quorate remove-member -n garden --statefulset etcd-main etcd-main-4`,
		Args: func(_ *cobra.Command, args []string) error { return f.check(args) },
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, o, args) },
	}
	cmd.SetUsageFunc(usage)
	fs := cmd.Flags()
	o.AddFlags(fs)
	o.AddEtcdFlags(fs)
	fs.BoolVar(&f.all, "all-ghosts", false, "every ghost that is known, one after the other")
	fs.BoolVar(&f.dryRun, "dry-run", false, "say what would be asked for, and ask for nothing")
	fs.DurationVar(&f.every, "every", defaultPoll, "how often to look whether it is done (it takes seconds)")
	fs.StringVar(&f.forget, "forget", "", "the suspect that is to be relied on again")
	return cmd
}

func (f *removeFlags) check(args []string) error {
	ways := 0
	for _, given := range []bool{len(args) > 0, f.all, f.forget != ""} {
		if given {
			ways++
		}
	}
	switch {
	case f.every < time.Second/10:
		return badInput{fmt.Errorf("--every: %v: must be at least 100ms", f.every)}
	case ways != 1:
		return badInput{errors.New("name the members, or give --all-ghosts, or --forget; one of them")}
	}
	return nil
}

func (f *removeFlags) run(cmd *cobra.Command, o *options.Client, args []string) error {
	cfg, err := reach(cmd.Context(), o, nil)
	if err != nil {
		return err
	}
	before, err := existing(cmd.Context(), cfg)
	if err != nil {
		return err
	}
	if before.strategy != appsv1.OnDeleteStatefulSetStrategyType {
		return fmt.Errorf("the update strategy of %s/%s is %s, not OnDelete: nobody coordinates there, so nobody "+
			"would carry it out", cfg.Namespace, cfg.StatefulSet, before.strategy)
	}
	dump, etcd, complaint, err := look(cmd.Context(), cfg, len(cfg.Endpoints) > 0)
	if err != nil {
		return err
	}
	complain(cmd, complaint)
	seen, complaint := outside(dump, &dump.StatefulSets[0], cfg.Names, etcd, time.Now())
	complain(cmd, complaint)
	seen.Asked, seen.Policy = len(cfg.Endpoints) > 0, policy(cmd, o, &seen)
	asked, err := f.choose(&seen, args)
	if err != nil {
		return err
	}
	for _, a := range asked {
		fmt.Fprintln(cmd.OutOrStdout(), a.what)
		if f.dryRun {
			continue
		}
		if err := a.carryOut(cmd, cfg, f.every); err != nil {
			return fmt.Errorf("%s: %w", a.name, err)
		}
	}
	return nil
}

// asking is one request, with what it is about in words.
type asking struct {
	rollout.Request
	name, what, done string
}

// choose returns the requests to make.
func (f *removeFlags) choose(seen *report.Outside, args []string) ([]asking, error) {
	if f.forget != "" {
		return f.suspect(seen.Lease.Suspect)
	}
	ghosts := report.Look(*seen).Ghosts
	var chosen []asking
	for i := range ghosts {
		g := &ghosts[i]
		id, err := strconv.ParseUint(g.ID, 16, 64)
		cluster, clusterErr := strconv.ParseUint(g.Cluster, 16, 64)
		if err != nil || clusterErr != nil {
			continue // Somebody else wrote that.
		}
		if f.all || slices.Contains(args, g.Member) || slices.Contains(args, g.ID) {
			chosen = append(chosen, asking{
				Request: rollout.Request{Operation: rollout.RequestRemoveMember, Cluster: cluster, Member: id,
					Name: g.Member},
				name: g.Name(), what: g.What(seen.At), done: "removed from etcd's member list",
			})
		}
	}
	for _, arg := range args {
		if !slices.ContainsFunc(chosen, func(a asking) bool { return arg == a.Name || arg == hexOf(a.Member) }) {
			return nil, fmt.Errorf("%q is not known to be a ghost; %s", arg, known(ghosts))
		}
	}
	if len(chosen) == 0 {
		return nil, errors.New(known(ghosts))
	}
	return chosen, nil
}

// known says which ghosts there are.
func known(ghosts []report.Ghost) string {
	if len(ghosts) == 0 {
		return "no ghost is known: a member counts as one after ghost-after (10 minutes), and a coordinator has to " +
			"have seen it for that long (with --endpoints etcd is asked as well)"
	}
	return "ghosts are: " + report.GhostNames(ghosts)
}

func (f *removeFlags) suspect(s *record.Member) ([]asking, error) {
	switch {
	case s == nil:
		return nil, errors.New("there is no suspect on the Lease")
	case f.forget != s.Name && f.forget != hexOf(s.ID):
		return nil, fmt.Errorf("--forget: %q: the suspect is %s (ID %x)", f.forget, s.Name, s.ID)
	}
	return []asking{{
		Request: rollout.Request{Operation: rollout.RequestForgetMember, Cluster: s.Cluster, Member: s.ID,
			Name: s.Name},
		name: s.Label(), what: s.Label() + " is to be relied on again", done: "no suspect any more",
	}}, nil
}

func hexOf(id uint64) string { return strconv.FormatUint(id, 16) }

// defaultPoll is how often the Lease is read while a request stands. The coordinator takes seconds.
const defaultPoll = time.Second

// carryOut writes the request and waits until it is answered.
func (a *asking) carryOut(cmd *cobra.Command, cfg coordinator.Config, every time.Duration) error {
	ctx := cmd.Context()
	before, err := a.read(ctx, cfg)
	if err != nil {
		return err
	}
	a.At = time.Now().UTC().Truncate(time.Millisecond)
	text := record.RequestText(a.Request)
	if _, err := annotate(ctx, cfg, record.RequestAnnotation, &text); err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s: asked for; the request stands until %s\n", a.name,
		a.At.Add(record.RequestLasts).Local().Format(time.TimeOnly))
	err = a.wait(cmd, cfg, before, every)
	if err != nil {
		// Nobody waits for it any more. What has begun goes on.
		withdrawing, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.RequestTimeout)
		defer cancel()
		err = errors.Join(err, record.Withdraw(withdrawing, cfg.Leases, cfg.StatefulSet, a.Request))
	}
	return err
}

// answer is what the Lease says of a request.
type answer struct {
	request, suspect bool
	report           report.Report
	history          report.History
}

func (a *asking) read(ctx context.Context, cfg coordinator.Config) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, cfg.RequestTimeout)
	defer cancel()
	lease, err := record.Read(ctx, cfg.Leases, cfg.StatefulSet)
	if err != nil {
		return answer{}, err
	}
	var now answer
	if on, _ := record.RequestOf(lease, a.At); on != nil {
		now.request = on.Operation == a.Operation && on.Member == a.Member && on.At.Equal(a.At)
	}
	suspect := record.Parse(lease).Suspect
	now.suspect = suspect != nil && suspect.ID == a.Member
	now.report, now.history, _ = report.FromLease(lease) // What cannot be read says nothing.
	return now, nil
}

func (a *asking) wait(cmd *cobra.Command, cfg coordinator.Config, before answer, every time.Duration) error {
	ctx := cmd.Context()
	ticks := time.NewTicker(every)
	defer ticks.Stop()
	over := time.NewTimer(record.RequestLasts)
	defer over.Stop()
	said, gone := "", 0
	for {
		select {
		case <-ctx.Done():
			return errors.New("interrupted; the request is taken back, and what has begun goes on")
		case <-over.C:
			return fmt.Errorf("the request has run out after %v, and was not carried out: %s", record.RequestLasts,
				cmp.Or(said, "no coordinator has taken it up"))
		case <-ticks.C:
		}
		now, err := a.read(ctx, cfg)
		if err != nil {
			complain(cmd, err)
			continue
		}
		done, refused := a.judge(before, now, &gone)
		switch {
		case refused != nil:
			return refused
		case done:
			fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", a.name, a.done)
			return nil
		}
		if work := a.work(now.report); work != nil && work.Reason != said {
			said = work.Reason
			fmt.Fprintf(cmd.OutOrStdout(), "%s: %s: %s\n", a.name, work.Headline(), work.Reason)
		}
	}
}

// settles is for how many readings of the Lease a request has to be gone before that alone says that it is
// done: what else happened is written a moment later.
const settles = 3

// judge says what has become of the request.
func (a *asking) judge(before, now answer, gone *int) (done bool, refused error) {
	for _, e := range now.history {
		same := func(old report.Entry) bool { return old.At.Equal(e.At) }
		if e.Pod != a.name || slices.ContainsFunc(before.history, same) {
			continue
		}
		switch e.What {
		case report.MemberRemoved:
			return true, nil
		case report.MemberSuspected:
			return false, errors.New(e.Reason)
		}
	}
	if work := a.work(now.report); work != nil && work.Action == rollout.ActionHold {
		return false, fmt.Errorf("refused (%s): %s. What to do: %s", work.Guard, work.Reason, work.Do)
	}
	if now.request {
		*gone = 0
		return false, nil
	}
	if *gone++; *gone < settles {
		return false, nil
	}
	ghost := slices.ContainsFunc(now.report.Ghosts, func(g report.Ghost) bool { return g.ID == hexOf(a.Member) })
	switch {
	case a.Operation == rollout.RequestForgetMember && now.suspect, a.Operation == rollout.RequestRemoveMember && ghost:
		return false, errors.New("the request is not on the Lease any more, and was not carried out")
	}
	return true, nil
}

// work is what the report says of this very request.
func (a *asking) work(r report.Report) *report.Work {
	if !r.Answers.Equal(a.At) {
		return nil
	}
	for _, w := range append([]report.Work{r.Work}, r.Others...) {
		if w.Duty == rollout.DutyGhosts || w.Duty == rollout.DutyHeld {
			return &w
		}
	}
	return nil
}
