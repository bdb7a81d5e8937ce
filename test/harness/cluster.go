package harness

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"github.com/quorate/quorate/test/harness/objects"
	"github.com/quorate/quorate/test/harness/pki"
	"github.com/quorate/quorate/test/harness/traffic"
)

// Cluster is an etcd cluster in an Env.
type Cluster struct {
	// Spec is what the cluster was created with.
	Spec Spec
	env  *Env
	tls  *tls.Config
	// etcds has the Etcd of a cluster that etcd-druid owns. It is nil for any other.
	etcds dynamic.ResourceInterface
	// lost are the nodes that have been lost, by the pods that they were lost for.
	lost sync.Map
	// replicas is the current number of replicas.
	replicas atomic.Int32
	// beside are the pods of sidecars that run beside the members.
	beside []string
	// login is set once authentication is on.
	login atomic.Pointer[login]
}

// CreateCluster creates the StatefulSet and everything that belongs to it: the ServiceAccount and the
// Role that Quorate ships (except with [Spec.Bare]), certificates, services and a PodDisruptionBudget.
// It does not wait for the pods.
func (e *Env) CreateCluster(ctx context.Context, s Spec) (*Cluster, error) {
	s = s.complete()
	c := &Cluster{Spec: s, env: e}
	c.replicas.Store(int32(s.Replicas))
	if err := e.room(ctx, s, s.Replicas); err != nil {
		return nil, err
	}
	if s.OwnNodes {
		if err := e.ownNodes(ctx, s); err != nil {
			return nil, err
		}
	}
	secrets, ca, err := e.certificates(s)
	if err != nil {
		return nil, fmt.Errorf("certificates of %s: %w", s.Name, err)
	}
	if !s.PlainText {
		if c.tls, err = clientTLS(ca, secrets); err != nil {
			return nil, err
		}
	}
	if s.Manifest != "" {
		return c, e.createManifest(ctx, c)
	}
	core := e.Client.CoreV1()
	meta := func(suffix string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: s.Name + suffix, Namespace: Namespace}
	}
	create := metav1.CreateOptions{}
	var errs []error
	try := func(err error) { errs = append(errs, err) }

	given := []*corev1.Secret{{ObjectMeta: meta("-tls"), Data: secrets}}
	if s.Bare {
		given = append(given, s.clientSecrets(secrets)...)
	} else {
		try(e.grant(ctx, s))
	}
	for _, secret := range given {
		_, err = core.Secrets(Namespace).Create(ctx, secret, create)
		try(err)
	}
	_, err = core.ConfigMaps(Namespace).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: meta("-kube"),
		Data:       map[string]string{"kubeconfig": e.kubeconfig(), "ca.crt": string(e.API.CAPEM())},
	}, create)
	try(err)
	for _, svc := range e.services(s) {
		_, err = core.Services(Namespace).Create(ctx, svc, create)
		try(err)
	}
	_, err = e.Client.PolicyV1().PodDisruptionBudgets(Namespace).Create(ctx, s.disruptionBudget(), create)
	try(err)
	_, err = e.Client.AppsV1().StatefulSets(Namespace).Create(ctx, e.statefulSet(s), create)
	try(err)
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("create cluster %s: %w", s.Name, err)
	}
	e.Timeline.Note("harness", "created StatefulSet %s: %d replicas, %s, %s, %s", s.Name, s.Replicas, s.EtcdImage,
		s.SidecarImage, s.Strategy)
	return c, nil
}

// createManifest creates a cluster from its manifest.
func (e *Env) createManifest(ctx context.Context, c *Cluster) error {
	all, err := objects.Decode([]byte(c.Spec.Manifest))
	if err != nil {
		return fmt.Errorf("the manifest of %s: %w", c.Spec.Name, err)
	}
	for _, o := range all {
		if o.GetKind() == "StatefulSet" && o.GetName() == c.Spec.Name {
			c.Spec.selector, _, err = unstructured.NestedStringMap(o.Object, "spec", "selector", "matchLabels")
		}
	}
	if len(c.Spec.selector) == 0 {
		return fmt.Errorf("the manifest has no StatefulSet %s that selects its pods by labels: %w", c.Spec.Name, err)
	}
	if err := e.grant(ctx, c.Spec); err != nil {
		return fmt.Errorf("create cluster %s: %w", c.Spec.Name, err)
	}
	if err := objects.Create(ctx, e.Plane.AdminConfig(), Namespace, all...); err != nil {
		return fmt.Errorf("create cluster %s: %w", c.Spec.Name, err)
	}
	e.Timeline.Note("harness", "created the manifest of StatefulSet %s: %d replicas", c.Spec.Name, c.Spec.Replicas)
	return nil
}

// grant applies exactly the ServiceAccount, Roles and bindings that Quorate ships, renamed for the
// cluster.
func (e *Env) grant(ctx context.Context, s Spec) error {
	shipped, err := access(s.Name, s.Components...)
	if err != nil {
		return err
	}
	rbac, create := e.Client.RbacV1(), metav1.CreateOptions{}
	if shipped.account != nil {
		if _, err := e.Client.CoreV1().ServiceAccounts(Namespace).Create(ctx, shipped.account, create); err != nil {
			return err
		}
	}
	_, rerr := rbac.Roles(Namespace).Create(ctx, shipped.role, create)
	_, berr := rbac.RoleBindings(Namespace).Create(ctx, shipped.binding, create)
	errs := []error{rerr, berr}
	if shipped.clusterRole != nil {
		_, rerr = rbac.ClusterRoles().Create(ctx, shipped.clusterRole, create)
		_, berr = rbac.ClusterRoleBindings().Create(ctx, shipped.clusterBinding, create)
		errs = append(errs, rerr, berr)
	}
	if shipped.policy != nil {
		errs = append(errs, e.limit(ctx, s, shipped))
	}
	return errors.Join(errs...)
}

// limit applies the policy that Quorate ships for the sidecars, and waits until it is in force.
func (e *Env) limit(ctx context.Context, s Spec, shipped *rights) error {
	admission := e.Client.AdmissionregistrationV1()
	create := metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}
	_, perr := admission.ValidatingAdmissionPolicies().Create(ctx, shipped.policy, create)
	_, berr := admission.ValidatingAdmissionPolicyBindings().Create(ctx, shipped.policyBinding, create)
	if err := errors.Join(perr, berr); err != nil {
		return err
	}
	config := e.Plane.AdminConfig()
	config.Impersonate = rest.ImpersonationConfig{UserName: serviceAccountUser(s.Name)}
	sidecar, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	another := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "policy-probe"}}
	return waitFor(ctx, "the policy "+shipped.policy.Name+" is in force", func(ctx context.Context) (bool, string) {
		_, err := sidecar.CoordinationV1().Leases(Namespace).Create(ctx, another,
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil && strings.Contains(err.Error(), shipped.policy.Name), fmt.Sprint(err)
	})
}

func clientTLS(ca *pki.CA, secrets map[string][]byte) (*tls.Config, error) {
	pair, err := tls.X509KeyPair(secrets["client.crt"], secrets["client.key"])
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca.CertPEM())
	return &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, nil
}

// Pods are the names of the cluster's pods, lowest ordinal first.
func (c *Cluster) Pods() []string {
	names := make([]string, c.replicas.Load())
	for n := range names {
		names[n] = c.Spec.podName(n)
	}
	return names
}

// Endpoint is a member's client URL as the harness reaches it.
func (c *Cluster) Endpoint(pod string) string {
	return fmt.Sprintf("%s://%s:%d", c.Spec.scheme(), c.reach(pod), c.env.ports.client)
}

// reach is where the harness reaches a pod: at an address that belongs to the pod's name, or by the name on real nodes,
// which have no such address.
func (c *Cluster) reach(pod string) string {
	if c.env.real() {
		return c.env.host(c.Spec, pod)
	}
	return c.env.Network.AddressOf(Namespace, pod)
}

// Endpoints are the client URLs of all members.
func (c *Cluster) Endpoints() []string {
	var urls []string
	for _, pod := range c.Pods() {
		urls = append(urls, c.Endpoint(pod))
	}
	return urls
}

// Dial opens an etcd client to one member.
func (c *Cluster) Dial(pod string) (*clientv3.Client, error) {
	return c.client(c.Endpoint(pod))
}

// client opens an etcd client.
func (c *Cluster) client(endpoints ...string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: endpoints, TLS: c.tls, DialTimeout: 5 * time.Second,
		Username: c.user(), Password: c.user(), Logger: zap.NewNop()})
}

const (
	// poll is how often the waits below look.
	poll = 100 * time.Millisecond
	// leaderPoll is shorter than the time between two actions of a coordinator.
	leaderPoll = 5 * time.Millisecond
)

// waitFor waits until done says so. If the time runs out, the error has what done said last, and why
// the time ran out.
func waitFor(ctx context.Context, what string, done func(context.Context) (ok bool, state string)) error {
	state := "nothing"
	err := wait.PollUntilContextCancel(ctx, poll, true, func(ctx context.Context) (bool, error) {
		ok, now := done(ctx)
		if ctx.Err() == nil { // A look that was cut short says only that it was.
			state = now
		}
		return ok, nil
	})
	if err != nil {
		return fmt.Errorf("wait until %s (last seen: %s): %w", what, state, context.Cause(ctx))
	}
	return nil
}

// WaitReady waits until every pod exists and is Ready.
func (c *Cluster) WaitReady(ctx context.Context) error {
	return c.waitPods(ctx, "all pods of "+c.Spec.Name+" are Ready", metav1.ListOptions{},
		func(*appsv1.StatefulSet, *corev1.Pod) bool { return true })
}

// WaitUpdated waits until every pod is Ready at the StatefulSet's update revision. It asks for the pods as the API
// server has them in its cache. To make sure that the cache is up to date, the API server asks etcd ten times a second
// at most, for whoever lists pods. So whoever polls for the newest state keeps the coordinator's own lists waiting,
// and makes a rollout take longer.
func (c *Cluster) WaitUpdated(ctx context.Context) error {
	known := metav1.ListOptions{ResourceVersion: "0"}
	return c.waitPods(ctx, "all pods of "+c.Spec.Name+" are updated and Ready", known,
		func(set *appsv1.StatefulSet, p *corev1.Pod) bool {
			return set.Status.ObservedGeneration >= set.Generation && Revision(p) == set.Status.UpdateRevision
		})
}

// WaitObserved waits until the StatefulSet controller has seen the newest template. Until then nobody can know which
// pods are outdated.
func (c *Cluster) WaitObserved(ctx context.Context) error {
	what := "the controller has seen the template of " + c.Spec.Name
	return waitFor(ctx, what, func(ctx context.Context) (bool, string) {
		set, err := c.env.Client.AppsV1().StatefulSets(Namespace).Get(ctx, c.Spec.Name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		return set.Status.ObservedGeneration >= set.Generation,
			fmt.Sprintf("generation %d of %d", set.Status.ObservedGeneration, set.Generation)
	})
}

func (c *Cluster) waitPods(ctx context.Context, what string, how metav1.ListOptions,
	updated func(*appsv1.StatefulSet, *corev1.Pod) bool) error {
	return waitFor(ctx, what, func(ctx context.Context) (bool, string) {
		set, err := c.env.Client.AppsV1().StatefulSets(Namespace).Get(ctx, c.Spec.Name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		pods, err := c.listPods(ctx, how)
		if err != nil {
			return false, err.Error()
		}
		lacks := map[string]string{}
		for n := range int(*set.Spec.Replicas) {
			lacks[c.Spec.podName(n)] = "missing"
		}
		good := 0
		for i := range pods {
			p := &pods[i]
			lack := unready(p)
			if lack == "" && !updated(set, p) {
				lack = "not updated"
			}
			if lacks[p.Name] = lack; lack == "" {
				good++
			}
		}
		state := fmt.Sprintf("%d of %d", good, *set.Spec.Replicas)
		for _, name := range slices.Sorted(maps.Keys(lacks)) {
			if lacks[name] != "" {
				state += ", " + name + " " + lacks[name]
			}
		}
		return good == int(*set.Spec.Replicas), state
	})
}

// unready is why a pod is not Ready, in a few words. It is empty if the pod is Ready.
func unready(p *corev1.Pod) string {
	switch {
	case p.DeletionTimestamp != nil:
		return "terminating"
	case IsReady(p):
		return ""
	}
	for _, status := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if w := status.State.Waiting; w != nil {
			return fmt.Sprintf("not Ready (%s: %s)", status.Name, w.Reason)
		}
	}
	return "not Ready"
}

// ListPods reads the cluster's pods.
func (c *Cluster) ListPods(ctx context.Context) ([]corev1.Pod, error) {
	return c.listPods(ctx, metav1.ListOptions{})
}

func (c *Cluster) listPods(ctx context.Context, how metav1.ListOptions) ([]corev1.Pod, error) {
	how.LabelSelector = labelSelector(c.Spec)
	list, err := c.env.Client.CoreV1().Pods(Namespace).List(ctx, how)
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

func labelSelector(s Spec) string {
	return metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: s.labels()})
}

// IsReady is the pod's Ready condition.
func IsReady(p *corev1.Pod) bool {
	for _, cond := range p.Status.Conditions {
		if cond.Type == corev1.PodReady {
			return cond.Status == corev1.ConditionTrue
		}
	}
	return false
}

// Revision is the pod's revision.
func Revision(p *corev1.Pod) string { return p.Labels[appsv1.ControllerRevisionHashLabelKey] }

// Update changes the StatefulSet, as etcd-druid would.
func (c *Cluster) Update(ctx context.Context, why string, change func(*appsv1.StatefulSet)) error {
	c.env.Timeline.Note("operator", "%s", why)
	sets := c.env.Client.AppsV1().StatefulSets(Namespace)
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		set, err := sets.Get(ctx, c.Spec.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(set)
		_, err = sets.Update(ctx, set, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("%s: %w", why, err)
	}
	return nil
}

// Template reads the pod template.
func (c *Cluster) Template(ctx context.Context) (*corev1.PodTemplateSpec, error) {
	set, err := c.env.Client.AppsV1().StatefulSets(Namespace).Get(ctx, c.Spec.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return &set.Spec.Template, nil
}

// SetImage changes the image of a container.
func (c *Cluster) SetImage(ctx context.Context, container, image string) error {
	return c.Update(ctx, "set the image of "+container+" to "+image, func(set *appsv1.StatefulSet) {
		for i := range set.Spec.Template.Spec.Containers {
			if set.Spec.Template.Spec.Containers[i].Name == container {
				set.Spec.Template.Spec.Containers[i].Image = image
			}
		}
	})
}

// SetStrategy changes the update strategy.
func (c *Cluster) SetStrategy(ctx context.Context, t appsv1.StatefulSetUpdateStrategyType) error {
	return c.Update(ctx, "set the update strategy to "+string(t), func(set *appsv1.StatefulSet) {
		set.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: t}
	})
}

// Leader returns the pod whose member leads, once one does.
func (c *Cluster) Leader(ctx context.Context) (string, error) {
	leader := ""
	err := waitFor(ctx, "a member of "+c.Spec.Name+" leads", func(ctx context.Context) (bool, string) {
		for _, pod := range c.Pods() {
			ok, err := c.leads(ctx, pod)
			if err == nil && ok {
				leader = pod
				return true, ""
			}
		}
		return false, "none leads"
	})
	return leader, err
}

func (c *Cluster) leads(ctx context.Context, pod string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	client, err := c.Dial(pod)
	if err != nil {
		return false, err
	}
	defer client.Close()
	st, err := client.Status(ctx, c.Endpoint(pod))
	if err != nil {
		return false, err
	}
	return st.Leader == st.Header.MemberId, nil
}

// WaitLeaderOtherThan waits until another member leads, and returns within milliseconds of that. The
// pod's own member must answer.
func (c *Cluster) WaitLeaderOtherThan(ctx context.Context, pod string) error {
	client, err := c.Dial(pod)
	if err != nil {
		return err
	}
	defer client.Close()
	ticker := time.NewTicker(leaderPoll)
	defer ticker.Stop()
	for {
		st, err := client.Status(ctx, c.Endpoint(pod))
		if err == nil && st.Leader != 0 && st.Leader != st.Header.MemberId {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("wait until another member than that of %s leads: %w", pod, context.Cause(ctx))
		}
	}
}

// MoveLeader makes the pod's member lead.
func (c *Cluster) MoveLeader(ctx context.Context, to string) error {
	from, err := c.Leader(ctx)
	if err != nil || from == to {
		return err
	}
	next, err := c.Dial(to)
	if err != nil {
		return err
	}
	defer next.Close()
	st, err := next.Status(ctx, c.Endpoint(to))
	if err != nil {
		return err
	}
	leader, err := c.Dial(from)
	if err != nil {
		return err
	}
	defer leader.Close()
	if _, err := leader.MoveLeader(ctx, st.Header.MemberId); err != nil {
		return fmt.Errorf("move leadership from %s to %s: %w", from, to, err)
	}
	return waitFor(ctx, to+" leads", func(ctx context.Context) (bool, string) {
		ok, err := c.leads(ctx, to)
		return ok, fmt.Sprint(err)
	})
}

// TrafficConfig is the configuration of a traffic client for this cluster.
func (c *Cluster) TrafficConfig() traffic.Config {
	return traffic.Config{Endpoints: c.Endpoints, TLS: c.tls, Username: c.user(), Password: c.user()}
}

// ObserverConfig is the configuration of a traffic observer for this cluster.
func (c *Cluster) ObserverConfig() traffic.ObserverConfig {
	return traffic.ObserverConfig{Endpoints: c.Endpoints, TLS: c.tls, Username: c.user(), Password: c.user()}
}
