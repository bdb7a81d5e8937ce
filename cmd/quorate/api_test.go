package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/quorate/quorate/internal/adoption"
	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/pkg/rollout"
)

// api is an API server with the objects of a world.
type api struct {
	mu sync.Mutex
	*world
	// others are StatefulSets beside the world's own.
	others []appsv1.StatefulSet
	// leases are Leases beside the world's own.
	leases []coordinationv1.Lease
	// refuses is a Lease that the user may not change.
	refuses string
	// lists counts how often Leases have been read.
	lists counter
	// reviewed: anybody may ask what the sidecars may do. They may not do what is refused, such as "create
	// leases".
	reviewed bool
	refused  []string
	// user is who asks, alice if it is empty. impersonates says that they may act as somebody else.
	user         string
	impersonates bool
	// claims, budgets and accounts are those of the namespace garden, and kubernetes is the API server's version.
	claims     []corev1.PersistentVolumeClaim
	budgets    []policyv1.PodDisruptionBudget
	accounts   []string
	kubernetes string
	// forbids are what the user alice may not do, such as "get statefulsets".
	forbids []string
	// unwell is how many of the next reads fail, for a reason that passes.
	unwell int
	// coordinates, if not nil, plays the coordinator: it is told of every request that is made on the Lease.
	coordinates func(w *world, r rollout.Request)
	// writes are the requests that changed something.
	writes []string
	// asked is closed when the StatefulSet is read for the fourth time.
	reads int
	asked chan struct{}
	// patched, if not nil, is called after each change of the Lease.
	patched func(w *world, annotations map[string]*string)
}

// counter counts, and lets others wait.
type counter struct {
	mu     sync.Mutex
	n      int
	waited chan struct{}
	until  int
}

func (c *counter) count() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n++; c.waited != nil && c.n >= c.until {
		close(c.waited)
		c.waited = nil
	}
}

// wait waits until it has counted so many more.
func (c *counter) wait(t *testing.T, more int) {
	t.Helper()
	c.mu.Lock()
	reached := make(chan struct{})
	c.waited, c.until = reached, c.n+more
	c.mu.Unlock()
	select {
	case <-reached:
	case <-time.After(30 * time.Second):
		t.Fatalf("not %d more in 30 s", more)
	}
}

// labelled is true for what has the labels that are asked for, in the namespace if one is asked for.
func labelled(r *http.Request, o metav1.ObjectMeta, namespace string) bool {
	selector, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	return err == nil && selector.Matches(labels.Set(o.Labels)) && (namespace == "" || namespace == o.Namespace)
}

// allLeases are the world's own and the others.
func (a *api) allLeases() []coordinationv1.Lease {
	if a.lease == nil {
		return a.leases
	}
	return append([]coordinationv1.Lease{*a.lease}, a.leases...)
}

// leaseOf is one of them, nil if there is none.
func (a *api) leaseOf(namespace, name string) *coordinationv1.Lease {
	if a.lease != nil && a.lease.Namespace == namespace && a.lease.Name == name {
		return a.lease
	}
	for i := range a.leases {
		if a.leases[i].Namespace == namespace && a.leases[i].Name == name {
			return &a.leases[i]
		}
	}
	return nil
}

// change changes the world between two requests.
func (a *api) change(do func(*world)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	do(a.world)
}

func (a *api) written() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.writes
}

// apiServer answers for the objects of a world.
func apiServer(t *testing.T, w *world) (kubeconfig string) {
	t.Helper()
	return answering(t, &api{world: w})
}

func answering(t *testing.T, a *api) (kubeconfig string) {
	t.Helper()
	a.asked = make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		defer a.mu.Unlock()
		answer, code := a.answer(t, r)
		rw.Header().Set("Content-Type", "application/json")
		rw.WriteHeader(code)
		var gone *net.OpError // Whoever asked has ended.
		if err := json.NewEncoder(rw).Encode(answer); err != nil && !errors.As(err, &gone) {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	return kubeconfigFor(t, server.URL)
}

// kubeconfigFor writes a kubeconfig for an API server, with the namespace garden.
func kubeconfigFor(t *testing.T, url string) string {
	t.Helper()
	dir := t.TempDir()
	writeFiles(t, dir, map[string][]byte{"kubeconfig": []byte(`{apiVersion: v1, kind: Config, current-context: c,
contexts: [{name: c, context: {cluster: c, user: u, namespace: garden}}], users: [{name: u, user: {}}],
clusters: [{name: c, cluster: {server: "` + url + `"}}]}`)})
	return filepath.Join(dir, "kubeconfig")
}

// asked is what an API server's authorizer makes of a request.
func asked(r *http.Request) (verb, resource, group, namespace, name string) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if parts = parts[1:]; strings.HasPrefix(r.URL.Path, "/apis/") {
		group, parts = parts[0], parts[1:]
	}
	if parts = parts[1:]; len(parts) > 1 && parts[0] == "namespaces" {
		namespace, parts = parts[1], parts[2:]
	}
	parts = append(parts, "", "")
	resource, name = parts[0], parts[1]
	verb = map[string]string{http.MethodPost: "create", http.MethodPatch: "patch", http.MethodGet: "get"}[r.Method]
	if verb == "get" && name == "" {
		verb = "list"
	}
	return verb, resource, group, namespace, name
}

func (a *api) answer(t *testing.T, r *http.Request) (answer any, code int) {
	failure := func(reason, message string, code int) (any, int) {
		return map[string]any{
			"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": reason, "message": message,
			"code": code,
		}, code
	}
	missing := func() (any, int) { return failure("NotFound", "not found", http.StatusNotFound) }
	if r.URL.Path == "/version" {
		if a.kubernetes == "" {
			return missing()
		}
		return map[string]string{"major": "1", "gitVersion": a.kubernetes}, http.StatusOK
	}
	verb, resource, group, namespace, name := asked(r)
	if slices.Contains(a.forbids, verb+" "+resource) || verb == "patch" && name == a.refuses {
		text := resource + ` "` + name + `" is forbidden: User "alice" cannot ` + verb + ` resource "` + resource +
			`" in API group "` + group + `"`
		where := ` at the cluster scope`
		if namespace != "" {
			where = ` in the namespace "` + namespace + `"`
		}
		text += where
		return failure("Forbidden", text, http.StatusForbidden)
	}
	if a.unwell > 0 && r.Method == http.MethodGet {
		a.unwell--
		return failure("InternalError", "etcdserver: leader changed", http.StatusInternalServerError)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Error(err)
	}
	user := cmp.Or(a.user, "alice")
	if as := r.Header.Get("Impersonate-User"); as != "" {
		if user = as; !a.impersonates {
			return failure("Forbidden", `User "alice" cannot impersonate resource "users"`, http.StatusForbidden)
		}
	}
	const account = "system:serviceaccount:garden:etcd-main"
	switch path := r.URL.Path; {
	case strings.HasSuffix(path, "/namespaces/garden/persistentvolumeclaims"):
		return corev1.PersistentVolumeClaimList{TypeMeta: metav1.TypeMeta{APIVersion: "v1",
			Kind: "PersistentVolumeClaimList"}, Items: a.claims}, http.StatusOK
	case strings.HasSuffix(path, "/namespaces/garden/poddisruptionbudgets"):
		return policyv1.PodDisruptionBudgetList{TypeMeta: metav1.TypeMeta{APIVersion: "policy/v1",
			Kind: "PodDisruptionBudgetList"}, Items: a.budgets}, http.StatusOK
	case resource == "serviceaccounts" && slices.Contains(a.accounts, name):
		return corev1.ServiceAccount{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}}, http.StatusOK
	case strings.HasSuffix(path, "/selfsubjectaccessreviews"):
		var review authorizationv1.SelfSubjectAccessReview
		if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, &review); err != nil {
			t.Error(err)
		}
		review.APIVersion, review.Kind = "authorization.k8s.io/v1", "SelfSubjectAccessReview"
		review.Status.Allowed = user == account && !slices.Contains(a.refused,
			adoption.Need{ResourceAttributes: *review.Spec.ResourceAttributes}.String())
		return review, http.StatusCreated
	case strings.HasSuffix(path, "/namespaces/garden/statefulsets/etcd-main"):
		if a.reads++; a.reads == 4 {
			close(a.asked)
		}
		if a.set == nil {
			return missing()
		}
		return a.set, http.StatusOK
	case strings.HasSuffix(path, "/statefulsets"):
		list := appsv1.StatefulSetList{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "StatefulSetList"}}
		all := a.others
		if a.set != nil {
			all = append([]appsv1.StatefulSet{*a.set}, a.others...)
		}
		for i := range all {
			if labelled(r, all[i].ObjectMeta, namespace) {
				list.Items = append(list.Items, all[i])
			}
		}
		return list, http.StatusOK
	case resource == "statefulsets" && r.Method == http.MethodGet && name != "":
		for i := range a.others {
			if a.others[i].Namespace == namespace && a.others[i].Name == name {
				return a.others[i], http.StatusOK
			}
		}
		return missing()
	case resource == "leases" && r.Method == http.MethodGet && name == "":
		a.lists.count()
		list := coordinationv1.LeaseList{
			TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "LeaseList"}}
		for i, all := 0, a.allLeases(); i < len(all); i++ {
			if labelled(r, all[i].ObjectMeta, namespace) {
				list.Items = append(list.Items, all[i])
			}
		}
		return list, http.StatusOK
	case strings.HasSuffix(path, "/namespaces/garden/pods"):
		list := corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
		for _, p := range a.pods {
			list.Items = append(list.Items, *p)
		}
		return list, http.StatusOK
	case resource == "leases" && namespace != "" && len(a.leases) > 0 && r.Method == http.MethodPatch &&
		(namespace != "garden" || name != record.Name("etcd-main")):
		lease := a.leaseOf(namespace, name)
		if lease == nil {
			return missing()
		}
		var patch metav1.PartialObjectMetadata
		if err := json.Unmarshal(body, &patch); err != nil {
			t.Error(err)
		}
		delete(lease.Annotations, rollout.ControlPaused)
		for key, value := range patch.Annotations {
			if value != "" { // null
				lease.Annotations[key] = value
			}
		}
		return lease, http.StatusOK
	case r.Method == http.MethodPost && resource == "leases" && namespace != "garden":
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
		if err != nil {
			t.Error(err)
		}
		lease := object.(*coordinationv1.Lease)
		lease.Namespace = namespace
		a.leases = append(a.leases, *lease)
		return lease, http.StatusCreated
	case r.Method == http.MethodPost && strings.HasSuffix(path, "/namespaces/garden/leases"):
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
		if err != nil {
			t.Error(err)
		}
		a.lease = object.(*coordinationv1.Lease)
		a.lease.APIVersion, a.lease.Kind = "coordination.k8s.io/v1", "Lease"
		a.writes = append(a.writes, "create")
		return a.lease, http.StatusCreated
	case strings.HasSuffix(path, "/selfsubjectreviews"):
		return map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview",
			"status": map[string]any{"userInfo": map[string]any{"username": user}}}, http.StatusCreated
	case a.reviewed && strings.HasSuffix(path, "/namespaces/garden/localsubjectaccessreviews"):
		var review authorizationv1.LocalSubjectAccessReview
		if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, &review); err != nil {
			t.Error(err)
		}
		review.APIVersion, review.Kind = "authorization.k8s.io/v1", "LocalSubjectAccessReview"
		review.Status.Allowed = review.Spec.User == account &&
			!slices.Contains(a.refused, adoption.Need{ResourceAttributes: *review.Spec.ResourceAttributes}.String())
		return review, http.StatusCreated
	case a.lease != nil && strings.HasSuffix(path, "/namespaces/garden/leases/quorate-etcd-main"):
		a.lists.count()
		if r.Method == http.MethodPatch {
			a.writes = append(a.writes, string(body))
			var patch struct {
				Metadata struct {
					Annotations map[string]*string `json:"annotations"`
				} `json:"metadata"`
			}
			if err := json.Unmarshal(body, &patch); err != nil {
				t.Error(err)
			}
			for key, value := range patch.Metadata.Annotations {
				if delete(a.lease.Annotations, key); value != nil {
					a.control(key, *value)
				}
				if key == record.RequestAnnotation && value != nil && a.coordinates != nil {
					var asked rollout.Request
					if err := json.Unmarshal([]byte(*value), &asked); err != nil {
						t.Error(err)
					}
					a.coordinates(a.world, asked)
				}
			}
			if a.patched != nil {
				a.patched(a.world, patch.Metadata.Annotations)
			}
		}
		return a.lease, http.StatusOK
	}
	return missing()
}
