package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/quorate/quorate/test/harness/build"
	"github.com/quorate/quorate/test/harness/druid"
	"github.com/quorate/quorate/test/harness/network"
	"github.com/quorate/quorate/test/harness/objects"
)

// StartDruid starts the real etcd-druid beside the control plane, and stops it when the environment is closed. The
// environment needs Options.Hosts and Namespaces.
func (e *Env) StartDruid(ctx context.Context) (*druid.Operator, error) {
	source, err := build.Source(ctx, build.Druid)
	if err != nil {
		return nil, err
	}
	attachment := network.Attachment{IP: e.Network.HubAddress()}
	if n, ok := e.Network.(network.Network); ok {
		place := network.Pod{Namespace: druid.Namespace, Name: "etcd-druid", UID: "etcd-druid"}
		if attachment, err = n.Attach(ctx, place); err != nil {
			return nil, err
		}
		e.onClose(func(ctx context.Context) error { return n.Detach(ctx, place) })
	}
	operator, err := druid.Start(ctx, druid.Config{
		Dir: filepath.Join(e.Dir, "etcd-druid"), Binary: e.Binaries.Druid, Source: source,
		Address: attachment.IP, Launcher: attachment.Launcher, Admin: e.Plane.AdminConfig(),
	})
	if err != nil {
		return nil, err
	}
	e.onClose(operator.Stop)
	e.Timeline.Note("harness", "etcd-druid runs")
	return operator, nil
}

// CreateEtcd creates an Etcd, with the certificates that it refers to. What belongs to a
// cluster is etcd-druid's to create then. Of the spec, only Name, Replicas, PlainText, PlainPeers and Etcd count, and
// SidecarImage if it is DropIn: then the Etcd opts in to Quorate.
//
// It does not wait for the pods.
func (e *Env) CreateEtcd(ctx context.Context, s Spec) (*Cluster, error) {
	s = s.complete()
	c := &Cluster{Spec: s, env: e}
	c.replicas.Store(int32(s.Replicas))
	if err := e.room(ctx, Spec{}, s.Replicas); err != nil {
		return nil, err
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
	if c.etcds, err = e.etcds(); err != nil {
		return nil, err
	}
	var errs []error
	for _, secret := range s.druidSecrets(secrets) {
		_, err := e.Client.CoreV1().Secrets(Namespace).Create(ctx, secret, metav1.CreateOptions{})
		errs = append(errs, err)
	}
	_, err = c.etcds.Create(ctx, s.etcd(), metav1.CreateOptions{})
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, fmt.Errorf("create Etcd %s: %w", s.Name, err)
	}
	e.Timeline.Note("harness", "created Etcd %s: %d replicas", s.Name, s.Replicas)
	return c, nil
}

// Grant applies deploy/druid/access for the cluster.
func (c *Cluster) Grant(ctx context.Context) error {
	built, err := manifests("druid/access")
	if err != nil {
		return err
	}
	text, err := built.AsYaml()
	if err != nil {
		return err
	}
	return c.env.apply(ctx, c.renamed(string(text)), objects.Create)
}

// StartJob starts deploy/bootstrap-job.yaml for the cluster.
func (c *Cluster) StartJob(ctx context.Context) error { return c.job(ctx, objects.Create) }

// DeleteJob deletes the Job, and what belongs to it.
func (c *Cluster) DeleteJob(ctx context.Context) error { return c.job(ctx, objects.Delete) }

func (c *Cluster) job(ctx context.Context, do func(context.Context, *rest.Config, string,
	...*unstructured.Unstructured) error) error {
	documents, err := documentsOf("bootstrap-job.yaml")
	if err != nil {
		return err
	}
	text := c.renamed(strings.Join(documents, "\n---\n"))
	return c.env.apply(ctx, strings.ReplaceAll(text, "image: quorate ", "image: "+Sidecar+" "), do)
}

// renamed is a manifest of deploy/ for this cluster.
func (c *Cluster) renamed(text string) string {
	return strings.ReplaceAll(text, shippedName, c.Spec.Name)
}

// apply creates or deletes the objects of a manifest.
func (e *Env) apply(ctx context.Context, text string, do func(context.Context, *rest.Config, string,
	...*unstructured.Unstructured) error) error {
	all, err := objects.Decode([]byte(text))
	if err != nil {
		return err
	}
	return do(ctx, e.Plane.AdminConfig(), Namespace, all...)
}

func (e *Env) etcds() (dynamic.ResourceInterface, error) {
	client, err := dynamic.NewForConfig(e.Plane.AdminConfig())
	if err != nil {
		return nil, err
	}
	return client.Resource(druid.Etcds).Namespace(Namespace), nil
}

// Backups is the folder with the backups of a cluster that etcd-druid owns.
func (c *Cluster) Backups() string {
	return c.env.Nodes.HostDir("", filepath.Join(druid.LocalStore, c.Spec.Name))
}

// druidSecrets are what an Etcd refers to.
func (s Spec) druidSecrets(data map[string][]byte) []*corev1.Secret {
	if s.PlainText {
		return nil
	}
	var secrets []*corev1.Secret
	for _, of := range []struct{ name, certificate string }{
		{"-server-tls", "server"}, {"-client-tls", "client"}, {"-peer-tls", "peer"},
	} {
		secrets = append(secrets, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: s.Name + of.name}, Type: corev1.SecretTypeTLS,
			Data: map[string][]byte{corev1.TLSCertKey: data[of.certificate+".crt"],
				corev1.TLSPrivateKeyKey: data[of.certificate+".key"]},
		})
	}
	return append(secrets, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: s.Name + "-ca"},
		Data: map[string][]byte{"bundle.crt": data["ca.crt"]}})
}

// tlsFor names the Secrets of the certificates that a server has.
func (s Spec) tlsFor(server string) map[string]any {
	return map[string]any{
		"tlsCASecretRef":     map[string]any{"name": s.Name + "-ca", "dataKey": "bundle.crt"},
		"serverTLSSecretRef": map[string]any{"name": s.Name + server},
	}
}

// PeerTLS is what spec.etcd.peerUrlTls of the Etcd is with TLS. It is for patches.
func (c *Cluster) PeerTLS() string {
	text, err := json.Marshal(c.Spec.tlsFor("-peer-tls"))
	if err != nil {
		panic(err) // It has only names.
	}
	return string(text)
}

// etcd is the Etcd's manifest.
func (s Spec) etcd() *unstructured.Unstructured {
	tls := s.tlsFor("-server-tls")
	tls["clientTLSSecretRef"] = map[string]any{"name": s.Name + "-client-tls"}
	etcd := map[string]any{"metrics": "basic", "quota": "1Gi"}
	backup := map[string]any{
		"deltaSnapshotPeriod":  "10s",
		"fullSnapshotSchedule": "0 0 * * *",
		"store": map[string]any{
			"provider": "Local", "container": s.Name, "prefix": s.Name,
		},
	}
	if !s.PlainText {
		etcd["clientUrlTls"], backup["tls"] = tls, tls
		if !s.PlainPeers {
			etcd["peerUrlTls"] = s.tlsFor("-peer-tls")
		}
	}
	annotations := map[string]any{}
	if s.SidecarImage == DropIn {
		backup["image"], annotations[OptInAnnotation] = DropIn, "true"
	}
	spec := map[string]any{
		"replicas": int64(s.Replicas), "labels": map[string]any{"app": s.Name},
		"annotations": annotations,
		"etcd":        etcd, "backup": backup, "sharedConfig": map[string]any{},
	}
	if s.Etcd != nil {
		s.Etcd(spec)
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": druid.Etcds.GroupVersion().String(), "kind": "Etcd",
		"metadata": map[string]any{"name": s.Name, "namespace": Namespace}, "spec": spec,
	}}
}

// reconcile is the annotation by which an operator asks etcd-druid to apply a change of an Etcd. Etcd-druid takes it
// away when it begins.
const reconcile = "druid.gardener.cloud/operation"

// ChangeEtcd merges a patch into the Etcd, and asks etcd-druid to apply it.
func (c *Cluster) ChangeEtcd(ctx context.Context, why, patch string) error {
	if err := c.patchEtcd(ctx, why, patch); err != nil {
		return err
	}
	return c.WaitReconciled(ctx)
}

func (c *Cluster) patchEtcd(ctx context.Context, why, patch string) error {
	c.env.Timeline.Note("operator", "%s", why)
	for _, p := range []string{patch, fmt.Sprintf(`{"metadata":{"annotations":{%q:"reconcile"}}}`, reconcile)} {
		_, err := c.etcds.Patch(ctx, c.Spec.Name, types.MergePatchType, []byte(p), metav1.PatchOptions{})
		if err != nil {
			return fmt.Errorf("%s: %w", why, err)
		}
	}
	return nil
}

// ScaleEtcd changes the number of replicas of the Etcd, and merges a patch into its spec.etcd. From then on
// [Cluster.Pods] are as many. It does not wait, because etcd-druid may wait for members before it applies that, and
// because it may report for ever that it goes on although it has applied all: it then reconciles once more after the
// annotation that asks for that has gone.
func (c *Cluster) ScaleEtcd(ctx context.Context, replicas int, etcd string) error {
	err := c.patchEtcd(ctx, fmt.Sprintf("scale %s to %d, with %s", c.Spec.Name, replicas, etcd),
		fmt.Sprintf(`{"spec":{"replicas":%d,"etcd":%s}}`, replicas, etcd))
	if err == nil {
		c.replicas.Store(int32(replicas))
	}
	return err
}

// Voters are the peer URLs of all voters by name, as the cluster's member list has them.
func (c *Cluster) Voters(ctx context.Context) (map[string][]string, error) {
	voters := map[string][]string{}
	err := c.etcd(func(client *clientv3.Client) error {
		list, err := client.MemberList(ctx)
		if err != nil {
			return fmt.Errorf("list the members of %s: %w", c.Spec.Name, err)
		}
		for _, m := range list.Members {
			if !m.IsLearner {
				voters[m.Name] = m.PeerURLs
			}
		}
		return nil
	})
	return voters, err
}

// Etcd reads the Etcd.
func (c *Cluster) Etcd(ctx context.Context) (*unstructured.Unstructured, error) {
	return c.etcds.Get(ctx, c.Spec.Name, metav1.GetOptions{})
}

// WaitReconciled waits until etcd-druid has applied the Etcd as it is.
func (c *Cluster) WaitReconciled(ctx context.Context) error {
	return waitFor(ctx, "etcd-druid has applied the Etcd "+c.Spec.Name, func(ctx context.Context) (bool, string) {
		etcd, err := c.Etcd(ctx)
		if err != nil {
			return false, err.Error()
		}
		state, _, _ := unstructured.NestedString(etcd.Object, "status", "lastOperation", "state")
		text, _, _ := unstructured.NestedString(etcd.Object, "status", "lastOperation", "description")
		observed, _, _ := unstructured.NestedInt64(etcd.Object, "status", "observedGeneration")
		return state == "Succeeded" && observed == etcd.GetGeneration() && etcd.GetAnnotations()[reconcile] == "",
			state + ": " + text
	})
}

// WaitEtcdReady waits until `kubectl get etcd` shows the Etcd as ready.
func (c *Cluster) WaitEtcdReady(ctx context.Context) error {
	return waitFor(ctx, "the Etcd "+c.Spec.Name+" is ready", func(ctx context.Context) (bool, string) {
		etcd, err := c.Etcd(ctx)
		if err != nil {
			return false, err.Error()
		}
		ready, _, _ := unstructured.NestedBool(etcd.Object, "status", "ready")
		conditions, _, _ := unstructured.NestedSlice(etcd.Object, "status", "conditions")
		state := ""
		for _, c := range conditions {
			condition := c.(map[string]any)
			state += fmt.Sprintf("%v: %v (%v), ", condition["type"], condition["status"], condition["message"])
		}
		return ready, state
	})
}

// deleteEtcd deletes the Etcd, and waits until etcd-druid has deleted all that it owned.
func (c *Cluster) deleteEtcd(ctx context.Context) error {
	if err := c.etcds.Delete(ctx, c.Spec.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete Etcd %s: %w", c.Spec.Name, err)
	}
	return waitFor(ctx, "Etcd "+c.Spec.Name+" is gone", func(ctx context.Context) (bool, string) {
		_, err := c.Etcd(ctx)
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	})
}
