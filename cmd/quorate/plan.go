package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"

	"github.com/quorate/quorate/coordinator"
	"github.com/quorate/quorate/internal/adoption"
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

// errNotAsked ends the command with exitFailure. Everything has been printed already.
var errNotAsked = errors.New("etcd was not asked")

type planFlags struct {
	self, output, now                          string
	files                                      []string
	memberList, endpointStatus, endpointHealth string
	all, assumeOnDelete                        bool

	// called is the command that reads, plan if it is empty. beside reads what else it needs of Kubernetes, before the
	// objects are judged, and ask what else it asks of etcd. Both may be nil, and both are for a live cluster.
	called string
	beside func(context.Context, coordinator.Config, *workload.Dump) error
	ask    func(context.Context, *membership.Observer, rollout.Membership)
}

// basis is what a plan rests on.
type basis struct {
	state  rollout.State
	policy rollout.Policy
	// told are the ghosts that the coordinator has told of, and at is the time of the plan.
	told []report.Ghost
	at   time.Time
	// reported is the coordinator's word, nil without a fresh one. notAsked is why there is no decision, nil if there
	// is one.
	reported *report.Reported
	notAsked *report.NotAsked
	// assumed is what the state is taken to be although it is not so.
	assumed []rollout.Assumption

	dump *workload.Dump
	set  *appsv1.StatefulSet
	// unheard is why nothing is known from etcd, whether or not a decision needs it.
	unheard *report.NotAsked
}

// looked is what was read, of Kubernetes and of etcd.
type looked struct {
	dump *workload.Dump
	etcd rollout.Membership
	// notAsked is nil if etcd has answered. complaint is what it has not answered.
	notAsked  func(*appsv1.StatefulSet) *report.NotAsked
	complaint error
}

func plan() *cobra.Command {
	o := options.NewClient()
	o.Etcd.Endpoints, o.Etcd.Optional = nil, true // The pods' specs tell them.
	var f planFlags
	cmd := &cobra.Command{
		Use:        "plan [STATEFULSET]",
		SuggestFor: []string{"diff", "preview", "explain"},
		Short:      "Show what would happen next, and why, with every guard's numbers",
		Long: `Shows what Quorate would do next and why: the rule that decides, every member with what
is known about it, and every guard's verdict for every candidate. It changes nothing.

Live, it reads the StatefulSet, its pods, their nodes (if you may) and the record's Lease, and
asks every etcd member. It runs on a laptop, with kubectl's flags and context, or in a pod.
While a coordinator reports on the Lease, plan shows that report first. It uses the coordinator's
policy and memory (since when a pod fails, which eviction was refused), so that it names the same
guard. Set a policy flag to see what another policy would do.

Without --endpoints it finds etcd by the pods' specs: in a member's pod as its sidecar does, and
otherwise at the client URLs that the members advertise. If the specs do not tell, it asks
http://127.0.0.1:2379. Outside the members' pods, it takes endpoints on this machine for
port-forwards: each answer counts for the member whose ID it carries.

If no member answers, or if a file with etcd's answers is missing, plan decides nothing. It says
"not asked", why, and how to ask. What Kubernetes alone decides (idle, paused, a template that
the StatefulSet controller has not observed yet) is decided all the same.

Offline, it reads the output of standard tools:

  kubectl get statefulset,pods,lease,nodes,events -n garden -o yaml > objects.yaml
  etcdctl member list -w json > members.json
  etcdctl endpoint status --cluster -w json > status.json
  etcdctl endpoint health --cluster -w json > health.json
  quorate plan -f objects.yaml --member-list members.json \
    --endpoint-status status.json --endpoint-health health.json

Ages come from the objects' timestamps, and --now makes them reproducible.

With --all it shows every step of the rollout from here, assuming that every replaced pod
settles and nothing else happens. It also shows everything that is known to go wrong when
etcd's version changes, with its source, and whether it applies to this rollout.

With --assume-on-delete it answers "what would it do to my cluster?" before anything is
installed, live or from files. It takes the update strategy for OnDelete, every pod for one with
a sidecar, and a pause for lifted. If no pod is outdated, it takes every pod for outdated, as
after a change that keeps etcd's version. The first line says what it has assumed. With --all
it shows the whole order.

Exit codes:
  0  something to do, complete, or not Quorate's to roll (idle)
  1  failure: the Kubernetes API cannot be read, or etcd was not asked. With -o json or yaml
     there is then nothing on standard output, with one exception: if the files say which
     members serve, or that none does, there is a plan, with the field notAsked
  2  bad input: a flag, a file, or what is in it
  3  holding or waiting, and it says for what (with --all: the first step)`,
		Example: `  # What would be done next, and which guard holds it? (where etcd can be reached)
  quorate plan -n garden etcd-main -e https://127.0.0.1:2379 --cacert=ca.crt --cert=tls.crt --key=tls.key

  # What would it do to a cluster that Kubernetes rolls today?
  quorate plan -f objects.yaml --member-list members.json \
    --endpoint-status status.json --endpoint-health health.json --assume-on-delete --all`,
		Args:              oneStatefulSet,
		ValidArgsFunction: completeStatefulSet(o, anybodys),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(f.output, "table", "json", "yaml"); err != nil {
				return err
			}
			b, err := f.basis(cmd, o, args)
			if err != nil {
				return err
			}
			return f.show(cmd.OutOrStdout(), b)
		},
	}
	fs := cmd.Flags()
	o.AddFlags(fs)
	o.AddEtcdFlags(fs)
	o.AddRolloutFlags(fs)
	f.addFiles(fs)
	fs.StringVar(&f.self, "self", "",
		"the coordinator's own pod, which goes last among equals (default: $POD_NAME when live, else the "+
			"coordinator's while it reports, else none)")
	fs.StringVar(&f.now, "now", "", "the time that ages are measured at, in RFC 3339 (default: the current time)")
	fs.StringVarP(&f.output, "output", "o", "table", "table, json or yaml")
	completeOutput(cmd, "table", "json", "yaml")
	fs.BoolVar(&f.all, "all", false,
		"show the whole predicted order, assuming that every replaced pod settles, and what is known about the change "+
			"of etcd's version")
	fs.BoolVar(&f.assumeOnDelete, "assume-on-delete", false,
		"show what Quorate would do if it were to roll the pods: as if the strategy were OnDelete, every pod had a "+
			"sidecar, nothing were paused, and, if no pod is outdated, all were")
	return cmd
}

// addFiles registers the flags of a command that reads files instead of a live cluster.
func (f *planFlags) addFiles(fs *pflag.FlagSet) {
	fs.StringSliceVarP(&f.files, "filename", "f", nil,
		"file with the StatefulSet, its pods, the record's Lease if there is one, and the nodes and events if they "+
			"should count, from kubectl get -o yaml or -o json; "+
			"- is standard input; may be repeated")
	fs.StringVar(&f.memberList, "member-list", "", "file with the output of etcdctl member list -w json")
	fs.StringVar(&f.endpointStatus, "endpoint-status", "", "file with the output of etcdctl endpoint status -w json")
	fs.StringVar(&f.endpointHealth, "endpoint-health", "", "file with the output of etcdctl endpoint health -w json")
}

// basis reads one observation, from files or live, and the policy to decide it with.
func (f *planFlags) basis(cmd *cobra.Command, o *options.Client, args []string) (basis, error) {
	b := basis{at: time.Now()}
	if f.now != "" {
		var err error
		if b.at, err = time.Parse(time.RFC3339, f.now); err != nil {
			return b, badInput{fmt.Errorf("--now: %q is not a time such as 2026-01-02T15:04:05Z", f.now)}
		}
	}
	l, err := f.read(cmd, o, args)
	if err != nil {
		return b, err
	}
	set, err := l.dump.Select(o.Kubernetes.Namespace, o.Kubernetes.StatefulSet)
	if err != nil {
		return b, badInput{fmt.Errorf("--filename: %w", err)}
	}
	b.dump, b.set = l.dump, set
	seen, complaint := outside(l.dump, set, o.Kubernetes.Names(), l.etcd, b.at)
	complain(cmd, complaint)
	b.state = seen.State
	b.state.Self = f.self
	if seen.Last.Fresh(b.at, seen.Lease) && seen.Last.Memory.Recall(&b.state) && f.self == "" {
		b.state.Self = seen.Last.Coordinator
	}
	if f.assumeOnDelete {
		b.state, b.assumed = rollout.Adopted(b.state)
		if without, _ := adoption.Without(l.dump, set, o.Kubernetes.Names()); len(without) > 0 {
			b.assumed = append(b.assumed, rollout.AssumedSidecars)
		}
	}
	b.told = seen.Last.Ghosts
	b.policy = policy(o, &seen)
	b.state.InWindow = b.policy.DefragmentWindow.Contains(b.at)
	b.reported = report.ReportedTo(b.at, &seen.Last, seen.Lease, seen.State.Set.UpdateRevision)
	b.unheard = l.notAsked(set)
	if _, certain := report.Certain(b.state, b.policy); !certain {
		b.notAsked = b.unheard
	}
	if b.notAsked == nil {
		complain(cmd, l.complaint)
	}
	return b, nil
}

// read reads the objects and what etcd says.
func (f *planFlags) read(cmd *cobra.Command, o *options.Client, args []string) (looked, error) {
	if len(f.files) > 0 {
		if err := errors.Join(o.Load(), o.ValidateRollout()); err != nil {
			return looked{}, badInput{err}
		}
		if len(args) > 0 {
			o.Kubernetes.StatefulSet = args[0]
		}
		l, err := f.offline(name(cmd), o)
		if err != nil {
			return looked{}, badInput{err}
		}
		return l, nil
	}
	if f.memberList+f.endpointStatus+f.endpointHealth != "" {
		return looked{}, badInput{errors.New("--member-list, --endpoint-status and --endpoint-health go with " +
			"--filename: give the objects as well")}
	}
	meant := ours
	if f.assumeOnDelete {
		meant = anybodys
	}
	cfg, err := reachAny(cmd.Context(), o, args, meant)
	if err != nil {
		return looked{}, err
	}
	if f.self == "" {
		f.self = cfg.PodName
	}
	l := looked{}
	if l.dump, _, _, err = look(cmd.Context(), cfg, false); err != nil {
		return looked{}, err
	}
	if f.beside != nil {
		if err := f.beside(cmd.Context(), cfg, l.dump); err != nil {
			return looked{}, err
		}
	}
	pods := podsOf(l.dump, &l.dump.StatefulSets[0], cfg.Names)
	if len(cfg.Endpoints) == 0 {
		cfg.Endpoints = endpointsOf(cfg, pods)
	}
	if len(cfg.Endpoints) == 0 {
		cfg.Endpoints = []string{defaultEndpoint}
	}
	l.etcd, l.complaint = askEtcd(cmd.Context(), cfg, l.dump, f.assumeOnDelete, f.ask)
	l.notAsked = func(*appsv1.StatefulSet) *report.NotAsked {
		return unheard(name(cmd), f.verb(), o, cfg, pods, l.etcd, l.complaint)
	}
	return l, nil
}

// verb is the command that asks the same.
func (f *planFlags) verb() string {
	if f.called == "" && f.assumeOnDelete {
		return "plan --assume-on-delete"
	}
	return cmp.Or(f.called, "plan")
}

func (f *planFlags) offline(called string, o *options.Client) (looked, error) {
	l := looked{dump: &workload.Dump{DrainTaints: o.DrainTaints}}
	again := called + " " + f.verb()
	for _, name := range f.files {
		again += " -f " + name
		if err := readObjects(name, l.dump); err != nil {
			return l, fmt.Errorf("--filename: %q: %w", name, err)
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
		again += " " + part.flag + "=" + part.name
		data, err := os.ReadFile(part.name)
		if err != nil {
			return l, fmt.Errorf("%s: %w", part.flag, err)
		}
		*part.into = data
	}
	l.notAsked = func(set *appsv1.StatefulSet) *report.NotAsked {
		names := o.Kubernetes.Names()
		return missing(&d, endpointsOf(coordinator.Config{Names: names}, podsOf(l.dump, set, names)), again)
	}
	var err error
	l.etcd, err = d.Membership()
	return l, err
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

func (f *planFlags) show(w io.Writer, b basis) error {
	decisions := []rollout.Decision{rollout.Decide(b.state, b.policy)}
	decided := b.notAsked == nil
	if f.all && decided {
		decisions = rollout.Predict(b.state, b.policy)
	}
	plans := make([]report.Plan, len(decisions))
	for i, d := range decisions {
		plans[i] = report.NewPlan(d)
	}
	first := &plans[0]
	if f.all && decided {
		first.Preflight = report.NewPreflight(decisions[0])
	}
	first.Ghosts = report.GhostsOf(decisions[0].Assessment, b.told, b.at)
	first.Reported = b.reported
	first.Assumed = b.assumed
	if set := &b.state.Set; !set.OnDelete && !set.Deleting {
		first.Do = toAssume
	}
	if !decided {
		return f.showNotAsked(w, b.notAsked, plans)
	}
	if err := render(w, f.output, f.all, plans); err != nil {
		return err
	}
	if first.Waits() {
		return errWaiting
	}
	return nil
}

// toAssume is what somebody does who wants to see what Quorate would do to a StatefulSet that is not its own yet.
const toAssume = "To see what Quorate would do, add --assume-on-delete to this command, and --all for the whole order."

// showNotAsked shows a plan that is no decision. Programs get one only where it is known who serves, because they may
// not look at anything but the action.
func (f *planFlags) showNotAsked(w io.Writer, n *report.NotAsked, plans []report.Plan) error {
	plans[0].Undecided(n)
	if f.output == "table" || n.Partly {
		if err := render(w, f.output, f.all, plans); err != nil {
			return err
		}
	}
	if f.output == "table" {
		return errNotAsked
	}
	return errors.New(n.String())
}

func render(w io.Writer, output string, all bool, plans []report.Plan) error {
	switch {
	case output != "table" && all:
		return encode(w, output, "Plan", plans)
	case output != "table":
		return encode(w, output, "Plan", plans[0])
	case !all, plans[0].NotAsked != nil:
		return plans[0].Table(w)
	}
	_, err := io.WriteString(w, report.AssumedInWords(plans[0].Assumed))
	return errors.Join(err, plans[0].Reported.Write(w, false), report.Order(w, plans), plans[0].Preflight.Table(w))
}
