package main

import (
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate/quorate/internal/adoption"
	"github.com/quorate/quorate/internal/workload"
)

// refused returns an error if it cannot be asked.
type refused func(ctx context.Context, account string, what authorizationv1.ResourceAttributes) (bool, error)

// unattended says what to do about a rollout that nobody carries out, if Kubernetes shows why. It looks in
// the order in which things have to be there.
func unattended(ctx context.Context, dump *workload.Dump, names workload.Names, is refused) string {
	set := &dump.StatefulSets[0]
	template := &set.Spec.Template
	here := adoption.QuorateIn(&template.Spec)
	switch {
	case set.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType:
	case here != nil:
		return "Quorate is in the pod template, and only looks on. For it to roll the pods, set updateStrategy: " +
			"{type: OnDelete}. For an Etcd of etcd-druid, the policy of deploy/druid does that."
	case template.Annotations[adoption.OptIn] == "true":
		return "The Etcd opts in to Quorate, and nobody has acted on that. Apply deploy/druid, and let etcd-druid " +
			"reconcile the Etcd."
	default:
		return ""
	}
	if here != nil {
		if wrong := adoption.Misled(here, set); wrong != "" {
			return wrong
		}
	}
	account := adoption.AccountOf(&template.Spec)
	var missing []string
	for _, need := range adoption.Needs(set.Namespace, set.Name, set.Name+"-0") {
		if need.Without != "" {
			continue
		}
		no, err := is(ctx, account, need.ResourceAttributes)
		if err != nil {
			break // Few people may ask.
		}
		if no {
			missing = append(missing, need.String())
		}
	}
	if len(missing) > 0 {
		return fmt.Sprintf("The sidecars lack permissions: their ServiceAccount %s may not %s. Apply deploy/base, "+
			"or for an Etcd of etcd-druid deploy/druid/access.", account, strings.Join(missing, ", "))
	}
	_, none := adoption.Without(dump, set, names)
	switch {
	case !none:
		return ""
	case here != nil:
		return "No running pod has Quorate yet. Start the Job of deploy/bootstrap-job.yaml, which rolls them from " +
			"outside."
	}
	return "Neither the pod template nor a running pod has Quorate: no container has the flag " + adoption.Toggle +
		", or runs `quorate sidecar`."
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
