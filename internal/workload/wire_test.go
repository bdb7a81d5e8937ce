package workload_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	appsclient "k8s.io/client-go/kubernetes/typed/apps/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/internal/workload"
	"github.com/quorate/quorate/pkg/rollout"
)

// server is an API server with one StatefulSet and its pods, which answers what we rely
// on as the real one does: preconditions above all. The client is the real one.
type server struct {
	set     *appsv1.StatefulSet
	pods    []*corev1.Pod
	version int
	// asked is what was asked, without what was only read by selector.
	asked []string
	// fail is what a verb is answered with; before runs first.
	fail   map[string]*apierrors.StatusError
	before func(verb string)
}

// newServer has the pods etcd-main-0 to etcd-main-2 at resourceVersions 100 to 102.
func newServer(t *testing.T) (*server, *workload.View) {
	t.Helper()
	s := &server{set: statefulSet(), version: 200, fail: map[string]*apierrors.StatusError{}, before: func(string) {}}
	for i := range 3 {
		s.pods = append(s.pods, pod(func(p *corev1.Pod) {
			p.Name, p.Namespace = fmt.Sprintf("etcd-main-%d", i), "ns"
			p.UID, p.ResourceVersion = types.UID(fmt.Sprintf("u%d", i)), strconv.Itoa(100+i)
		}))
	}
	listening := httptest.NewServer(s)
	cfg := &rest.Config{Host: listening.URL}
	apps, err := appsclient.NewForConfigAndClient(cfg, listening.Client())
	if err != nil {
		t.Fatal(err)
	}
	core, err := coreclient.NewForConfigAndClient(cfg, listening.Client())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(listening.Close)
	return s, workload.New(workload.Config{
		StatefulSet: "etcd-main", Names: workload.DefaultNames(),
		StatefulSets: apps.StatefulSets("ns"), Pods: core.Pods("ns"),
	})
}

var podResource = schema.GroupResource{Resource: "pods"}

func (s *server) find(name string) *corev1.Pod {
	i := slices.IndexFunc(s.pods, func(p *corev1.Pod) bool { return p.Name == name })
	if i < 0 {
		return nil
	}
	return s.pods[i]
}

// change is what a kubelet, or anybody, does to a pod.
func (s *server) change(p *corev1.Pod) {
	s.version++
	p.ResourceVersion = strconv.Itoa(s.version)
}

func (s *server) drop(name string) {
	s.pods = slices.DeleteFunc(s.pods, func(p *corev1.Pod) bool { return p.Name == name })
}

func (s *server) recreate(name string) {
	s.find(name).UID = types.UID("new-" + name)
	s.change(s.find(name))
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimSuffix(r.URL.Path, "/eviction")
	name = path.Base(name)
	verb := r.Method
	if verb == http.MethodPost {
		verb = "EVICT"
	}
	if byName, ok := strings.CutPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name="); ok {
		verb, name = "READ", byName
	}
	body, _ := io.ReadAll(r.Body)
	s.before(verb)
	if verb != http.MethodGet {
		s.asked = append(s.asked, verb+" "+name)
	}
	if err := s.fail[verb]; err != nil {
		answer(w, err)
		return
	}
	p := s.find(name)
	switch {
	case strings.HasSuffix(r.URL.Path, "/statefulsets/etcd-main"):
		write(w, http.StatusOK, s.set, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))
	case verb == http.MethodGet || verb == "READ":
		list := &corev1.PodList{}
		for _, p := range s.pods {
			if verb == http.MethodGet || p.Name == name {
				list.Items = append(list.Items, *p)
			}
		}
		write(w, http.StatusOK, list, corev1.SchemeGroupVersion.WithKind("PodList"))
	case p == nil:
		answer(w, apierrors.NewNotFound(podResource, name))
	case verb == http.MethodPatch:
		s.patch(w, p, body)
	case verb == http.MethodDelete:
		s.remove(w, p, decode(body).(*metav1.DeleteOptions))
	case verb == "EVICT":
		e := decode(body).(*policyv1.Eviction)
		if e.Name != name || e.Namespace != "" && e.Namespace != "ns" {
			answer(w, apierrors.NewBadRequest("name in URL does not match name in Eviction object"))
			return
		}
		s.remove(w, p, e.DeleteOptions)
	}
}

func (s *server) patch(w http.ResponseWriter, p *corev1.Pod, body []byte) {
	var patch corev1.Pod
	if err := json.Unmarshal(body, &patch); err != nil {
		answer(w, apierrors.NewBadRequest(err.Error()))
		return
	}
	if patch.UID != "" && patch.UID != p.UID {
		answer(w, apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, p.Name, nil)) // The field is immutable.
		return
	}
	changed := false
	for key, value := range patch.Annotations {
		if p.Annotations[key] != value {
			changed = true
			p.Annotations = map[string]string{key: value}
		}
	}
	if changed {
		s.change(p)
	}
	write(w, http.StatusOK, p, corev1.SchemeGroupVersion.WithKind("Pod"))
}

func (s *server) remove(w http.ResponseWriter, p *corev1.Pod, o *metav1.DeleteOptions) {
	text, _ := json.Marshal(o)
	s.asked[len(s.asked)-1] += " " + string(text)
	if c := o.Preconditions; c == nil || c.UID != nil && *c.UID != p.UID || c.ResourceVersion != nil &&
		*c.ResourceVersion != p.ResourceVersion {
		answer(w, apierrors.NewConflict(podResource, p.Name, errors.New("a precondition does not match")))
		return
	}
	if len(o.DryRun) == 0 {
		s.drop(p.Name)
	}
	answer(w, &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusSuccess, Code: http.StatusOK}})
}

// decode reads what clients send, which by default is protobuf.
func decode(body []byte) runtime.Object {
	o, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		panic(err)
	}
	return o
}

func answer(w http.ResponseWriter, err *apierrors.StatusError) {
	if d := err.ErrStatus.Details; d != nil && d.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(d.RetryAfterSeconds)))
	}
	write(w, int(err.ErrStatus.Code), &err.ErrStatus, schema.GroupVersionKind{Version: "v1", Kind: "Status"})
}

func write(w http.ResponseWriter, code int, o runtime.Object, kind schema.GroupVersionKind) {
	o.GetObjectKind().SetGroupVersionKind(kind)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(o)
}

// removal is of etcd-main-1 as it was observed.
func removal(o record.Operation) record.Intent {
	return record.Intent{Operation: o, Pod: "etcd-main-1", UID: "u1", ResourceVersion: "101", Revision: "rev-2",
		Epoch: 7}
}

func TestARemovalCarriesPreconditions(t *testing.T) {
	const (
		read    = `READ etcd-main-1`
		options = ` {"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"u1","resourceVersion":"101"}}`
		evicted = ` {"preconditions":{"uid":"u1","resourceVersion":"101"}}`
		del     = `DELETE etcd-main-1` + options
		evict   = `EVICT etcd-main-1` + evicted
	)
	blocked := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
	for _, tc := range []struct {
		name      string
		operation record.Operation
		world     func(*server)
		asked     []string
		outcome   record.Outcome
		blocked   bool
		removed   bool
	}{
		{"a DELETE names the very pod, and leaves its grace period alone", record.Delete, func(*server) {},
			[]string{del}, record.Done, false, true},
		{"a DELETE is refused when the pod has changed", record.Delete,
			func(s *server) { s.change(s.find("etcd-main-1")) }, []string{del}, record.Refused, false, false},
		{"a DELETE is refused when the pod was replaced", record.Delete, func(s *server) { s.recreate("etcd-main-1") },
			[]string{del}, record.Refused, false, false},
		{"a DELETE is refused when another pod has the same resourceVersion", record.Delete,
			func(s *server) { s.find("etcd-main-1").UID = "other" }, []string{del}, record.Refused, false, false},
		{"a DELETE of a pod that is gone is refused", record.Delete, func(s *server) { s.drop("etcd-main-1") },
			[]string{"DELETE etcd-main-1"}, record.Refused, false, false},
		{"a DELETE may be forbidden", record.Delete, func(s *server) {
			s.fail["DELETE"] = apierrors.NewForbidden(podResource, "etcd-main-1", errors.New("no"))
		},
			[]string{"DELETE etcd-main-1"}, record.Failed, false, false},
		{"a DELETE that failed in the server may arrive later", record.Delete,
			func(s *server) { s.fail["DELETE"] = apierrors.NewInternalError(errors.New("etcd")) },
			[]string{"DELETE etcd-main-1"}, record.Unclear, false, false},

		{"an eviction looks first, so that no budget is charged in vain, and names the very pod", record.Evict,
			func(*server) {}, []string{read, evict}, record.Done, false, true},
		{"an eviction is not sent when the pod has changed", record.Evict,
			func(s *server) { s.change(s.find("etcd-main-1")) }, []string{read}, record.Refused, false, false},
		{"an eviction is not sent when the pod was replaced", record.Evict,
			func(s *server) { s.find("etcd-main-1").UID = "other" }, []string{read}, record.Refused, false, false},
		{"an eviction is not sent when the pod is gone", record.Evict, func(s *server) { s.drop("etcd-main-1") },
			[]string{read}, record.Refused, false, false},
		{"an eviction is not sent when the pod cannot be read", record.Evict,
			func(s *server) { s.fail["READ"] = apierrors.NewForbidden(podResource, "", errors.New("no")) },
			[]string{read}, record.Failed, false, false},
		{"an eviction is refused when the pod changes after the look", record.Evict, func(s *server) {
			s.before = func(verb string) {
				if verb == "EVICT" {
					s.change(s.find("etcd-main-1"))
				}
			}
		}, []string{read, evict}, record.Refused, false, false},
		{"an eviction is blocked by a PodDisruptionBudget", record.Evict, func(s *server) { s.fail["EVICT"] = blocked },
			[]string{read, "EVICT etcd-main-1"}, record.Failed, true, false},
		{"an eviction that timed out in the server may arrive later", record.Evict,
			func(s *server) { s.fail["EVICT"] = apierrors.NewTimeoutError("slow", 0) },
			[]string{read, "EVICT etcd-main-1"}, record.Unclear, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, w := newServer(t)
			tc.world(s)
			before := len(s.pods)
			err := w.Remove(t.Context(), workload.Observation{}, removal(tc.operation))
			if !slices.Equal(s.asked, tc.asked) {
				t.Errorf("asked\n got %q\nwant %q", s.asked, tc.asked)
			}
			_, blocked := workload.RefusalOf(err, 3)
			if got := record.OutcomeOf(err); got != tc.outcome || blocked != tc.blocked {
				t.Errorf("outcome %d, blocked %v: %v", got, blocked, err)
			}
			if removed := len(s.pods) < before; removed != tc.removed {
				t.Errorf("removed: %v", removed)
			}
			if err != nil && !strings.Contains(err.Error(), "etcd-main-1") {
				t.Errorf("the error does not name the pod: %v", err)
			}
		})
	}
}

// A grace period of 0 takes the pod from the API while its processes run on.
func TestNoPodIsRemovedWithoutAGracePeriod(t *testing.T) {
	for _, tc := range []struct {
		name  string
		grace *int64
		// asked is the grace period that is asked for; empty: the pod's own.
		asked string
	}{
		{"a pod that asks for none gets a second", ptr(int64(0)), `"gracePeriodSeconds":1`},
		{"a pod that asks for one gets what it asks for", ptr(int64(1)), ""},
		{"so does one that asks for more", ptr(int64(30)), ""},
		{"and one that says nothing, which the API server defaults", nil, ""},
	} {
		for _, o := range []record.Operation{record.Delete, record.Evict} {
			t.Run(tc.name+", by "+string(o), func(t *testing.T) {
				s, w := newServer(t)
				s.find("etcd-main-1").Spec.TerminationGracePeriodSeconds = tc.grace
				seen, err := w.Observe(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if err := w.Remove(t.Context(), seen, removal(o)); err != nil {
					t.Fatal(err)
				}
				asked := s.asked[len(s.asked)-1]
				if strings.Contains(asked, "gracePeriodSeconds") != (tc.asked != "") ||
					!strings.Contains(asked, tc.asked) {
					t.Errorf("asked %s, want %q", asked, tc.asked)
				}
			})
		}
	}
}

// Before an eviction stands on record, a budget is asked by a dry run.
func TestABudgetIsAskedWithoutAnyEffect(t *testing.T) {
	refused := func(cause string) *apierrors.StatusError {
		err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
		err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: policyv1.DisruptionBudgetCause, Message: cause}}
		return err
	}
	const said = "Cannot evict pod as it would violate the pod's disruption budget. "
	for _, tc := range []struct {
		name   string
		answer *apierrors.StatusError
		// words and lasting are what is refused; empty: nothing is.
		words   string
		lasting bool
		outcome record.Outcome
	}{
		{"a budget that allows one", nil, "", false, record.Done},
		{"a budget that may allow one when a pod is back",
			refused("The disruption budget main needs 2 healthy pods and has 2 currently"),
			said + "The disruption budget main needs 2 healthy pods and has 2 currently", false, record.Failed},
		{"a budget that needs all pods", refused("The disruption budget main needs 3 healthy pods and has 3 currently"),
			said + "The disruption budget main needs 3 healthy pods and has 3 currently", true, record.Failed},
		{"also while one of them is away",
			refused("The disruption budget main needs 3 healthy pods and has 2 currently"),
			said + "The disruption budget main needs 3 healthy pods and has 2 currently", true, record.Failed},
		{"a budget that counts other pods as well",
			refused("The disruption budget main needs 4 healthy pods and has 4 currently"),
			said + "The disruption budget main needs 4 healthy pods and has 4 currently", false, record.Failed},
		{"a budget of which the controller has nothing to say",
			refused("The disruption budget main does not allow evicting pods currently"),
			said + "The disruption budget main does not allow evicting pods currently", false, record.Failed},
		{"two budgets", &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: 500,
			Message: "This pod has more than one PodDisruptionBudget, which the eviction subresource does not " +
				"support.",
		}}, "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.", true,
			record.Unclear},
		{"a budget whose status makes no sense is no missing permission",
			apierrors.NewForbidden(schema.GroupResource{Group: "policy", Resource: "poddisruptionbudget"}, "main",
				errors.New("pdb disruptions allowed is negative")),
			`poddisruptionbudget.policy "main" is forbidden: pdb disruptions allowed is negative`, false,
			record.Failed},
		{"a missing permission", apierrors.NewForbidden(podResource, "etcd-main-1", errors.New("no")), "", false,
			record.Failed},
		{"a fault of the API server", apierrors.NewInternalError(errors.New("etcd")), "", false, record.Unclear},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, w := newServer(t)
			if tc.answer != nil {
				s.fail["EVICT"] = tc.answer
			}
			err := w.AskBudget(t.Context(), workload.Observation{}, "etcd-main-1", "u1", "101")
			got, refused := workload.RefusalOf(err, 3)
			if want := (rollout.Refusal{Words: tc.words, Lasting: tc.lasting}); got != want ||
				refused != (tc.words != "") {
				t.Errorf("refused %v\n got %+v\nwant %+v", refused, got, want)
			}
			if o := record.OutcomeOf(err); o != tc.outcome {
				t.Errorf("outcome %d, want %d: %v", o, tc.outcome, err)
			}
			const request = `EVICT etcd-main-1 {"preconditions":{"uid":"u1","resourceVersion":"101"},"dryRun":["All"]}`
			if tc.answer == nil && !slices.Equal(s.asked, []string{request}) {
				t.Errorf("asked %q, want %q", s.asked, request)
			}
			if s.find("etcd-main-1") == nil {
				t.Error("the pod is gone")
			}
		})
	}
}

// A client of Kubernetes keeps an answer with Retry-After to itself and waits: ten seconds for
// a budget that the disruption controller has not processed yet.
func TestABudgetThatIsBeingProcessedIsNotWaitedForInVain(t *testing.T) {
	s, w := newServer(t)
	s.fail["EVICT"] = apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.",
		10)
	err := w.AskBudget(t.Context(), workload.Observation{}, "etcd-main-1", "u1", "101")
	got, refused := workload.RefusalOf(err, 3)
	if !refused || got.Lasting || !strings.Contains(got.Words, "asks to come back later") {
		t.Errorf("%v: %+v", err, got)
	}
	if len(s.asked) != 1 {
		t.Errorf("asked %q", s.asked)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, refused := workload.RefusalOf(w.AskBudget(ended, workload.Observation{}, "etcd-main-1", "u1", "101"),
		3); refused {
		t.Error("our own end counts as a refusal")
	}
}

// oneBudget is the only PodDisruptionBudget that there is.
type oneBudget policyv1.PodDisruptionBudget

func (b *oneBudget) Get(_ context.Context, name string, _ metav1.GetOptions) (*policyv1.PodDisruptionBudget, error) {
	if name != b.Name {
		return nil, apierrors.NewNotFound(schema.GroupResource{Group: "policy", Resource: "poddisruptionbudgets"}, name)
	}
	return (*policyv1.PodDisruptionBudget)(b), nil
}

func (*oneBudget) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return watch.NewRaceFreeFake(), nil
}

func TestABudgetIsMootIfItCountsOnePodAndNeedsMore(t *testing.T) {
	const words = "The disruption budget main needs 2 healthy pods and has 1 currently"
	type status = policyv1.PodDisruptionBudgetStatus
	const selector = "app=etcd,part-of=main"
	for _, tc := range []struct {
		name, words string
		status      status
		// matches are the labels that the budget asks for; nil means those of the StatefulSet and one more.
		matches map[string]string
		want    bool
		err     string
	}{
		{"it needs two of one", words, status{ObservedGeneration: 7, ExpectedPods: 1, DesiredHealthy: 2}, nil, true, ""},
		{"it needs the one that there is", words, status{ObservedGeneration: 7, ExpectedPods: 1, DesiredHealthy: 1},
			nil, false, ""},
		{"it also counts a pod that is not healthy", words,
			status{ObservedGeneration: 7, ExpectedPods: 2, DesiredHealthy: 2, CurrentHealthy: 1}, nil, false, ""},
		{"it would also count the pods of other StatefulSets, which are missing", words,
			status{ObservedGeneration: 7, ExpectedPods: 1, DesiredHealthy: 2}, map[string]string{"app": "etcd"}, false, ""},
		{"it has changed since its status was written", words,
			status{ObservedGeneration: 6, ExpectedPods: 1, DesiredHealthy: 2}, nil, false, ""},
		{"it counts nothing yet", words, status{ObservedGeneration: 7, DesiredHealthy: 2}, nil, false, ""},
		{"the API server names no budget", "Cannot evict pod.", status{ObservedGeneration: 7, ExpectedPods: 1,
			DesiredHealthy: 2}, nil, false, ""},
		{"it is gone", "The disruption budget other needs 2 healthy pods and has 1 currently", status{}, nil, false,
			`get PodDisruptionBudget other: poddisruptionbudgets.policy "other" not found`},
		{"it is not even read where it needs one pod", "The disruption budget other needs 1 healthy pods and has 1 " +
			"currently", status{}, nil, false, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := &oneBudget{ObjectMeta: metav1.ObjectMeta{Name: "main", Generation: 7}, Status: tc.status}
			b.Spec.Selector = &metav1.LabelSelector{MatchLabels: tc.matches}
			if tc.matches == nil {
				b.Spec.Selector.MatchLabels = map[string]string{"app": "etcd", "part-of": "main", "more": "of it"}
			}
			o := workload.Observation{Selector: selector}
			got, err := o.Moot(t.Context(), b, rollout.Refusal{Words: "Cannot evict pod. " + tc.words})
			if got != tc.want || fmt.Sprint(err) != cmp.Or(tc.err, "<nil>") {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
}

func TestAFenceChangesTheVeryPod(t *testing.T) {
	const patch, read = "PATCH etcd-main-1", "READ etcd-main-1"
	for _, tc := range []struct {
		name    string
		world   func(*server)
		asked   []string
		version string
		outcome record.Outcome
	}{
		{"a pod as it was", func(*server) {}, []string{patch}, "201", record.Done},
		{"a pod that has changed since: an eviction may have done that, and go on",
			func(s *server) { s.change(s.find("etcd-main-1")) },
			[]string{patch}, "202", record.Done},
		{"a pod that is on its way out",
			func(s *server) { s.find("etcd-main-1").DeletionTimestamp = ptr(metav1.Now()) },
			[]string{patch}, "201", record.Done},
		{"the same fence once more changes nothing", func(s *server) {
			s.find("etcd-main-1").Annotations = map[string]string{record.FencedAnnotation: "epoch 7"}
		}, []string{patch}, "101", record.Done},
		{"another pod of that name: the one that was meant is gone", func(s *server) { s.recreate("etcd-main-1") },
			[]string{patch, read}, "", record.Refused},
		{"the same by a conflict", func(s *server) {
			s.recreate("etcd-main-1")
			s.fail["PATCH"] = apierrors.NewConflict(podResource, "etcd-main-1", errors.New("the UID does not match"))
		}, []string{patch, read}, "", record.Refused},
		{"another pod that a webhook does not let us change", func(s *server) {
			s.recreate("etcd-main-1")
			s.fail["PATCH"] = apierrors.NewForbidden(podResource, "etcd-main-1", errors.New("denied the request"))
		}, []string{patch, read}, "", record.Refused},
		{"a pod that is gone", func(s *server) { s.drop("etcd-main-1") }, []string{patch, read}, "", record.Refused},
		{"a pod that is there, although something in between does not find it", func(s *server) {
			s.fail["PATCH"] = apierrors.NewNotFound(podResource, "etcd-main-1")
		}, []string{patch, read}, "", record.Unclear},
		{"a conflict for another reason is no fence", func(s *server) {
			s.fail["PATCH"] = apierrors.NewConflict(podResource, "etcd-main-1", errors.New("busy"))
		}, []string{patch, read}, "", record.Unclear},
		{"nor is a conflict when the pod cannot be read", func(s *server) {
			s.recreate("etcd-main-1")
			s.fail["PATCH"] = apierrors.NewConflict(podResource, "etcd-main-1", errors.New("busy"))
			s.fail["READ"] = apierrors.NewForbidden(podResource, "", errors.New("no"))
		}, []string{patch, read}, "", record.Unclear},
		{"an invalid change is none", func(s *server) {
			s.fail["PATCH"] = apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "etcd-main-1", nil)
		}, []string{patch, read}, "", record.Failed},
		{"a missing permission shows as one", func(s *server) {
			s.fail["PATCH"] = apierrors.NewForbidden(podResource, "etcd-main-1", errors.New("no"))
		}, []string{patch, read}, "", record.Failed},
		{"a fence that failed in the server may stand or not", func(s *server) {
			s.fail["PATCH"] = apierrors.NewInternalError(errors.New("etcd"))
		}, []string{patch, read}, "", record.Unclear},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, w := newServer(t)
			tc.world(s)
			version, err := w.Fence(t.Context(), record.Pod{Name: "etcd-main-1", UID: "u1", ResourceVersion: "101"},
				"epoch 7")
			if got := record.OutcomeOf(err); got != tc.outcome || version != tc.version {
				t.Errorf("outcome %d, version %q, want %d, %q: %v", got, version, tc.outcome, tc.version, err)
			}
			if !slices.Equal(s.asked, tc.asked) {
				t.Errorf("asked %q, want %q", s.asked, tc.asked)
			}
			if err == nil && s.find("etcd-main-1").Annotations[record.FencedAnnotation] != "epoch 7" {
				t.Errorf("annotations %v", s.find("etcd-main-1").Annotations)
			}
			if tc.outcome == record.Failed && tc.name == "a missing permission shows as one" &&
				!apierrors.IsForbidden(err) {
				t.Errorf("%v does not show that the permission is missing", err)
			}
		})
	}
}

// The reason for all this: a removal that was decided before a fence is refused after it.
func TestAfterAFenceAnOlderRemovalIsRefused(t *testing.T) {
	for _, o := range []record.Operation{record.Delete, record.Evict} {
		t.Run(string(o), func(t *testing.T) {
			s, w := newServer(t)
			if _, err := w.Fence(t.Context(), record.Pod{Name: "etcd-main-1", UID: "u1", ResourceVersion: "101"},
				"epoch 7"); err != nil {
				t.Fatal(err)
			}
			if err := w.Remove(t.Context(), workload.Observation{},
				removal(o)); record.OutcomeOf(err) != record.Refused || s.find("etcd-main-1") == nil {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestFenceableAreThePodsThatARemovalCanReach(t *testing.T) {
	s, w := newServer(t)
	s.find("etcd-main-0").DeletionTimestamp = ptr(metav1.Now())
	s.find("etcd-main-2").OwnerReferences = nil // An orphan is no candidate, and becomes one by a change.
	s.pods = append(s.pods, pod(func(p *corev1.Pod) {
		p.Name, p.OwnerReferences = "etcd-main-8", []metav1.OwnerReference{{Kind: "Job", Name: "etcd-main"}}
	}), pod(func(p *corev1.Pod) { p.Name, p.UID, p.ResourceVersion = "etcd-main-7", "u7", "107" }),
		pod(func(p *corev1.Pod) { p.Name = "etcd-main-debug" }), pod(func(p *corev1.Pod) { p.Name = "other-1" }))
	pods, err := w.Fenceable(t.Context())
	want := []record.Pod{
		{Name: "etcd-main-1", UID: "u1", ResourceVersion: "101"},
		{Name: "etcd-main-7", UID: "u7", ResourceVersion: "107"}, // Left over by a scale-in.
	}
	if err != nil || !slices.Equal(pods, want) {
		t.Errorf("%v\n got %v\nwant %v", err, pods, want)
	}
	s.fail["GET"] = apierrors.NewForbidden(podResource, "", errors.New("no"))
	if pods, err := w.Fenceable(t.Context()); err == nil || pods != nil {
		t.Errorf("what could not be read counts as %v, %v", pods, err)
	}
}

func TestSelfIsThePodThatTheCoordinatorRunsIn(t *testing.T) {
	for _, tc := range []struct {
		name, pod string
		world     func(*server)
		ok        bool
	}{
		{"a pod of the StatefulSet", "etcd-main-1", func(*server) {}, true},
		{"no name, as in a Job", "", func(*server) {}, false},
		{"a pod that does not exist", "etcd-main-9", func(*server) {}, false},
		{"a pod that is none of the StatefulSet's", "etcd-main-1",
			func(s *server) { s.find("etcd-main-1").OwnerReferences = nil }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, w := newServer(t)
			tc.world(s)
			p, ok, err := w.Self(t.Context(), tc.pod)
			if err != nil || ok != tc.ok {
				t.Fatalf("%v, %v", ok, err)
			}
			if ok && (p.Name != "etcd-main-1" || p.UID != "u1" ||
				p.Revision != s.find("etcd-main-1").Labels[appsv1.ControllerRevisionHashLabelKey]) {
				t.Errorf("%+v", p)
			}
		})
	}
	s, w := newServer(t)
	s.fail["GET"] = apierrors.NewForbidden(podResource, "", errors.New("no"))
	if _, ok, err := w.Self(t.Context(), "etcd-main-1"); ok || err == nil {
		t.Errorf("what could not be read counts as %v, %v", ok, err)
	}
}
