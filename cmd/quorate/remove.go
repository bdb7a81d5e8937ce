package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/pkg/options"
	"github.com/quorate/quorate/pkg/rollout"
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
		Use:        "remove-member [STATEFULSET] {MEMBER… | --all-ghosts | --forget MEMBER}",
		SuggestFor: []string{"remove", "rm", "delete"},
		Short:      "Remove ghosts from etcd's member list",
		Long: `Removes ghosts from etcd's member list. A ghost is a member that an earlier pod of the
StatefulSet has left on the list, for example after a scale-in that nobody finished. Its ordinal
is out of range, it has no pod, and it has not answered for ghost-after (10 minutes). It still
counts for the quorum: with two ghosts beside three members, four of five voters would have to
serve before a rollout may take one. quorate status names the ghosts.

The command does not remove anything itself. It writes a request on the Lease, bound to the
cluster and the member by their IDs, and the coordinator carries it out, one member at a time.
It does so while every pod exists, is Ready and serves, while nobody scales or adds a member,
and if those that serve are a quorum before and after. A member that serves is never removed.
The command shows what the coordinator waits for. It ends when the members are gone, when the
coordinator refuses, or when the request runs out after ten minutes. It needs no access to etcd.

MEMBER is a name or an ID. The StatefulSet comes first. With --statefulset, every argument is a
MEMBER. Do not remove a ghost if you want its pod back. If its volume still exists, it comes
back as the same member, with its data, once you scale out again.

If it is not known whether a removal took effect, and it must not be repeated, the member stays
on the Lease as a suspect: it counts as a voter, but is not relied on. Ask for its removal
again. If it serves again and should stay, --forget it, but only when the command that asked for
its removal ended more than a minute ago.

Exit codes:
  0  every member is gone from the list, or forgotten (with --dry-run: may be requested)
  1  failure: refused, not done in ten minutes, interrupted, or no such ghost is known
  2  bad input`,
		Example: `  # Two of five members were scaled away, and the rollout holds with QuorumFloor:
  quorate remove-member -n garden etcd-main --all-ghosts

  # One of them:
  quorate remove-member -n garden etcd-main etcd-main-4`,
		Args: func(_ *cobra.Command, args []string) error { return f.check(o, args) },
		RunE: func(cmd *cobra.Command, args []string) error {
			set, members := split(o, args)
			return f.run(cmd, o, set, members)
		},
		ValidArgsFunction: completeStatefulSet(o, ours),
	}
	fs := cmd.Flags()
	o.AddFlags(fs)
	o.AddEtcdFlags(fs)
	fs.BoolVar(&f.all, "all-ghosts", false, "every ghost that is known, one after the other")
	fs.BoolVar(&f.dryRun, "dry-run", false, "show what would be requested, and request nothing")
	fs.DurationVar(&f.every, "every", defaultPoll, "how often to check whether it is done (it takes seconds)")
	fs.StringVar(&f.forget, "forget", "", "the suspect that may be relied on again")
	return cmd
}

// split takes the StatefulSet from the members. It comes first, as in every command, unless the flag names it.
func split(o *options.Client, args []string) (set, members []string) {
	if named := o.Kubernetes.StatefulSet; len(args) == 0 || named != "" && named != args[0] {
		return nil, args
	}
	return args[:1], args[1:]
}

func (f *removeFlags) check(o *options.Client, args []string) error {
	set, members := split(o, args)
	ways := 0
	for _, given := range []bool{len(members) > 0, f.all, f.forget != ""} {
		if given {
			ways++
		}
	}
	switch {
	case f.every < time.Second/10:
		return badInput{fmt.Errorf("--every: %v: must be at least 100ms", f.every)}
	case ways == 0 && len(set) > 0:
		return badInput{fmt.Errorf("name the members of the StatefulSet %s, or give --all-ghosts, or --forget; if %s "+
			"is a member, put its StatefulSet first", set[0], set[0])}
	case ways != 1:
		return badInput{errors.New(
			"name the StatefulSet and its members, or give --all-ghosts, or --forget; one of them")}
	}
	return nil
}

func (f *removeFlags) run(cmd *cobra.Command, o *options.Client, set, args []string) error {
	cfg, err := reach(cmd.Context(), o, set)
	if err != nil {
		return err
	}
	before, err := existing(cmd.Context(), cfg)
	if err != nil {
		return fmt.Errorf("%w (the StatefulSet comes before its members)", err)
	}
	if err := coordinated(cfg, before); err != nil {
		return err
	}
	dump, etcd, complaint, err := look(cmd.Context(), cfg, len(cfg.Endpoints) > 0)
	if err != nil {
		return err
	}
	complain(cmd, complaint)
	seen, complaint := outside(dump, &dump.StatefulSets[0], cfg.Names, etcd, time.Now())
	complain(cmd, complaint)
	seen.Asked, seen.Policy = len(cfg.Endpoints) > 0, policy(o, &seen)
	asked, err := f.choose(&seen, args)
	if err != nil {
		return err
	}
	for i := range asked {
		a := &asked[i]
		a.cfg, a.every = cfg, f.every
		fmt.Fprintln(cmd.OutOrStdout(), a.what)
		if f.dryRun {
			continue
		}
		if err := a.carryOut(cmd); err != nil {
			return fmt.Errorf("%s: %w", a.name, err)
		}
	}
	return nil
}

// removing is a request about one member, with what it is about in words.
type removing struct {
	asking
	name, what, done string
}

// choose returns the requests to make.
func (f *removeFlags) choose(seen *report.Outside, args []string) ([]removing, error) {
	if f.forget != "" {
		return f.suspect(seen.Lease.Suspect)
	}
	ghosts := report.Look(*seen).Ghosts
	var chosen []removing
	for i := range ghosts {
		g := &ghosts[i]
		id, err := strconv.ParseUint(g.ID, 16, 64)
		cluster, clusterErr := strconv.ParseUint(g.Cluster, 16, 64)
		if err != nil || clusterErr != nil {
			continue // Somebody else wrote that.
		}
		if f.all || slices.Contains(args, g.Member) || slices.Contains(args, g.ID) {
			chosen = append(chosen, removing{
				asking: asking{Request: rollout.Request{Operation: rollout.RequestRemoveMember, Cluster: cluster,
					Member: id, Name: g.Member}},
				name: g.Name(), what: g.What(seen.At), done: "removed from etcd's member list",
			})
		}
	}
	for _, arg := range args {
		if !slices.ContainsFunc(chosen, func(a removing) bool { return arg == a.Name || arg == hexOf(a.Member) }) {
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

func (f *removeFlags) suspect(s *record.Member) ([]removing, error) {
	switch {
	case s == nil:
		return nil, errors.New("there is no suspect on the Lease")
	case f.forget != s.Name && f.forget != hexOf(s.ID):
		return nil, fmt.Errorf("--forget: %q: the suspect is %s (ID %x)", f.forget, s.Name, s.ID)
	}
	return []removing{{
		asking: asking{Request: rollout.Request{Operation: rollout.RequestForgetMember, Cluster: s.Cluster,
			Member: s.ID, Name: s.Name}},
		name: s.Label(), what: s.Label() + " may be relied on again", done: "no longer a suspect",
	}}, nil
}

func hexOf(id uint64) string { return strconv.FormatUint(id, 16) }

// carryOut writes the request and waits until it is answered.
func (a *removing) carryOut(cmd *cobra.Command) error {
	ctx := cmd.Context()
	before, err := a.read(ctx)
	if err != nil {
		return err
	}
	if err := a.write(ctx); err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s: asked for; the request stands until %s\n", a.name,
		a.At.Add(record.RequestLasts).Local().Format(time.TimeOnly))
	if err = a.follow(cmd, before); err != nil {
		err = errors.Join(err, a.withdraw(ctx))
	}
	return err
}

// follow says what is waited for, until it is over.
func (a *removing) follow(cmd *cobra.Command, before answer) error {
	said, gone := "", 0
	for begun := time.Now(); ; {
		if err := a.wait(cmd.Context()); err != nil {
			return err
		}
		if time.Since(begun) >= record.RequestLasts {
			return fmt.Errorf("the request has run out after %v, and was not carried out: %s", record.RequestLasts,
				cmp.Or(said, "no coordinator has taken it up"))
		}
		now, err := a.read(cmd.Context())
		if err != nil {
			complain(cmd, err)
			continue
		}
		switch done, err := a.judge(before, now, &gone); {
		case err != nil:
			return err
		case done:
			fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", a.name, a.done)
			return nil
		}
		if work := a.work(&now.report, rollout.DutyGhosts); work != nil {
			// What fails is told as well: etcd may refuse the removal.
			text := strings.Join(append([]string{work.Reason}, now.report.Faults...), "; ")
			if text != said {
				said = text
				fmt.Fprintf(cmd.OutOrStdout(), "%s: %s: %s\n", a.name, work.Headline(), text)
			}
		}
	}
}

// settles is for how many readings of the Lease a request has to be gone before that alone says that it is
// done: what else happened is written a moment later.
const settles = 3

// judge says what has become of the request.
func (a *removing) judge(before, now answer, gone *int) (done bool, err error) {
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
	if work := a.work(&now.report, rollout.DutyGhosts); work != nil && work.Action == rollout.ActionHold {
		return false, denied(work)
	}
	if now.stands {
		*gone = 0
		return false, nil
	}
	if *gone++; *gone < settles {
		return false, nil
	}
	ghost := slices.ContainsFunc(now.report.Ghosts, func(g report.Ghost) bool { return g.ID == hexOf(a.Member) })
	suspect := now.record.Suspect != nil && now.record.Suspect.ID == a.Member
	switch {
	case a.Operation == rollout.RequestForgetMember && suspect, a.Operation == rollout.RequestRemoveMember && ghost:
		return false, errors.New("the request is not on the Lease any more, and was not carried out")
	}
	return true, nil
}
