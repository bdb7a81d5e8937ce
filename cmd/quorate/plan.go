package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/internal/workload"
	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/pkg/options"
	"github.com/quorate/quorate/pkg/rollout"
)

// exitWaiting is the exit code of a plan that holds or waits.
const exitWaiting = 3

// errWaiting ends the command with exitWaiting. Everything has been printed already.
var errWaiting = errors.New("the rollout holds or waits")

type planFlags struct {
	self, output, now                          string
	files                                      []string
	memberList, endpointStatus, endpointHealth string
	all                                        bool
	// told are the ghosts that the coordinator has told of, and at is the time of the plan.
	told []report.Ghost
	at   time.Time
}

func plan() *cobra.Command {
	o := options.NewClient()
	var f planFlags
	cmd := &cobra.Command{
		Use:        "plan [STATEFULSET]",
		SuggestFor: []string{"diff", "preview", "explain"},
		Short:      "Show what would happen next, and why, with every guard's numbers",
		Long: `Shows what Quorate would do next and why: the rule that decides, every member with what
is known about it, and every guard's verdict for every candidate. It changes nothing.

Live, it reads the StatefulSet, its pods, their nodes (if you may) and the record's Lease, and
asks every etcd member. It runs on a laptop, with kubectl's flags and context, or in a pod.
While a coordinator reports on the Lease, plan uses that coordinator's policy and memory
(since when a pod fails, which eviction was refused), so that it names the same guard. Give a
policy flag to see what another policy would do.

Offline, it reads the output of standard tools:

  kubectl get statefulset,pods,lease,nodes,events -n garden -o yaml > objects.yaml
  etcdctl member list -w json > members.json
  etcdctl endpoint status --cluster -w json > status.json
  etcdctl endpoint health --cluster -w json > health.json
  quorate plan -f objects.yaml --member-list members.json \
    --endpoint-status status.json --endpoint-health health.json

If a file is not given, that witness is missing. Ages come from the objects' timestamps, and
--now makes them reproducible.

With --all it shows every step of the rollout from here, assuming that every replaced pod
settles and nothing else happens. It also shows everything that is known to go wrong when
etcd's version changes, with its source, and whether it is about this rollout.

Exit codes:
  0  something to do, complete, or not Quorate's to roll (idle)
  1  failure: the Kubernetes API cannot be read
  2  bad input: a flag, a file, or what is in it
  3  holding or waiting: the first line says for what (with --all: the first step)`,
		Example: `  # What would be done next, and which guard holds it? (where etcd can be reached)
  quorate plan -n garden etcd-main -e https://127.0.0.1:2379 --cacert=ca.crt --cert=tls.crt --key=tls.key`,
		Args:              oneStatefulSet,
		ValidArgsFunction: completeStatefulSet(o),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(f.output, "table", "json", "yaml"); err != nil {
				return err
			}
			state, policy, err := f.state(cmd, o, args)
			if err != nil {
				return err
			}
			return f.show(cmd.OutOrStdout(), state, policy)
		},
	}
	fs := cmd.Flags()
	o.AddFlags(fs)
	o.AddEtcdFlags(fs)
	o.AddRolloutFlags(fs)
	fs.StringSliceVarP(&f.files, "filename", "f", nil,
		"file with the StatefulSet, its pods, the record's Lease if there is one, and the nodes and events if they "+
			"are to count, from kubectl get -o yaml or -o json; "+
			"- is standard input; may be repeated")
	fs.StringVar(&f.memberList, "member-list", "", "file with the output of etcdctl member list -w json")
	fs.StringVar(&f.endpointStatus, "endpoint-status", "", "file with the output of etcdctl endpoint status -w json")
	fs.StringVar(&f.endpointHealth, "endpoint-health", "", "file with the output of etcdctl endpoint health -w json")
	fs.StringVar(&f.self, "self", "",
		"the coordinator's own pod, which goes last among equals (default: $POD_NAME when live, else the "+
			"coordinator's while it reports, else none)")
	fs.StringVar(&f.now, "now", "", "the time that ages are measured at, in RFC 3339 (default: the current time)")
	fs.StringVarP(&f.output, "output", "o", "table", "table, json or yaml")
	completeOutput(cmd, "table", "json", "yaml")
	fs.BoolVar(&f.all, "all", false,
		"show the whole predicted order, assuming that every replaced pod settles, and what is known about the change "+
			"of etcd's version")
	return cmd
}

// state reads one observation, from files or live, and the policy to decide it with.
func (f *planFlags) state(cmd *cobra.Command, o *options.Client, args []string) (rollout.State, rollout.Policy, error) {
	fail := func(err error) (rollout.State, rollout.Policy, error) { return rollout.State{}, rollout.Policy{}, err }
	now := time.Now()
	if f.now != "" {
		var err error
		if now, err = time.Parse(time.RFC3339, f.now); err != nil {
			return fail(badInput{fmt.Errorf("--now: %q is not a time such as 2026-01-02T15:04:05Z", f.now)})
		}
	}
	dump, etcd, err := f.read(cmd, o, args)
	if err != nil {
		return fail(err)
	}
	set, err := dump.Select(o.Kubernetes.Namespace, o.Kubernetes.StatefulSet)
	if err != nil {
		return fail(badInput{fmt.Errorf("--filename: %w", err)})
	}
	seen, complaint := outside(dump, set, o.Kubernetes.Names(), etcd, now)
	complain(cmd, complaint)
	state := seen.State
	state.Self = f.self
	if seen.Last.Fresh(now, seen.Lease) && seen.Last.Memory.Recall(&state) && f.self == "" {
		state.Self = seen.Last.Coordinator
	}
	f.told, f.at = seen.Last.Ghosts, now
	policy := policy(o, &seen)
	state.InWindow = policy.DefragmentWindow.Contains(now)
	return state, policy, nil
}

// read reads the objects and what etcd says.
func (f *planFlags) read(cmd *cobra.Command, o *options.Client, args []string) (*workload.Dump, rollout.Membership,
	error) {
	if len(f.files) > 0 {
		if err := errors.Join(o.Load(), o.ValidateRollout()); err != nil {
			return nil, rollout.Membership{}, badInput{err}
		}
		if len(args) > 0 {
			o.Kubernetes.StatefulSet = args[0]
		}
		dump := &workload.Dump{DrainTaints: o.DrainTaints}
		etcd, err := f.offline(dump)
		if err != nil {
			return nil, rollout.Membership{}, badInput{err}
		}
		return dump, etcd, nil
	}
	if f.memberList+f.endpointStatus+f.endpointHealth != "" {
		return nil, rollout.Membership{},
			badInput{errors.New("--member-list, --endpoint-status and --endpoint-health go with --filename: give " +
				"the objects as well")}
	}
	cfg, err := reach(cmd.Context(), o, args)
	if err != nil {
		return nil, rollout.Membership{}, err
	}
	if f.self == "" {
		f.self = cfg.PodName
	}
	dump, etcd, complaint, err := look(cmd.Context(), cfg, true)
	complain(cmd, complaint)
	return dump, etcd, err
}

func (f *planFlags) offline(dump *workload.Dump) (rollout.Membership, error) {
	for _, name := range f.files {
		if err := readObjects(name, dump); err != nil {
			return rollout.Membership{}, fmt.Errorf("--filename: %q: %w", name, err)
		}
	}
	var d membership.Dump
	for _, part := range []struct {
		flag, name string
		into       *[]byte
	}{
		{"--member-list", f.memberList, &d.MemberList},
		{"--endpoint-status", f.endpointStatus, &d.EndpointStatus},
		{"--endpoint-health", f.endpointHealth, &d.EndpointHealth},
	} {
		if part.name == "" {
			continue
		}
		data, err := os.ReadFile(part.name)
		if err != nil {
			return rollout.Membership{}, fmt.Errorf("%s: %w", part.flag, err)
		}
		*part.into = data
	}
	return d.Membership()
}

func readObjects(name string, dump *workload.Dump) error {
	if name == "-" {
		return dump.Read(os.Stdin)
	}
	file, err := os.Open(name)
	if err != nil {
		return errors.Unwrap(err) // The name is in the message already.
	}
	defer file.Close()
	return dump.Read(file)
}

func (f *planFlags) show(w io.Writer, state rollout.State, policy rollout.Policy) error {
	decisions := []rollout.Decision{rollout.Decide(state, policy)}
	if f.all {
		decisions = rollout.Predict(state, policy)
	}
	plans := make([]report.Plan, len(decisions))
	for i, d := range decisions {
		plans[i] = report.NewPlan(d)
	}
	if f.all {
		plans[0].Preflight = report.NewPreflight(decisions[0])
	}
	plans[0].Ghosts = report.GhostsOf(decisions[0].Assessment, f.told, f.at)
	if err := render(w, f.output, f.all, plans); err != nil {
		return err
	}
	if plans[0].Waits() {
		return errWaiting
	}
	return nil
}

func render(w io.Writer, output string, all bool, plans []report.Plan) error {
	switch {
	case output != "table" && all:
		return encode(w, output, "Plan", plans)
	case output != "table":
		return encode(w, output, "Plan", plans[0])
	case all:
		return errors.Join(report.Order(w, plans), plans[0].Preflight.Table(w))
	}
	return plans[0].Table(w)
}
