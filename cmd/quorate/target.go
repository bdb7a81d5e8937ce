package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedappsv1 "k8s.io/client-go/kubernetes/typed/apps/v1"

	"github.com/quorate/quorate/coordinator"
	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/internal/workload"
	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/pkg/options"
	"github.com/quorate/quorate/pkg/rollout"
)

// reach completes the options of a command that a person runs, and returns how to reach the cluster.
// The StatefulSet is the argument, else that of the flag, the file or the pod, else the only one in the
// namespace.
func reach(ctx context.Context, o *options.Client, args []string) (coordinator.Config, error) {
	return reachAny(ctx, o, args, ours)
}

// reachAny does so for the only one that may be meant.
func reachAny(ctx context.Context, o *options.Client, args []string, meant meant) (coordinator.Config, error) {
	if named := o.Kubernetes.StatefulSet; len(args) > 0 && named != "" && named != args[0] {
		return coordinator.Config{}, badInput{fmt.Errorf("--statefulset: %q: the argument names %q; give one of them",
			named, args[0])}
	}
	if err := o.Complete(os.Getenv); err != nil {
		return coordinator.Config{}, badInput{err}
	}
	if len(args) > 0 {
		o.Kubernetes.StatefulSet = args[0]
	}
	var err error
	if o.Kubernetes.StatefulSet, err = bare(o.Kubernetes.StatefulSet); err != nil {
		return coordinator.Config{}, err
	}
	if o.Kubernetes.StatefulSet == "" {
		names, err := candidates(ctx, o, meant)
		var bad badInput
		switch {
		case errors.As(err, &bad):
			return coordinator.Config{}, err
		case err != nil:
			return coordinator.Config{}, fmt.Errorf("no StatefulSet is named, and they cannot be listed: %w", err)
		case len(names) == 0:
			return coordinator.Config{},
				badInput{fmt.Errorf("name the StatefulSet, and its namespace with -n: in namespace %s none has %s",
					o.Kubernetes.Namespace, fmt.Sprintf(meant.has, o.Kubernetes.EtcdContainer))}
		case len(names) > 1:
			return coordinator.Config{}, badInput{ambiguous{o.Kubernetes.Namespace, names}}
		}
		o.Kubernetes.StatefulSet = names[0]
	}
	if err := o.Validate(); err != nil {
		return coordinator.Config{}, badInput{err}
	}
	cfg, err := o.Config("quorate/"+version(), nil)
	if err != nil {
		return coordinator.Config{}, badInput{err}
	}
	return cfg, nil
}

// ambiguous is the error that several StatefulSets could be meant.
type ambiguous struct {
	namespace string
	names     []string
}

func (e ambiguous) Error() string {
	return fmt.Sprintf("name one of them: in namespace %s there are %s", e.namespace, someOf(e.names))
}

// candidates are the names of the StatefulSets in the namespace that may be meant.
func candidates(ctx context.Context, o *options.Client, meant meant) ([]string, error) {
	rc, err := o.Kubernetes.RESTConfig("quorate/" + version())
	if err != nil {
		return nil, badInput{err}
	}
	client, err := typedappsv1.NewForConfig(rc)
	if err != nil {
		return nil, badInput{err}
	}
	ctx, cancel := context.WithTimeout(ctx, o.RequestTimeout)
	defer cancel()
	list, err := client.StatefulSets(o.Kubernetes.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var names []string
	for i := range list.Items {
		if meant.is(&list.Items[i], o.Kubernetes.EtcdContainer) {
			names = append(names, list.Items[i].Name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// meant says which StatefulSets a command may be about, and in words what they have, with the name of etcd's container.
type meant struct {
	is  func(s *appsv1.StatefulSet, etcdContainer string) bool
	has string
}

// ours are those that Quorate rolls, and anybodys those that it could.
var (
	ours = meant{func(s *appsv1.StatefulSet, etcdContainer string) bool {
		return s.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType && hasEtcd(s, etcdContainer)
	}, "the update strategy OnDelete and a container %s"}
	anybodys = meant{hasEtcd, "a container %s"}
)

func hasEtcd(s *appsv1.StatefulSet, etcdContainer string) bool {
	return slices.ContainsFunc(s.Spec.Template.Spec.Containers, func(c corev1.Container) bool {
		return c.Name == etcdContainer
	})
}

// oneStatefulSet permits one argument.
func oneStatefulSet(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return badInput{fmt.Errorf("%s takes one StatefulSet, and got %s", cmd.CommandPath(), strings.Join(args, ", "))}
	}
	return nil
}

// completeStatefulSet offers the names to the shell, for one argument.
func completeStatefulSet(o *options.Client, meant meant) cobra.CompletionFunc {
	several := completeStatefulSets(o, meant)
	return func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return several(cmd, args, begun)
	}
}

// completeStatefulSets does so for any number of them.
func completeStatefulSets(o *options.Client, meant meant) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if o.Complete(os.Getenv) != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		names, err := candidates(cmd.Context(), o, meant)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveError
		}
		names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(args, name) })
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// complain prints on standard error what is wrong, with the command's name before every line. It does
// not end the command.
func complain(cmd *cobra.Command, err error) {
	if err != nil {
		prefix, words := name(cmd)+": ", text(err)
		fmt.Fprintln(cmd.ErrOrStderr(), prefix+strings.ReplaceAll(words, "\n", "\n"+prefix))
	}
}

// look reads one observation from the cluster. It asks etcd if ask is true. What etcd does not answer
// becomes a complaint, and the rest is still returned.
func look(ctx context.Context, cfg coordinator.Config, ask bool) (dump *workload.Dump, etcd rollout.Membership,
	complaint, err error) {
	dump = &workload.Dump{}
	reading, cancel := context.WithTimeout(ctx, cfg.RequestTimeout)
	defer cancel()
	if err := readLive(reading, cfg, dump); err != nil {
		return nil, etcd, nil, err
	}
	if ask {
		etcd, complaint = askEtcd(ctx, cfg, dump, false, nil)
	}
	return dump, etcd, complaint, nil
}

// askEtcd asks every member that can be found from the endpoints, as before a rollout if one is to begin. Then it lets
// more ask, unless that is nil.
func askEtcd(ctx context.Context, cfg coordinator.Config, dump *workload.Dump, begins bool,
	more func(context.Context, *membership.Observer, rollout.Membership)) (rollout.Membership, error) {
	set := &dump.StatefulSets[0]
	members := membership.NewObserver(cfg.Dial, cfg.Endpoints, cfg.ProbeTimeout)
	defer members.Close()
	members.Relays = relays(cfg, podsOf(dump, set, cfg.Names))
	facts := dump.Facts(set, cfg.Names)
	observe := members.Observe
	if before := (&rollout.State{Set: facts.Set, Pods: facts.Pods}); begins || before.Begins() {
		observe = members.ObserveWithLists
	}
	m, err := observe(ctx)
	if m.Known && more != nil {
		more(ctx, members, m)
	}
	return m, err
}

// readLive fills the dump as kubectl would.
func readLive(ctx context.Context, cfg coordinator.Config, dump *workload.Dump) error {
	lease, err := record.Read(ctx, cfg.Leases, cfg.StatefulSet)
	if err != nil {
		return err
	}
	// The pods come after the record. So what an intent that is gone by now has done to them shows.
	set, pods, err := workload.New(workload.Config{StatefulSet: cfg.StatefulSet, Names: cfg.Names,
		StatefulSets: cfg.StatefulSets, Pods: cfg.Pods}).Read(ctx)
	switch {
	case apierrors.IsNotFound(err):
		return noSuch(ctx, cfg, err)
	case err != nil:
		return err
	}
	dump.DrainTaints = cfg.DrainTaints
	dump.StatefulSets = append(dump.StatefulSets, *set)
	dump.Pods = append(dump.Pods, pods...)
	if err := readNodes(ctx, cfg.Nodes, dump); err != nil {
		return err
	}
	if lease != nil {
		dump.Leases = append(dump.Leases, *lease)
	}
	if set.Spec.Replicas == nil || len(pods) < int(*set.Spec.Replicas) {
		dump.Events = readEvents(ctx, cfg.Events, set.Name)
	}
	return nil
}

// readEvents reads what was said about the StatefulSet, as far as this person may. It is only for explanations, so
// whoever may not gets a shorter one.
func readEvents(ctx context.Context, events coordinator.Events, set string) []corev1.Event {
	lister, ok := events.(interface {
		List(ctx context.Context, o metav1.ListOptions) (*corev1.EventList, error)
	})
	if !ok {
		return nil
	}
	list, err := lister.List(ctx, metav1.ListOptions{
		FieldSelector: "involvedObject.kind=StatefulSet,involvedObject.name=" + set,
	})
	if err != nil {
		return nil
	}
	return list.Items
}

// readNodes reads the nodes of the pods, as far as this person may. Whoever may not sees who leaves by the pods'
// own signs.
func readNodes(ctx context.Context, nodes coordinator.Nodes, dump *workload.Dump) error {
	read := map[string]bool{"": true}
	for i := range dump.Pods {
		name := dump.Pods[i].Spec.NodeName
		if read[name] || nodes == nil {
			continue
		}
		read[name] = true
		node, err := nodes.Get(ctx, name, metav1.GetOptions{})
		switch {
		case workload.Denied(err):
			return nil
		case err == nil:
			dump.Nodes = append(dump.Nodes, *node)
		case !apierrors.IsNotFound(err):
			return fmt.Errorf("get node %s: %w", name, err)
		}
	}
	return nil
}

// outside joins what was read about one StatefulSet.
func outside(dump *workload.Dump, set *appsv1.StatefulSet, names workload.Names, etcd rollout.Membership,
	now time.Time) (report.Outside, error) {
	facts := dump.Facts(set, names)
	lease := dump.Lease(set.Namespace, record.Name(set.Name))
	o := report.Outside{
		Namespace: set.Namespace, StatefulSet: set.Name, At: now, Lease: record.Parse(lease),
	}
	// Who coordinates tells what is wrong with a request.
	o.State, _ = record.StateOf(facts.Set, facts.Pods, etcd, lease, o.Lease, now)
	o.State.Ages = dump.Ages(set, names, now)
	// Whoever looks from outside does not hear the sidecars, and takes them to be there. A coordinator that waits for
	// the word of one tells of that.
	for i := range facts.Pods {
		o.State.Sidecars.Present = append(o.State.Sidecars.Present, facts.Pods[i].UID)
	}
	learnersAge(o.State)
	if lease != nil && lease.Spec.RenewTime != nil {
		o.Renewed = lease.Spec.RenewTime.Time
	}
	var err error
	o.Last, o.History, err = report.FromLease(lease)
	return o, err
}

// learnersAge says for how long the pods of learners have not settled, where only etcd tells that they have not. A
// learner was no voter before, so it is at least for as long as its pod is Ready.
func learnersAge(s rollout.State) {
	a := rollout.Assess(s, rollout.DefaultPolicy())
	for i := range a.Replicas {
		replica := &a.Replicas[i]
		if replica.Pod != nil && replica.Pod.Ready && !replica.Outdated && replica.Member != nil && !replica.Voter {
			s.Ages[rollout.Sighting{UID: replica.Pod.UID, Condition: rollout.UnsettledSeen}] =
				a.Age(replica.Pod.UID, rollout.ReadySeen)
		}
	}
}

// policy is the policy of the flags if any is set, else the coordinator's while it reports one, else
// the default. So someone who looks from outside comes to the coordinator's decision.
func policy(o *options.Client, seen *report.Outside) rollout.Policy {
	if !o.PolicyGiven() && seen.Last.Memory != nil && seen.Last.Fresh(seen.At, seen.Lease) {
		return seen.Last.Memory.Policy
	}
	return o.Policy
}
