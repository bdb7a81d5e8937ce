package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/quorate/quorate/test/harness/build"
	"github.com/quorate/quorate/test/harness/objects"
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

// guardName is the name of the guard's policy, and of its binding.
const guardName = "quorate-quorum-guard"

// InstallGuard installs deploy/components/quorum-guard in the whole cluster, and waits until the API server applies it
// to what is on a Lease. One that was removed is not in force again before the API server is restarted
// (kubernetes/kubernetes#130887).
func InstallGuard(ctx context.Context, config *rest.Config) error {
	root, err := build.Root()
	if err != nil {
		return err
	}
	manifest, err := os.ReadFile(filepath.Join(root, "deploy", "components", "quorum-guard", "policy.yaml"))
	if err != nil {
		return err
	}
	all, err := objects.Decode(manifest)
	if err != nil {
		return err
	}
	if err := objects.Create(ctx, config, "", all...); err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	leases := client.CoordinationV1().Leases(Namespace)
	_, err = leases.Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "quorate-guard-probe",
			Labels:      map[string]string{"app.kubernetes.io/managed-by": "quorate"},
			Annotations: map[string]string{"quorate.dev/needed": `{"epoch":1,"pods":{"guard-probe-0":"none"}}`}},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: new("probe"), LeaseTransitions: new(int32(1))},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	err = waitFor(ctx, "the policy "+guardName+" is in force", func(ctx context.Context) (bool, string) {
		// An eviction is refused before anybody looks for the pod.
		err := client.PolicyV1().Evictions(Namespace).Evict(ctx, &policyv1.Eviction{
			ObjectMeta:    metav1.ObjectMeta{Name: "guard-probe-0", Namespace: Namespace},
			DeleteOptions: &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}},
		})
		return apierrors.IsForbidden(err), fmt.Sprint(err)
	})
	return errors.Join(err, leases.Delete(context.WithoutCancel(ctx), "quorate-guard-probe", metav1.DeleteOptions{}))
}

// TypeWarnings are what Kubernetes says of the types in each ValidatingAdmissionPolicy of a manifest. These are the
// warnings that the policy gets itself. And Kubernetes is asked about what it leaves out: the variables, the
// conditions, and what is behind a dyn() in the validations. Each of these has to fit at least one of the kinds that
// are matched. Nothing is bound to the policies meanwhile, so they apply to nothing.
func (e *Env) TypeWarnings(ctx context.Context, manifest []byte) (warnings []string, err error) {
	all, err := objects.Decode(manifest)
	if err != nil {
		return nil, err
	}
	checked := 0
	for _, o := range all {
		if o.GetKind() != "ValidatingAdmissionPolicy" {
			continue
		}
		checked++
		policy := &admissionregistrationv1.ValidatingAdmissionPolicy{}
		convert := runtime.DefaultUnstructuredConverter
		if err := convert.FromUnstructuredWithValidation(o.Object, policy, true); err != nil {
			return nil, err
		}
		status, err := e.typeChecked(ctx, policy)
		if err != nil {
			return nil, err
		}
		for _, w := range status {
			warnings = append(warnings, fmt.Sprintf("%s: %s: %s", policy.Name, w.FieldRef, w.Warning))
		}
		strict, fields := strictly(policy)
		status, err = e.typeChecked(ctx, strict)
		if err != nil {
			return nil, err
		}
		kinds := func(w admissionregistrationv1.ExpressionWarning) int { return strings.Count(w.Warning, "Kind=") }
		if len(status) == 0 || kinds(status[len(status)-1]) == 0 {
			return nil, fmt.Errorf("the policy %s has no kind for which Kubernetes checks its types", policy.Name)
		}
		last := len(status) - 1 // Which does not fit anything.
		for _, w := range status[:last] {
			if kinds(w) == kinds(status[last]) {
				warnings = append(warnings, fmt.Sprintf("%s: %s fits no kind: %s", policy.Name, fields[w.FieldRef],
					w.Warning))
			}
		}
	}
	if checked == 0 {
		return nil, errors.New("there is no ValidatingAdmissionPolicy in the manifest")
	}
	return warnings, nil
}

// strictly returns the policy with everything that it evaluates as a validation, and what each of these is in the
// policy. The last one fits no kind.
func strictly(policy *admissionregistrationv1.ValidatingAdmissionPolicy) (
	strict *admissionregistrationv1.ValidatingAdmissionPolicy, fields map[string]string) {
	strict, fields = policy.DeepCopy(), map[string]string{}
	strict.Name += "-strict"
	strict.Spec.Validations = nil
	add := func(field, expression string) {
		fields[fmt.Sprintf("spec.validations[%d].expression", len(strict.Spec.Validations))] = field
		strict.Spec.Validations = append(strict.Spec.Validations,
			admissionregistrationv1.Validation{Expression: expression})
	}
	for i, v := range policy.Spec.Validations {
		add(fmt.Sprintf("spec.validations[%d]", i),
			strings.NewReplacer("dyn(object)", "object", "dyn(oldObject)", "oldObject").Replace(v.Expression))
	}
	for _, v := range policy.Spec.Variables {
		add("the variable "+v.Name, "["+v.Expression+"].size() == 1") // A validation has to be true or false.
	}
	for _, c := range policy.Spec.MatchConditions {
		add("the condition "+c.Name, c.Expression)
	}
	add("", "object.thereIsNoSuchField == oldObject.thereIsNoSuchField")
	return strict, fields
}

// typeChecked creates a policy under another name, and returns what Kubernetes says of its types.
func (e *Env) typeChecked(ctx context.Context, policy *admissionregistrationv1.ValidatingAdmissionPolicy) (
	warnings []admissionregistrationv1.ExpressionWarning, err error) {
	policies := e.Client.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	policy = policy.DeepCopy()
	policy.GenerateName, policy.Name = policy.Name+"-", ""
	if policy, err = policies.Create(ctx, policy, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	defer func() {
		err = errors.Join(err, policies.Delete(context.WithoutCancel(ctx), policy.Name, metav1.DeleteOptions{}))
	}()
	err = waitFor(ctx, "Kubernetes has checked the types of the policy "+policy.Name,
		func(ctx context.Context) (bool, string) {
			seen, err := policies.Get(ctx, policy.Name, metav1.GetOptions{})
			if err != nil {
				return false, err.Error()
			}
			if seen.Status.ObservedGeneration != seen.Generation || seen.Status.TypeChecking == nil {
				return false, "it has no status of this generation"
			}
			warnings = seen.Status.TypeChecking.ExpressionWarnings
			return true, ""
		})
	return warnings, err
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
