package harness

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate/quorate/test/harness/apiproxy"
	"github.com/quorate/quorate/test/harness/process"
)

// owns reports whether a name is that of one of the cluster's pods, scaled away or not.
func (c *Cluster) owns(pod string) bool {
	for n := range maxReplicas {
		if pod == c.Spec.podName(n) {
			return true
		}
	}
	return false
}

// Requests are what the sidecar of a pod has asked of the API server since then: that of
// every pod of this name.
func (c *Cluster) Requests(pod string, since time.Time) []apiproxy.Record {
	return apiproxy.Since(c.env.API.Records(func(r *apiproxy.Request) bool { return r.Pod == pod }), since)
}

// Removing chooses the requests that are to remove pods of this cluster, from any client.
func (c *Cluster) Removing(r *apiproxy.Request) bool { return r.Removes() && c.owns(r.Name) }

// WritingRecord chooses the requests that are to write this cluster's record.
func (c *Cluster) WritingRecord(r *apiproxy.Request) bool {
	return r.Is("leases", "create", "update", "patch") && r.Name == c.RecordName()
}

// WritingIntent chooses those of them that put the removal of a pod on record.
func (c *Cluster) WritingIntent(r *apiproxy.Request) bool {
	text, _ := r.Annotation(IntentAnnotation)
	var intent Intent
	return c.WritingRecord(r) && json.Unmarshal([]byte(text), &intent) == nil && intent.Pod != ""
}

// RemovalRequests are all requests of sidecars since then to remove a pod of this
// cluster, granted or not, in order.
func (c *Cluster) RemovalRequests(since time.Time) []apiproxy.Record {
	return apiproxy.Since(c.env.API.Records(c.Removing), since)
}

// SelfRemovals are those of them in which a sidecar asked to remove its own pod, and not a
// predecessor or successor of the same name.
func SelfRemovals(requests []apiproxy.Record) []apiproxy.Record {
	return slices.DeleteFunc(slices.Clone(requests), func(r apiproxy.Record) bool {
		if r.Name != r.Pod {
			return true
		}
		p := r.Preconditions()
		return p != nil && p.UID != nil && *p.UID != r.UID
	})
}

// StartOutside runs a sidecar outside of any pod, as a Job or a laptop does, with the
// rights of the cluster's ServiceAccount. It goes by the members' addresses, so the
// cluster must be reachable by these. Its certificates, kubeconfig and log
// (sidecar.log) are in the directory. Stop it in the end.
func (c *Cluster) StartOutside(ctx context.Context, dir string, args ...string) (*process.Process, error) {
	a, err := c.WriteAccess(ctx, dir)
	if err != nil {
		return nil, err
	}
	given := []string{
		"sidecar", "--namespace=" + Namespace, "--statefulset=" + c.Spec.Name, "--log-format=json",
		"--kubeconfig=" + a.Kubeconfig, "--endpoints=" + strings.Join(a.Endpoints, ","),
	}
	if a.CA != "" {
		given = append(given, "--cacert="+a.CA, "--cert="+a.Cert, "--key="+a.Key)
	}
	return process.Start(process.Spec{
		Name: "sidecar outside of " + c.Spec.Name, Path: c.env.Binaries.Quorate, Args: append(given, args...),
		Env: []string{}, LogPath: filepath.Join(dir, "sidecar.log"),
	})
}

// RunBeside runs a sidecar in a pod of its own, as the bootstrap Job does. It has the rights of the cluster's
// ServiceAccount, and no rollout replaces it. It waits until the pod is Ready. Call it before anything reads the
// cluster's logs.
func (c *Cluster) RunBeside(ctx context.Context, name string) error {
	s := c.Spec
	endpoints := make([]string, 0, s.Replicas)
	for _, pod := range c.Pods() {
		endpoints = append(endpoints, c.env.clientURL(s, c.env.host(s, pod)))
	}
	sidecar := c.env.sidecarContainer(s, endpoints...)
	sidecar.Args = append(sidecar.Args, "--statefulset="+s.Name)
	sidecar.Env = slices.DeleteFunc(slices.Clone(podEnv), func(v corev1.EnvVar) bool { return v.Name == "POD_NAME" })
	c.beside = append(c.beside, name)
	pods := c.env.Client.CoreV1().Pods(Namespace)
	if _, err := pods.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: Namespace},
		Spec: corev1.PodSpec{ServiceAccountName: s.Name, Containers: []corev1.Container{sidecar},
			Volumes: c.env.statefulSet(s).Spec.Template.Spec.Volumes},
	}, metav1.CreateOptions{}); err != nil {
		return err
	}
	return waitFor(ctx, name+" is Ready", func(ctx context.Context) (bool, string) {
		p, err := pods.Get(ctx, name, metav1.GetOptions{})
		return err == nil && IsReady(p), fmt.Sprint(err)
	})
}

// Access is what a process outside of any pod needs to reach the API server, with the rights
// of the cluster's ServiceAccount, and the members.
type Access struct {
	Kubeconfig string
	Endpoints  []string
	// CA, Cert and Key are files for etcd; empty without TLS.
	CA, Cert, Key string
}

// WriteAccess writes the files of an [Access] into a directory.
func (c *Cluster) WriteAccess(ctx context.Context, dir string) (Access, error) {
	token, err := c.token(ctx, c.Spec.Name)
	if err != nil {
		return Access{}, err
	}
	a := Access{Kubeconfig: filepath.Join(dir, "kubeconfig"), Endpoints: c.Endpoints()}
	files := map[string][]byte{a.Kubeconfig: []byte(c.env.kubeconfig()),
		filepath.Join(dir, "ca.crt"): c.env.API.CAPEM(), filepath.Join(dir, "token"): []byte(token)}
	if !c.Spec.PlainText {
		secret, err := c.env.Client.CoreV1().Secrets(Namespace).Get(ctx, c.Spec.Name+"-tls", metav1.GetOptions{})
		if err != nil {
			return Access{}, err
		}
		a.CA, a.Cert, a.Key = filepath.Join(dir, "etcd-ca.crt"), filepath.Join(dir, "client.crt"),
			filepath.Join(dir, "client.key")
		files[a.CA], files[a.Cert], files[a.Key] = secret.Data["ca.crt"], secret.Data["client.crt"],
			secret.Data["client.key"]
	}
	for path, content := range files {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return Access{}, err
		}
	}
	return a, nil
}
