package main

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/internal/workload"
)

const (
	// toggle turns Quorate on in a host (see options.Hosted).
	toggle = "--enable-quorum-aware-pod-updates"
	// optIn is the annotation of a pod template on which the policy of deploy/druid acts.
	optIn = "quorate.dev/quorum-aware-pod-updates"
)

// quorateIn returns the container of the pod that has Quorate turned on: a host with the flag, or a sidecar
// of its own. It returns nil if there is none.
func quorateIn(spec *corev1.PodSpec) *corev1.Container {
	for i := range spec.Containers {
		c := &spec.Containers[i]
		line := slices.Concat(c.Command, c.Args)
		for n, arg := range line {
			switch name, value, given := strings.Cut(arg, "="); {
			case arg == "sidecar" && (n == 0 || n == 1 && path.Base(line[0]) == "quorate"):
				return c
			case name == toggle:
				if on, err := strconv.ParseBool(value); !given || on || err != nil {
					return c
				}
			}
		}
	}
	return nil
}

// misled says what in the container's own manifest keeps Quorate from finding its StatefulSet.
func misled(c *corev1.Container, set *appsv1.StatefulSet) string {
	line := slices.Concat(c.Command, c.Args)
	given := func(flag string) string {
		for _, arg := range line {
			if value, ok := strings.CutPrefix(arg, flag+"="); ok {
				return value
			}
		}
		return ""
	}
	for _, part := range []struct{ flag, env, is string }{
		{"--namespace", "POD_NAMESPACE", set.Namespace}, {"--statefulset", "POD_NAME", set.Name},
	} {
		inEnv := slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == part.env })
		switch value := given(part.flag); {
		case value == "" && !inEnv && len(c.EnvFrom) == 0:
			return fmt.Sprintf("The container %s of the pod template has no %s, so Quorate does not know where it is. "+
				"Let the container have it from the pod's own metadata.", c.Name, part.env)
		case value != "" && value != part.is && !strings.HasPrefix(value, "$("):
			return fmt.Sprintf("The container %s of the pod template has %s=%s, and this is %s/%s. Correct the flag.",
				c.Name, part.flag, value, set.Namespace, set.Name)
		}
	}
	return ""
}

// crashed says what is wrong with the container that runs Quorate, whatever its name, for each pod of the StatefulSet
// where it does not run. The words are empty if it runs in one.
func crashed(dump *workload.Dump, names workload.Names) (down map[string]string, words string) {
	facts := workload.SetFacts(&dump.StatefulSets[0], names)
	down = map[string]string{}
	var list []string
	running, look := false, ""
	for i := range dump.Pods {
		p := &dump.Pods[i]
		c := quorateIn(&p.Spec)
		if c == nil || !workload.PodFacts(p, facts, names).Owned {
			continue
		}
		s := workload.StatusOf(p, c.Name)
		if s == nil {
			continue // Its pod has not started yet.
		}
		why, last := notRunning(s)
		if why == "" {
			running = running || s.State.Running != nil
			continue
		}
		down[p.Name] = why
		list = append(list, p.Name+" ("+why+last+")")
		if look == "" || last != "" {
			look = howToSee(p, s)
		}
	}
	if running || len(list) == 0 {
		return down, ""
	}
	slices.Sort(list)
	return down, "Quorate does not run in " + strings.Join(list, ", ") + ". See why: " + look
}

// notRunning says why a container does not run, and how it ended last. One that has ended before and is not ready is
// between two crashes. It is empty for one that runs, and for one that is being created.
func notRunning(s *corev1.ContainerStatus) (why, last string) {
	ended := s.LastTerminationState.Terminated
	if ended != nil {
		last = fmt.Sprintf(", last exit code %d", ended.ExitCode)
	}
	switch now, waiting := s.State.Terminated, s.State.Waiting; {
	case now != nil:
		return cmp.Or(now.Reason, "Terminated"), fmt.Sprintf(", exit code %d", now.ExitCode)
	case s.State.Running != nil && !s.Ready && ended != nil && ended.ExitCode != 0:
		return "crashes", last
	case waiting != nil && ended == nil &&
		(waiting.Reason == "ContainerCreating" || waiting.Reason == "PodInitializing"):
	case waiting != nil:
		return cmp.Or(waiting.Reason, "Waiting"), last
	}
	return "", ""
}

// howToSee is the command that shows why a container does not run. One that has never run has no log.
func howToSee(p *corev1.Pod, s *corev1.ContainerStatus) string {
	logs := fmt.Sprintf("kubectl logs -n %s %s -c %s", p.Namespace, p.Name, s.Name)
	switch {
	case s.State.Terminated != nil:
		return logs
	case s.LastTerminationState.Terminated != nil:
		return logs + " --previous"
	}
	return fmt.Sprintf("kubectl describe pod -n %s %s", p.Namespace, p.Name)
}

// withoutQuorate are the pods of the StatefulSet whose sidecar has no Quorate, while others have it.
func withoutQuorate(dump *workload.Dump, set *appsv1.StatefulSet, names workload.Names) (without []string, all bool) {
	facts, running := workload.SetFacts(set, names), 0
	for i := range dump.Pods {
		p := &dump.Pods[i]
		switch {
		case !workload.PodFacts(p, facts, names).Owned:
		case quorateIn(&p.Spec) != nil:
			running++
		default:
			without = append(without, p.Name)
		}
	}
	slices.Sort(without)
	return without, running == 0
}

// refused returns an error if it cannot be asked.
type refused func(ctx context.Context, account string, what authorizationv1.ResourceAttributes) (bool, error)

// unattended says what to do about a rollout that nobody carries out, if Kubernetes shows why. It looks in
// the order in which things have to be there.
func unattended(ctx context.Context, dump *workload.Dump, names workload.Names, is refused) string {
	set := &dump.StatefulSets[0]
	template := &set.Spec.Template
	here := quorateIn(&template.Spec)
	switch {
	case set.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType:
	case here != nil:
		return "Quorate is in the pod template, and only looks on. For it to roll the pods, set updateStrategy: " +
			"{type: OnDelete}. For an Etcd of etcd-druid, the policy of deploy/druid does that."
	case template.Annotations[optIn] == "true":
		return "The Etcd opts in to Quorate, and nobody has acted on that. Apply deploy/druid, and let etcd-druid " +
			"reconcile the Etcd."
	default:
		return ""
	}
	if here != nil {
		if wrong := misled(here, set); wrong != "" {
			return wrong
		}
	}
	account := template.Spec.ServiceAccountName
	if account == "" {
		account = "default"
	}
	var missing []string
	for _, p := range permissions(set.Name) {
		p.Namespace = set.Namespace
		no, err := is(ctx, account, p)
		if err != nil {
			break // Few people may ask.
		}
		if no {
			missing = append(missing, inWords(p))
		}
	}
	if len(missing) > 0 {
		return fmt.Sprintf("The sidecars lack permissions: their ServiceAccount %s may not %s. Apply deploy/base, "+
			"or for an Etcd of etcd-druid deploy/druid/access.", account, strings.Join(missing, ", "))
	}
	_, none := withoutQuorate(dump, set, names)
	switch {
	case !none:
		return ""
	case here != nil:
		return "No running pod has Quorate yet. Start the Job of deploy/bootstrap-job.yaml, which rolls them from " +
			"outside."
	}
	return "Neither the pod template nor a running pod has Quorate: no container has the flag " + toggle +
		", or runs `quorate sidecar`."
}

// permissions are those without which no pod is removed. deploy/base/role.yaml says what each is for.
func permissions(set string) []authorizationv1.ResourceAttributes {
	pod, lease := set+"-0", record.Name(set)
	return []authorizationv1.ResourceAttributes{
		{Verb: "get", Group: "apps", Resource: "statefulsets", Name: set},
		{Verb: "watch", Group: "apps", Resource: "statefulsets", Name: set},
		{Verb: "list", Resource: "pods"},
		{Verb: "delete", Resource: "pods", Name: pod},
		{Verb: "patch", Resource: "pods", Name: pod},
		{Verb: "create", Resource: "pods", Subresource: "eviction", Name: pod},
		{Verb: "get", Group: "coordination.k8s.io", Resource: "leases", Name: lease},
		{Verb: "patch", Group: "coordination.k8s.io", Resource: "leases", Name: lease},
		{Verb: "create", Group: "coordination.k8s.io", Resource: "leases"},
	}
}

func inWords(p authorizationv1.ResourceAttributes) string {
	text := p.Verb + " " + p.Resource
	if p.Subresource != "" {
		text += "/" + p.Subresource
	}
	if p.Name != "" {
		text += " " + p.Name
	}
	return text
}

// reviews ask the API server's authorizer. Few people may do that: whoever may not learns less.
type reviews interface {
	Create(ctx context.Context, review *authorizationv1.LocalSubjectAccessReview,
		options metav1.CreateOptions) (*authorizationv1.LocalSubjectAccessReview, error)
}

func refusedBy(api reviews) refused {
	return func(ctx context.Context, account string, what authorizationv1.ResourceAttributes) (bool, error) {
		answer, err := api.Create(ctx, &authorizationv1.LocalSubjectAccessReview{
			ObjectMeta: metav1.ObjectMeta{Namespace: what.Namespace},
			Spec: authorizationv1.SubjectAccessReviewSpec{
				User: "system:serviceaccount:" + what.Namespace + ":" + account, ResourceAttributes: &what,
				Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + what.Namespace,
					"system:authenticated"},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			return false, err
		}
		return !answer.Status.Allowed, nil
	}
}
