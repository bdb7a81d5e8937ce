package adoption

import (
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/quorate/quorate/internal/record"
)

// Need is a right that the sidecars' ServiceAccount uses. deploy/base/role.yaml grants each, and says what it is for.
type Need struct {
	authorizationv1.ResourceAttributes
	// Without says what is lost without it. It is empty where no pod would be removed.
	Without string
}

// String is the right as people say it, with the name that it is limited to.
func (n Need) String() string {
	text := n.Verb + " " + n.Resource
	if n.Subresource != "" {
		text += "/" + n.Subresource
	}
	if n.Name != "" {
		text += " " + n.Name
	}
	return text
}

// Needs are all of them, for the pods that are named. A Role names its objects wherever RBAC allows that, so each is
// asked for by the name under which it is used.
func Needs(namespace, set string, pods ...string) []Need {
	const lease, budgets = "coordination.k8s.io", "policy"
	needs := []Need{
		{ResourceAttributes: of("get", "apps", "statefulsets", set)},
		{ResourceAttributes: of("watch", "apps", "statefulsets", set)},
		{ResourceAttributes: of("list", "", "pods", "")},
		{of("watch", "", "pods", ""), "changes of a pod are seen late"},
	}
	for _, pod := range pods {
		eviction := of("create", "", "pods", pod)
		eviction.Subresource = "eviction"
		needs = append(needs, Need{ResourceAttributes: of("delete", "", "pods", pod)},
			Need{ResourceAttributes: of("patch", "", "pods", pod)}, Need{ResourceAttributes: eviction})
	}
	needs = append(needs,
		Need{of("get", budgets, "poddisruptionbudgets", set), "a single member holds where its budget refuses"},
		Need{of("watch", budgets, "poddisruptionbudgets", set), "each eviction is first asked for by a dry run"},
		Need{ResourceAttributes: of("get", lease, "leases", record.Name(set))},
		Need{ResourceAttributes: of("patch", lease, "leases", record.Name(set))},
		Need{of("watch", lease, "leases", record.Name(set)), "what an operator asks for is noticed only in a rollout"},
		Need{ResourceAttributes: of("create", lease, "leases", "")},
		Need{of("create", "", "events", ""), "no event tells what happened"},
		Need{of("patch", "", "events", ""), "an event that repeats is not counted"},
	)
	for i := range needs {
		needs[i].Namespace = namespace
	}
	return needs
}

func of(verb, group, resource, name string) authorizationv1.ResourceAttributes {
	return authorizationv1.ResourceAttributes{Verb: verb, Group: group, Resource: resource, Name: name}
}

// AccountOf is the name of the ServiceAccount that a pod runs as.
func AccountOf(spec *corev1.PodSpec) string {
	if spec.ServiceAccountName == "" {
		return "default"
	}
	return spec.ServiceAccountName
}

// AccountFor is the account as which the sidecars of a StatefulSet run, or are going to: that of the pod template.
// While that has no Quorate and names none, it is the one that deploy/sidecar-patch.yaml names, which is called like
// the StatefulSet.
func AccountFor(set *appsv1.StatefulSet) string {
	if spec := &set.Spec.Template.Spec; QuorateIn(spec) != nil || AccountOf(spec) != "default" {
		return AccountOf(spec)
	}
	return set.Name
}

// Access is what the API server's authorizer says of that account.
type Access struct {
	// Refused are the rights that it lacks.
	Refused []Need
	// Unknown says why nobody could ask, and is empty if somebody has.
	Unknown string
}
