package harness

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// OptInAnnotation in an Etcd's spec.annotations, and so on its pod template, opts in to what deploy/druid
// sets.
const OptInAnnotation = "quorate.dev/quorum-aware-pod-updates"

// policyKinds are the kinds of deploy/druid, by how the API's paths call them.
var policyKinds = map[string]string{
	"MutatingAdmissionPolicy":          "mutatingadmissionpolicies",
	"MutatingAdmissionPolicyBinding":   "mutatingadmissionpolicybindings",
	"ValidatingAdmissionPolicy":        "validatingadmissionpolicies",
	"ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}

// InstallPolicy installs deploy/druid in the whole cluster, and waits until the API server applies it. It
// may be called by several tests, because it changes nothing but the StatefulSets that opt in.
func (e *Env) InstallPolicy(ctx context.Context) error {
	built, err := manifests("druid")
	if err != nil {
		return err
	}
	for _, resource := range built.Resources() {
		data, err := resource.MarshalJSON()
		if err != nil {
			return err
		}
		err = e.Client.AdmissionregistrationV1().RESTClient().Post().Resource(policyKinds[resource.GetKind()]).
			Param("fieldValidation", metav1.FieldValidationStrict).SetHeader("Content-Type", "application/json").
			Body(data).Do(ctx).Error()
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create the %s of deploy/druid: %w", resource.GetKind(), err)
		}
	}
	return e.awaitPolicy(ctx)
}

// awaitPolicy waits until both policies are applied to a StatefulSet that opts in.
func (e *Env) awaitPolicy(ctx context.Context) error {
	labels := map[string]string{"app.kubernetes.io/managed-by": "etcd-druid"}
	probe := func(image string) *appsv1.StatefulSet {
		return &appsv1.StatefulSet{
			ObjectMeta: metav1.ObjectMeta{Name: "policy-probe", Namespace: Namespace, Labels: labels},
			Spec: appsv1.StatefulSetSpec{
				Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels,
						Annotations: map[string]string{OptInAnnotation: "true"}},
					Spec: corev1.PodSpec{Containers: []corev1.Container{
						{Name: "backup-restore", Image: image, Args: []string{"server"}},
					}},
				},
			},
		}
	}
	sets, dryRun := e.Client.AppsV1().StatefulSets(Namespace), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	return waitFor(ctx, "deploy/druid is in force", func(ctx context.Context) (bool, string) {
		if _, err := sets.Create(ctx, probe("other"), dryRun); err == nil {
			return false, "a sidecar without Quorate passes"
		}
		set, err := sets.Create(ctx, probe("quorate"), dryRun)
		if err != nil {
			return false, err.Error()
		}
		return set.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType,
			string(set.Spec.UpdateStrategy.Type)
	})
}

// WaitEtcdError waits until etcd-druid has written an error to the Etcd that has all of these words.
func (c *Cluster) WaitEtcdError(ctx context.Context, words ...string) error {
	return waitFor(ctx, fmt.Sprintf("the Etcd %s tells of %q", c.Spec.Name, words),
		func(ctx context.Context) (bool, string) {
			etcd, err := c.Etcd(ctx)
			if err != nil {
				return false, err.Error()
			}
			told, _, _ := unstructured.NestedSlice(etcd.Object, "status", "lastErrors")
			text := fmt.Sprint(told)
			return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) }), text
		})
}
