package harness

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/quorate/quorate/test/harness/pki"
)

// Druid does for a cluster what etcd-druid does for one of its own. Its reconciler resets the
// StatefulSet's labels, annotations and spec, and the Role that it has made for the sidecars, no matter
// who changed them. Its admission webhook lets only itself and Kubernetes' own controllers update or
// delete the StatefulSet.
//
// As with etcd-druid, the webhook is not asked about the StatefulSet's status.
type Druid struct {
	// Client acts as the reconciler, which the webhook lets pass.
	Client kubernetes.Interface

	cluster *Cluster
	server  *http.Server
	serving chan struct{}
	stop    context.CancelFunc
	done    chan struct{}
	// look asks the reconciler to look now.
	look chan struct{}

	mu sync.Mutex
	// set and role are what it wants. resets is how often it found something else. denied has who was
	// refused what.
	set    *appsv1.StatefulSet
	role   *rbacv1.Role
	resets int
	denied []string
}

// druidEvery is how often the reconciler looks.
const druidEvery = 100 * time.Millisecond

func (c *Cluster) druidName() string { return c.Spec.Name + "-druid" }

// druidRole is the Role that etcd-druid makes for its sidecars. It has another name than ours.
func (c *Cluster) druidRole() *rbacv1.Role {
	all := []string{"get", "list", "patch", "update", "watch"}
	return &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: c.Spec.Name, Namespace: Namespace, Labels: c.Spec.labels()},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: all},
			{APIGroups: []string{"apps"}, Resources: []string{"statefulsets"}, Verbs: all},
			{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list", "watch"}},
		},
	}
}

// StartDruid puts the cluster under a druid that wants it as it is now, and waits until the webhook is
// asked. Stop it before the cluster is deleted.
func (c *Cluster) StartDruid(ctx context.Context) (d *Druid, err error) {
	d = &Druid{cluster: c, role: c.druidRole(), done: make(chan struct{}), serving: make(chan struct{}),
		look: make(chan struct{}, 1)}
	if err := c.createAccount(ctx, c.druidName(), []rbacv1.PolicyRule{
		{APIGroups: []string{"apps"}, Resources: []string{"statefulsets"}, Verbs: []string{"get", "update", "patch"}},
		{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"roles"},
			Verbs: []string{"get", "update", "escalate"}},
	}); err != nil {
		return nil, err
	}
	if d.Client, err = c.As(ctx, c.druidName()); err != nil {
		return nil, err
	}
	if d.set, err = c.env.Client.AppsV1().StatefulSets(Namespace).Get(ctx, c.Spec.Name,
		metav1.GetOptions{}); err != nil {
		return nil, err
	}
	roles, bindings := c.env.Client.RbacV1().Roles(Namespace), c.env.Client.RbacV1().RoleBindings(Namespace)
	if _, err = roles.Create(ctx, d.role, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	if _, err = bindings.Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: d.role.ObjectMeta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: d.role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: c.Spec.Name}},
	}, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	d.stop = stop
	go d.reconcile(running)
	if err := d.protect(ctx); err != nil {
		return nil, errors.Join(err, d.Stop(ctx))
	}
	return d, nil
}

// protect serves the webhook and registers it.
func (d *Druid) protect(ctx context.Context) error {
	ca, err := pki.NewCA(d.cluster.druidName())
	if err != nil {
		return err
	}
	address := d.cluster.env.Network.HubAddress()
	cert, key, err := ca.Issue(pki.Request{CommonName: d.cluster.druidName(), IPs: []net.IP{net.ParseIP(address)},
		Server: true})
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		return fmt.Errorf("listen for the webhook of %s: %w", d.cluster.druidName(), err)
	}
	d.server = &http.Server{
		Handler: http.HandlerFunc(d.review), ReadHeaderTimeout: 10 * time.Second, ErrorLog: log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
	}
	go func() {
		defer close(d.serving)
		_ = d.server.ServeTLS(listener, "", "") // It ends when Stop closes it.
	}()
	url := "https://" + listener.Addr().String()
	fail, none := admissionregistrationv1.Fail, admissionregistrationv1.SideEffectClassNone
	_, err = d.webhooks().Create(ctx, &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: d.cluster.druidName()},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name:         "etcdcomponents.webhooks.druid.example",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: ca.CertPEM()},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Update,
					admissionregistrationv1.Delete},
				Rule: admissionregistrationv1.Rule{
					APIGroups: []string{"apps"}, APIVersions: []string{"v1"},
					Resources: []string{"statefulsets", "statefulsets/scale"},
				},
			}},
			// Other clusters may share the namespace.
			MatchConditions: []admissionregistrationv1.MatchCondition{{
				Name: "this-cluster", Expression: fmt.Sprintf("request.namespace == %q && request.name == %q",
					Namespace, d.cluster.Spec.Name),
			}},
			FailurePolicy: &fail, SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("register the webhook of %s: %w", d.cluster.druidName(), err)
	}
	return d.awaitWebhook(ctx, true)
}

func (d *Druid) webhooks() interface {
	Create(context.Context, *admissionregistrationv1.ValidatingWebhookConfiguration,
		metav1.CreateOptions) (*admissionregistrationv1.ValidatingWebhookConfiguration, error)
	Delete(context.Context, string, metav1.DeleteOptions) error
} {
	return d.cluster.env.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
}

// awaitWebhook waits until the API server asks the webhook, or no longer asks it.
func (d *Druid) awaitWebhook(ctx context.Context, asked bool) error {
	sets := d.cluster.env.Client.AppsV1().StatefulSets(Namespace)
	return waitFor(ctx, fmt.Sprintf("the webhook of %s is asked: %t", d.cluster.Spec.Name, asked),
		func(ctx context.Context) (bool, string) {
			_, err := sets.Patch(ctx, d.cluster.Spec.Name, types.MergePatchType,
				[]byte(`{"metadata":{"annotations":{"probe":"webhook"}}}`),
				metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
			switch {
			case err == nil:
				return !asked, "let pass"
			case strings.Contains(err.Error(), druidSays):
				return asked, "denied"
			}
			return false, err.Error()
		})
}

// druidSays is what the webhook answers when it refuses.
const druidSays = "are disallowed: the reconciler owns this StatefulSet"

// review answers one question of the API server.
func (d *Druid) review(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 4<<20)).Decode(&review); err != nil ||
		review.Request == nil {
		http.Error(w, "not an AdmissionReview", http.StatusBadRequest)
		return
	}
	asked := review.Request
	user := asked.UserInfo.Username
	allowed := user == serviceAccountUser(d.cluster.druidName()) ||
		strings.HasPrefix(user, "system:serviceaccount:kube-system:")
	review.Response = &admissionv1.AdmissionResponse{UID: asked.UID, Allowed: allowed}
	if !allowed {
		review.Response.Result = &metav1.Status{Code: http.StatusForbidden,
			Message: fmt.Sprintf("changes from %s %s", user, druidSays)}
		if asked.DryRun == nil || !*asked.DryRun {
			d.mu.Lock()
			d.denied = append(d.denied, user)
			d.mu.Unlock()
		}
	}
	review.Request = nil
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review) // A client that is gone needs no answer.
}

func serviceAccountUser(name string) string { return "system:serviceaccount:" + Namespace + ":" + name }

// reconcile resets what differs from what is wanted, until ctx ends.
func (d *Druid) reconcile(ctx context.Context) {
	defer close(d.done)
	ticker := time.NewTicker(druidEvery)
	defer ticker.Stop()
	for {
		d.reset(ctx, "StatefulSet", d.resetSet)
		d.reset(ctx, "Role", d.resetRole)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-d.look:
		}
	}
}

// reset writes the outcome to the timeline. A failure is tried again at the next look.
func (d *Druid) reset(ctx context.Context, what string, reset func(context.Context) (bool, error)) {
	changed, err := reset(ctx)
	switch {
	case changed:
		d.cluster.env.Timeline.Note("druid", "reset the %s", what)
	case err != nil && ctx.Err() == nil:
		d.cluster.env.Timeline.Note("druid", "cannot reset the %s: %v", what, err)
	}
}

func (d *Druid) resetSet(ctx context.Context) (bool, error) {
	sets := d.Client.AppsV1().StatefulSets(Namespace)
	set, err := sets.Get(ctx, d.cluster.Spec.Name, metav1.GetOptions{})
	if err != nil || d.wants(set) {
		return false, err
	}
	d.mu.Lock()
	set.Labels, set.Annotations, set.Spec = d.set.Labels, d.set.Annotations, *d.set.Spec.DeepCopy()
	d.mu.Unlock()
	if _, err = sets.Update(ctx, set, metav1.UpdateOptions{}); err != nil {
		return false, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.resets++
	return true, nil
}

// wants reports whether the StatefulSet is as it should be.
func (d *Druid) wants(set *appsv1.StatefulSet) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return apiequality.Semantic.DeepEqual(set.Labels, d.set.Labels) &&
		apiequality.Semantic.DeepEqual(set.Annotations, d.set.Annotations) &&
		apiequality.Semantic.DeepEqual(set.Spec, d.set.Spec)
}

func (d *Druid) resetRole(ctx context.Context) (bool, error) {
	roles := d.Client.RbacV1().Roles(Namespace)
	role, err := roles.Get(ctx, d.role.Name, metav1.GetOptions{})
	if err != nil || apiequality.Semantic.DeepEqual(role.Rules, d.role.Rules) {
		return false, err
	}
	role.Rules = d.role.Rules
	_, err = roles.Update(ctx, role, metav1.UpdateOptions{})
	return err == nil, err
}

// Change changes what the reconciler wants, as a change of the Etcd resource does.
func (d *Druid) Change(why string, change func(*appsv1.StatefulSet)) {
	d.cluster.env.Timeline.Note("operator", "%s, through the druid", why)
	d.mu.Lock()
	set := d.set.DeepCopy()
	change(set)
	d.set = set
	d.mu.Unlock()
	select {
	case d.look <- struct{}{}:
	default: // It looks already.
	}
}

// WaitReset waits until the StatefulSet and the druid's Role are as the reconciler wants
// them.
func (d *Druid) WaitReset(ctx context.Context) error {
	return waitFor(ctx, "the druid has reset what is its own", func(ctx context.Context) (bool, string) {
		set, err := d.Client.AppsV1().StatefulSets(Namespace).Get(ctx, d.cluster.Spec.Name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		role, err := d.Client.RbacV1().Roles(Namespace).Get(ctx, d.role.Name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		return d.wants(set) && apiequality.Semantic.DeepEqual(role.Rules, d.role.Rules),
			fmt.Sprint(set.Annotations, role.Rules)
	})
}

// RoleName is the name of the Role that the druid owns.
func (d *Druid) RoleName() string { return d.role.Name }

// Resets is how often the reconciler has found the StatefulSet different from what it wants.
func (d *Druid) Resets() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.resets
}

// Denied are the users whose changes the webhook has refused.
func (d *Druid) Denied() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.denied)
}

// Stop ends the reconciler, and the webhook once it is no longer asked.
func (d *Druid) Stop(ctx context.Context) error {
	d.stop()
	<-d.done
	if d.server == nil {
		return nil
	}
	err := d.webhooks().Delete(ctx, d.cluster.druidName(), metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		err = nil
	}
	if err == nil {
		err = d.awaitWebhook(ctx, false)
	}
	err = errors.Join(err, d.server.Close())
	<-d.serving
	return err
}
