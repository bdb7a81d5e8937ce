package main

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/quorate/quorate/internal/adoption"
	"github.com/quorate/quorate/internal/etcdtest"
	"github.com/quorate/quorate/pkg/rollout"
)

// place is a cluster that can be checked: its objects, and members that answer through port-forwards.
type place struct {
	*api
	etcd *etcdtest.Cluster
	// endpoints are given to the command, those of all members if it is nil.
	endpoints []string
}

// template changes the pod template, and every pod.
func (p *place) template(change func(*corev1.PodSpec)) {
	change(&p.set.Spec.Template.Spec)
	for _, pod := range p.pods {
		change(&pod.Spec)
	}
}

// members changes the members.
func (p *place) members(change func([]*etcdtest.Member)) {
	p.etcd.Set(func(_ *etcdtest.Cluster, members []*etcdtest.Member) { change(members) })
}

func budgetOf(name string, most int32) policyv1.PodDisruptionBudget {
	v := intstr.FromInt32(most)
	return policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "garden"},
		Spec: policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &v,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "etcd-main"}}}}
}

// adopted is a cluster with everything that Quorate needs, and no rollout under way.
func adopted(t *testing.T) *place {
	t.Helper()
	w := with(3, complete)
	withSidecar(w)
	p := &place{etcd: membersOf(t, 3), api: &api{world: w, reviewed: true, kubernetes: "v1.36.3",
		accounts: []string{"default", "etcd-main"}, budgets: []policyv1.PodDisruptionBudget{budgetOf("etcd-main", 1)}}}
	w.set.Spec.Template.Spec = *w.pods[0].Spec.DeepCopy()
	w.set.Spec.Template.Spec.Volumes = nil // They are claims.
	p.template(func(s *corev1.PodSpec) {
		s.ServiceAccountName = "etcd-main"
		s.Containers[2].Env = append(s.Containers[2].Env, corev1.EnvVar{Name: "POD_NAMESPACE",
			ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.namespace"}}})
	})
	for _, pod := range w.pods {
		p.claims = append(p.claims, corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data-" + pod.Name,
			Namespace: "garden"}})
	}
	p.members(func(members []*etcdtest.Member) {
		for i, m := range members {
			m.Advertised = []string{"https://etcd-main-" + strconv.Itoa(i) + ".invalid:2379"}
		}
	})
	return p
}

// fresh is a cluster to which nobody has brought anything yet.
func fresh(p *place) {
	foreign(p.world)
	p.template(func(s *corev1.PodSpec) {
		s.ServiceAccountName, s.Containers = "", s.Containers[:2]
	})
	for _, n := range adoption.Needs("garden", "etcd-main", "etcd-main-0", "etcd-main-1", "etcd-main-2") {
		p.refused = append(p.refused, n.String())
	}
	p.accounts, p.budgets = []string{"default"}, nil
}

// check runs the command, and returns what it prints.
func (p *place) check(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	endpoints := p.endpoints
	if endpoints == nil {
		endpoints = p.etcd.URLs()
	}
	return invoke(t, "quorate", answering(t, p.api), append([]string{"check", "--probe-timeout=2s", "-e",
		strings.Join(endpoints, ","), "etcd-main"}, args...)...)
}

func checked(t *testing.T, text string) *adoption.Report {
	t.Helper()
	var r struct {
		APIVersion, Kind string
		*adoption.Report
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if r.APIVersion != "quorate.dev/v1alpha1" || r.Kind != "Check" {
		t.Errorf("apiVersion %q, kind %q", r.APIVersion, r.Kind)
	}
	return r.Report
}

// A cluster is ready, but for one thing. The row says which check finds it, what it says of it, and what to do.
var checkRows = []struct {
	name, check string
	result      adoption.Result
	says, do    string
	args        string
	change      func(*place)
}{
	{"etcd runs in a container of another name", "Containers", adoption.Fail,
		"no container is called etcd in the pod template, etcd-main-0, etcd-main-1, etcd-main-2",
		"quorate check -n garden etcd-main --etcd-container=member", "", func(p *place) {
			p.template(func(s *corev1.PodSpec) { s.Containers[0].Name, s.Containers[0].Image = "member", "r/etcd:3.5" })
		}},
	{"the sidecars look for another container", "Containers", adoption.Fail,
		"the sidecars look for etcd in the container member", "the same --etcd-container", "", func(p *place) {
			p.template(func(s *corev1.PodSpec) {
				s.Containers[2].Args = append(slices.Clone(s.Containers[2].Args), "--etcd-container=member")
			})
		}},
	{"a sidecar that cannot be sick is told", "Containers", adoption.Pass, "no container backup-restore", "", "",
		func(p *place) { p.template(func(s *corev1.PodSpec) { s.Containers[1].Name = "backup" }) }},
	{"the data volume is an emptyDir", "Data", adoption.Fail, "each removal would cost the member its data",
		"--etcd-data-dir", "", func(p *place) { p.set.Spec.VolumeClaimTemplates = nil }},
	{"the data may be lost", "Data", adoption.Warn, "allowed explicitly", "", "--allow-volatile-data",
		func(p *place) { p.set.Spec.VolumeClaimTemplates = nil }},
	{"the data directory is elsewhere", "Data", adoption.Fail, "each removal would cost", "",
		"--etcd-data-dir=/elsewhere", func(*place) {}},
	{"an older pod keeps its data elsewhere", "Data", adoption.Fail, "etcd-main-1 keeps its data elsewhere",
		"backup", "",
		func(p *place) {
			p.pods[1].Spec.Volumes[0].VolumeSource = corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
		}},
	{"somebody has deleted a claim", "Claims", adoption.Fail, "data-etcd-main-2, which goes together with the pod",
		"backup", "", func(p *place) { at := ago(time.Hour); p.claims[2].DeletionTimestamp = &at }},
	{"a claim template that no pod has", "Claims", adoption.Fail, "etcd-main-0 has no volume for the claim template " +
		"wal",
		"--cascade=orphan", "", func(p *place) {
			p.set.Spec.VolumeClaimTemplates = append(p.set.Spec.VolumeClaimTemplates,
				corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "wal"}})
		}},
	{"the claims go with the StatefulSet", "Claims", adoption.Warn, "whenDeleted is Delete", "Retain", "",
		func(p *place) {
			p.set.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
				WhenDeleted: appsv1.DeletePersistentVolumeClaimRetentionPolicyType}
		}},
	{"claims may not be read", "Claims", adoption.Unknown, "you may not list persistentvolumeclaims in namespace " +
		"garden",
		"", "", func(p *place) { p.forbids = []string{"list persistentvolumeclaims"} }},
	{"OrderedReady", "Recreation", adoption.Warn, "OrderedReady", "--cascade=orphan", "",
		func(p *place) { p.set.Spec.PodManagementPolicy = appsv1.OrderedReadyPodManagement }},
	{"an older Kubernetes", "Kubernetes", adoption.Warn, "1.35 to 1.37, and this is v1.31.4", "first", "",
		func(p *place) { p.kubernetes = "v1.31.4" }},
	{"the version of Kubernetes is not told", "Kubernetes", adoption.Unknown, "not known", "", "",
		func(p *place) { p.kubernetes = "" }},
	{"a newer etcd", "Etcd", adoption.Warn, "3.4 to 3.7, and members tell 3.9.0", "first", "", func(p *place) {
		p.members(func(m []*etcdtest.Member) { m[1].Version = "3.9.0" })
	}},
	{"nobody tells a version", "Etcd", adoption.Unknown, "no member has told its version", "", "", func(p *place) {
		p.endpoints = []string{"http://127.0.0.1:1"}
	}},
	{"every member advertises the Service", "MemberURLs", adoption.Fail, "etcd-main-0 advertises only addresses that " +
		"other members answer as well: http://etcd-main:2379", "--advertise-client-urls to the pod's own name", "",
		func(p *place) {
			p.members(func(m []*etcdtest.Member) {
				for i := range m {
					m[i].Advertised = []string{"http://etcd-main:2379"}
				}
			})
		}},
	{"every member advertises every address", "MemberURLs", adoption.Fail, "other members answer as well: " +
		"http://0.0.0.0:2379", "", "", func(p *place) {
		p.members(func(m []*etcdtest.Member) {
			for i := range m {
				m[i].Advertised = []string{"http://0.0.0.0:2379"}
			}
		})
	}},
	{"a member advertises its loopback address", "MemberURLs", adoption.Fail, "from its own pod alone: " +
		"http://127.0.0.1:2379", "", "", func(p *place) {
		p.members(func(m []*etcdtest.Member) { m[2].Advertised = []string{"http://127.0.0.1:2379"} })
	}},
	{"a member advertises the Service beside its own name", "MemberURLs", adoption.Warn, "etcd-main-0 " +
		"(http://etcd:2379), etcd-main-1", "Leave it out", "", func(p *place) {
		p.members(func(m []*etcdtest.Member) {
			for i := range 2 {
				m[i].Advertised = append(m[i].Advertised, "http://etcd:2379")
			}
		})
	}},
	{"etcd was not asked", "MemberURLs", adoption.Unknown, "etcd has not told its members", "", "",
		func(p *place) { p.endpoints = []string{"http://127.0.0.1:1"} }},
	{"nobody has signed in", "Authentication", adoption.Fail, "nobody has signed in", "--etcd-username", "",
		func(p *place) {
			p.members(func(m []*etcdtest.Member) {
				for i := range m {
					m[i].AuthErr = rpctypes.ErrGRPCUserEmpty
				}
			})
		}},
	{"a user without the role root", "Authentication", adoption.Warn, "does not have the role root",
		"grant-role USER root", "",
		func(p *place) {
			p.members(func(m []*etcdtest.Member) {
				for i := range m {
					m[i].AuthErr = rpctypes.ErrGRPCPermissionDenied
				}
			})
		}},
	{"a user who may not ask for a status", "Authentication", adoption.Fail, "refuses what a rollout needs: no " +
		"status: etcd refuses Status", "grant-role", "", func(p *place) {
		p.members(func(m []*etcdtest.Member) {
			for i := range m {
				m[i].AuthErr, m[i].StatusErr = rpctypes.ErrGRPCPermissionDenied, rpctypes.ErrGRPCPermissionDenied
			}
		})
	}},
	{"the user root", "Authentication", adoption.Pass, "has the role root", "", "", func(p *place) {
		p.members(func(m []*etcdtest.Member) {
			for i := range m {
				m[i].AuthOn = true
			}
		})
	}},
	{"no budget counts the pods", "Budget", adoption.Warn, "no PodDisruptionBudget", "kubectl create " +
		"poddisruptionbudget etcd-main --max-unavailable=1 --selector=app=etcd-main", "",
		func(p *place) { p.budgets = nil }},
	{"two budgets count the pods", "Budget", adoption.Fail, "refuses every eviction: all, etcd-main",
		"kubectl get poddisruptionbudgets all etcd-main -o yaml", "",
		func(p *place) { p.budgets = append(p.budgets, budgetOf("all", 1)) }},
	{"a budget that never allows", "Budget", adoption.Fail, "never lets a pod go", "--removal=delete", "",
		func(p *place) { p.budgets[0] = budgetOf("etcd-main", 0) }},
	{"no budget is asked before a deletion", "Budget", adoption.Pass, "no budget is asked", "", "--removal=delete",
		func(p *place) { p.budgets[0] = budgetOf("etcd-main", 0) }},
	{"budgets may not be read", "Budget", adoption.Unknown, "you may not list poddisruptionbudgets", "", "",
		func(p *place) { p.forbids = []string{"list poddisruptionbudgets"} }},
	{"nobody has made the ServiceAccount", "ServiceAccount", adoption.Fail, "names the ServiceAccount etcd-main, " +
		"which does not exist", "kubectl apply -k deploy/base -n garden", "",
		func(p *place) { p.accounts = []string{"default"} }},
	{"nobody has made the ServiceAccount that the patch names", "ServiceAccount", adoption.Fail,
		"deploy/sidecar-patch.yaml lets the pods run as the ServiceAccount etcd-main, which does not exist",
		"kubectl apply -k deploy/base -n garden", "", fresh},
	{"nobody has made the account of another name", "ServiceAccount", adoption.Fail,
		"names the ServiceAccount etcd, which does not exist", "kubectl create serviceaccount etcd -n garden", "",
		func(p *place) { p.template(func(s *corev1.PodSpec) { s.ServiceAccountName = "etcd" }) }},
	{"accounts may not be read", "ServiceAccount", adoption.Unknown, "you may not get serviceaccounts", "", "",
		func(p *place) { p.forbids = []string{"get serviceaccounts"} }},
	{"the account is that of whoever asks", "ServiceAccount", adoption.Pass, "exists", "", "", func(p *place) {
		p.user, p.forbids = "system:serviceaccount:garden:etcd-main", []string{"get serviceaccounts"}
	}},
	{"the Role is missing a right", "Permissions", adoption.Fail, "the ServiceAccount etcd-main may not patch leases " +
		"quorate-etcd-main", "kubectl apply -k deploy/base -n garden", "",
		func(p *place) { p.refused = []string{"patch leases quorate-etcd-main"} }},
	{"many rights are told in few words", "Permissions", adoption.Fail, "may not get and watch statefulsets " +
		"etcd-main; delete and patch pods etcd-main-1, etcd-main-2; create leases", "", "", func(p *place) {
		p.refused = []string{"get statefulsets etcd-main", "watch statefulsets etcd-main", "create leases",
			"delete pods etcd-main-1", "patch pods etcd-main-1", "delete pods etcd-main-2", "patch pods etcd-main-2"}
	}},
	{"the rights are granted before anything is installed", "Permissions", adoption.Pass, "ServiceAccount etcd-main " +
		"has",
		"", "", func(p *place) {
			fresh(p)
			p.refused = nil
		}},
	{"the Role does not name one of the pods", "Permissions", adoption.Fail, "may not delete pods etcd-main-2", "", "",
		func(p *place) { p.refused = []string{"delete pods etcd-main-2"} }},
	{"a right without which Quorate still rolls", "Permissions", adoption.Warn, "create events (without it, no event " +
		"tells", "", "", func(p *place) { p.refused = []string{"create events"} }},
	{"evictions need no right where pods are deleted", "Permissions", adoption.Pass, "every right", "",
		"--removal=delete", func(p *place) { p.refused = []string{"create pods/eviction etcd-main-0"} }},
	{"the Role is bound to another account", "Permissions", adoption.Fail, "the ServiceAccount etcd may not",
		"kubectl create rolebinding etcd-quorate --role=etcd-main-quorate --serviceaccount=garden:etcd -n garden", "",
		func(p *place) { p.template(func(s *corev1.PodSpec) { s.ServiceAccountName = "etcd" }) }},
	{"the Role is not for everybody's account", "Permissions", adoption.Fail, "the ServiceAccount default may not",
		"Do not bind the Role to the account default", "",
		func(p *place) { p.template(func(s *corev1.PodSpec) { s.ServiceAccountName = "" }) }},
	{"whoever may not ask about others impersonates", "Permissions", adoption.Pass, "every right", "", "",
		func(p *place) { p.forbids, p.impersonates = []string{"create localsubjectaccessreviews"}, true }},
	{"an impersonated account is refused as well", "Permissions", adoption.Fail, "may not list pods", "", "",
		func(p *place) {
			p.forbids, p.impersonates = []string{"create localsubjectaccessreviews"}, true
			p.refused = []string{"list pods"}
		}},
	{"nobody may ask", "Permissions", adoption.Unknown, "you may neither create localsubjectaccessreviews nor " +
		"impersonate",
		"", "", func(p *place) { p.forbids = []string{"create localsubjectaccessreviews"} }},
	{"the account asks for itself", "Permissions", adoption.Fail, "may not list pods", "", "", func(p *place) {
		p.user, p.forbids = "system:serviceaccount:garden:etcd-main", []string{"create localsubjectaccessreviews"}
		p.refused = []string{"list pods"}
	}},
	{"no Quorate in the template", "Sidecars", adoption.Fail, "the pod template has no Quorate",
		"Copy deploy/sidecar-patch.yaml, with your image and etcd's names in it. ", "",
		func(p *place) { p.template(func(s *corev1.PodSpec) { s.Containers = s.Containers[:2] }) }},
	{"the pods keep an account of another name", "Sidecars", adoption.Fail, "the pod template has no Quorate",
		"without serviceAccountName, because the pods keep the account etcd", "",
		func(p *place) {
			p.template(func(s *corev1.PodSpec) { s.Containers, s.ServiceAccountName = s.Containers[:2], "etcd" })
		}},
	{"an Etcd of etcd-druid has not opted in", "Sidecars", adoption.Fail, "the pod template has no Quorate",
		"opt in", "",
		func(p *place) {
			p.template(func(s *corev1.PodSpec) { s.Containers = s.Containers[:2] })
			p.set.OwnerReferences = []metav1.OwnerReference{{Kind: "Etcd", Name: "etcd-main"}}
		}},
	{"Kubernetes still brings the sidecars", "Sidecars", adoption.Fail, "no Quorate in etcd-main-0 yet",
		"kubectl rollout status statefulset/etcd-main -n garden", "", func(p *place) {
			foreign(p.world)
			p.pods[0].Spec.Containers = p.pods[0].Spec.Containers[:2]
		}},
	{"nobody brings the sidecars", "Sidecars", adoption.Fail, "nobody rolls them",
		"sed 's|etcd-main|etcd-main|g; s|image: quorate .*|image: IMAGE|' deploy/bootstrap-job.yaml | kubectl apply -n " +
			"garden -f -", "",
		func(p *place) {
			for _, pod := range p.pods {
				pod.Spec.Containers = pod.Spec.Containers[:2]
			}
		}},
	{"the others bring the last sidecar", "Sidecars", adoption.Fail, "no Quorate in etcd-main-2; the others roll it",
		"quorate status", "", func(p *place) { p.pods[2].Spec.Containers = p.pods[2].Spec.Containers[:2] }},
	{"a sidecar that does not know where it is", "Sidecars", adoption.Fail, "cannot find their StatefulSet",
		"has no POD_NAMESPACE", "", func(p *place) {
			p.template(func(s *corev1.PodSpec) { s.Containers[2].Env = s.Containers[2].Env[:1] })
		}},
	{"a sidecar that crashes", "Sidecars", adoption.Fail, "does not run in etcd-main-1 (CrashLoopBackOff)",
		"See why", "",
		func(p *place) {
			s := &p.pods[1].Status.ContainerStatuses[2]
			s.Ready, s.State = false, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
				Reason: "CrashLoopBackOff"}}
		}},
	{"sidecars of two images", "Sidecars", adoption.Warn, "several versions: quorate, quorate:2",
		"Let the rollout end", "",
		func(p *place) { p.pods[1].Spec.Containers[2].Image = "quorate:2" }},
	{"sidecars of one tag that was pushed twice", "Sidecars", adoption.Warn, "several versions: quorate, quorate " +
		"(b)", "",
		"", func(p *place) {
			p.pods[0].Status.ContainerStatuses[2].ImageID, p.pods[1].Status.ContainerStatuses[2].ImageID = "a", "b"
		}},
	{"Kubernetes rolls pods that have their sidecars", "Strategy", adoption.Fail, "Quorate only looks on",
		"switch now", "",
		func(p *place) { foreign(p.world) }},
	{"Kubernetes rolls pods whose sidecars crash", "Strategy", adoption.Fail, "not yet OnDelete",
		"Leave it until every sidecar runs", "", func(p *place) {
			foreign(p.world)
			s := &p.pods[1].Status.ContainerStatuses[2]
			s.Ready, s.State = false, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
				Reason: "CrashLoopBackOff"}}
		}},
	{"there are no pods, and no sidecar is on its way", "Strategy", adoption.Fail, "not yet OnDelete",
		"Leave it until every pod has its sidecar", "", func(p *place) {
			fresh(p)
			p.pods = nil
		}},
	{"Kubernetes rolls pods that have none yet", "Strategy", adoption.Fail, "not yet OnDelete", "Leave it until", "",
		fresh},
	{"an Etcd's strategy is not for people to change", "Strategy", adoption.Fail, "RollingUpdate", "etcd-druid would " +
		"revert that", "", func(p *place) {
		foreign(p.world)
		p.set.OwnerReferences = []metav1.OwnerReference{{Kind: "Etcd", Name: "etcd-main"}}
	}},
	{"a step of etcd's version that goes wrong", "Preflight", adoption.Fail, "UpgradePath", "in between first", "",
		func(p *place) {
			p.set.Spec.Template.Spec.Containers[0].Image = "etcd:v3.7.3"
			p.set.Status.UpdateRevision = oldRevision
		}},
	{"a step of etcd's version that is fine", "Preflight", adoption.Pass, "nothing is known against the step from " +
		"etcd 3.5.35 to 3.6.16", "", "", func(p *place) {
		p.set.Spec.Template.Spec.Containers[0].Image = "etcd:v3.6.16"
		p.set.Spec.Template.Spec.Containers[0].Command = []string{"etcd"}
		p.set.Status.UpdateRevision = oldRevision
	}},
	{"an image that says no version", "Preflight", adoption.Warn, "not checked: etcd's version", "", "",
		func(p *place) {
			p.set.Spec.Template.Spec.Containers[0].Image = "etcd:ours"
			p.set.Status.UpdateRevision = oldRevision
		}},
	{"a member that is down", "Rollout", adoption.Pass, "Remove etcd-main-1", "", "", func(p *place) {
		p.stopped(1, time.Hour, "CrashLoopBackOff")
		p.etcd.Stop(1)
	}},
	{"voters elsewhere", "Rollout", adoption.Fail, "held by QuorumFloor", "etcdctl member remove b0", "",
		func(p *place) {
			for i := range uint64(2) {
				p.etcd.Add(etcdtest.Member{ID: 0xb0 + i, Name: "other-" + strconv.Itoa(int(i)),
					//nolint:gosec // A handful.
					URL: "http://127.0.0.1:1"})
			}
		}},
	{"a revision name that is no label", "Rollout", adoption.Fail, "held by Returns: " +
		"etcd-main-2: it would not come back", "", "",
		func(p *place) {
			p.set.Status.UpdateRevision = strings.Repeat("x", 70)
			for _, pod := range p.pods {
				pod.Labels[appsv1.ControllerRevisionHashLabelKey] = p.set.Status.UpdateRevision
			}
		}},
	{"a control that cannot be read", "Rollout", adoption.Fail, "held by BadControl", "Correct the annotation", "",
		func(p *place) { p.control(rollout.ControlPaused, "yes please") }},
	{"a pause", "Rollout", adoption.Warn, "it is paused; without that, the first step would be Remove etcd-main-2",
		"quorate resume -n garden etcd-main", "", func(p *place) { p.control(rollout.ControlPaused, "true") }},
	{"a pod that terminates", "Rollout", adoption.Warn, "it would wait: Wait: Terminating", "", "", func(p *place) {
		p.terminating(1, time.Second)
		p.etcd.Stop(1)
	}},
	{"data that are the same", "Hashes", adoption.Pass, "the data of 3 members have the same hash", "", "--data",
		func(*place) {}},
	{"data that differ", "Hashes", adoption.Fail, "at revision 100 the members' data differ: etcd-main-0 00000000, " +
		"etcd-main-1 00000007", "corrupt", "--data", func(p *place) {
		p.members(func(m []*etcdtest.Member) { m[1].Hash = 7 })
	}},
	{"data of which one was compacted meanwhile", "Hashes", adoption.Unknown, "cannot be compared", "Ask again",
		"--data",
		func(p *place) { p.members(func(m []*etcdtest.Member) { m[1].Hash, m[1].Compacted = 7, 90 }) }},
	{"data that etcd keeps to itself", "Hashes", adoption.Unknown, "no hash of etcd-main-1 (etcd refuses", "", "--data",
		func(p *place) {
			p.members(func(m []*etcdtest.Member) { m[1].HashErr = rpctypes.ErrGRPCPermissionDenied })
		}},
}

func TestEachCheckFindsWhatIsMissing(t *testing.T) {
	ready, stderr, code := adopted(t).check(t, "-o", "json")
	before := checked(t, ready)
	if code != 0 || stderr != "" || before.Verdict != adoption.Ready ||
		before.Counts[adoption.Pass] != len(before.Checks) {
		t.Fatalf("it is not ready: exit code %d\n%s%s", code, ready, stderr)
	}
	tried := map[string]bool{}
	for _, tc := range checkRows {
		t.Run(tc.name, func(t *testing.T) {
			p := adopted(t)
			tc.change(p)
			out, stderr, code := p.check(t, append(strings.Fields(tc.args), "-o", "json")...)
			r := checked(t, out)
			i := slices.IndexFunc(r.Checks, func(f adoption.Finding) bool { return f.Check == tc.check })
			if i < 0 {
				t.Fatalf("there is no such check\n%s%s", out, stderr)
			}
			f := r.Checks[i]
			do := f.Do + "\n" + strings.Join(f.Run, "\n")
			if f.Result != tc.result || !strings.Contains(f.Detail, tc.says) || !strings.Contains(do, tc.do) {
				t.Errorf("%s: %s\n%s\nwant %s: %s\n%s", f.Result, f.Detail, do, tc.result, tc.says, tc.do)
			}
			want := map[string]int{adoption.Ready: 0, adoption.NotReady: exitWaiting, adoption.NotKnown: exitFailure}
			if code != want[r.Verdict] || tc.result == adoption.Fail && r.Verdict != adoption.NotReady ||
				tc.result == adoption.Unknown && r.Verdict == adoption.Ready {
				t.Errorf("verdict %s, exit code %d", r.Verdict, code)
			}
			if tc.result == adoption.Fail && strings.TrimSpace(do) == "" {
				t.Errorf("nobody is told what to do: %s", f.Detail)
			}
		})
		tried[tc.check] = true
	}
	for _, c := range adoption.Checks {
		if !tried[c.Name] {
			t.Errorf("no row is about %s", c.Name)
		}
	}
}

// What a warning finds keeps nobody from going on.
func TestAWarningIsReady(t *testing.T) {
	p := adopted(t)
	p.budgets = nil
	out, _, code := p.check(t)
	if code != 0 || !strings.HasPrefix(out, "READY: none of 15 checks fails, 1 with a warning\n") {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

// The commands that ask are checks as well, with --data if that was asked for.
func TestACheckThatCannotAskSaysHow(t *testing.T) {
	p := adopted(t)
	p.endpoints = []string{"http://127.0.0.1:1"}
	out, _, code := p.check(t, "--data")
	if code != exitFailure || !strings.HasPrefix(out, "NOT KNOWN: none of 16 checks fails, and ") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	for _, says := range []string{"\nnot asked: no member of etcd answered\n",
		"\n  quorate check --data -n garden etcd-main ",
		"\n  kubectl exec -n garden etcd-main-0 -c quorate -- /quorate check --data --endpoints="} {
		if !strings.Contains(out, says) {
			t.Errorf("it lacks %q\n%s", says, out)
		}
	}
}

func TestTheWholeOutputOfACheck(t *testing.T) {
	for _, tc := range []struct {
		name   string
		code   int
		args   string
		change func(*place)
	}{
		{"ready", 0, "--data", func(*place) {}},
		{"before-adoption", exitWaiting, "", func(p *place) {
			fresh(p)
			p.endpoints = []string{"http://127.0.0.1:1"}
		}},
		{"everything-wrong", exitWaiting, "--data", func(p *place) {
			fresh(p)
			p.template(func(s *corev1.PodSpec) { s.ServiceAccountName = "etcd" })
			at := ago(time.Hour)
			p.claims[2].DeletionTimestamp = &at
			p.set.Spec.VolumeClaimTemplates = nil
			p.set.Spec.PodManagementPolicy = ""
			p.set.Spec.Template.Spec.Containers[0].Image = "etcd:v3.7.3"
			p.set.Status.UpdateRevision = oldRevision
			p.kubernetes = "v1.29.1"
			p.budgets = []policyv1.PodDisruptionBudget{budgetOf("etcd-main", 1), budgetOf("all", 0)}
			p.control(rollout.ControlPaused, "yes please")
			p.members(func(m []*etcdtest.Member) {
				for i := range m {
					m[i].Advertised, m[i].AuthErr = []string{"http://etcd-main:2379"}, rpctypes.ErrGRPCPermissionDenied
					m[i].StatusErr = rpctypes.ErrGRPCPermissionDenied
				}
				m[1].Hash = 7
			})
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := adopted(t)
			tc.change(p)
			out, _, code := p.check(t, strings.Fields(tc.args)...)
			if code != tc.code {
				t.Errorf("exit code %d, want %d", code, tc.code)
			}
			expect(t, filepath.Join("testdata", "check", tc.name+".txt"), out)
		})
	}
}

func TestACheckOfFiles(t *testing.T) {
	p := adopted(t)
	out, err := runCheck(t, p.dumped(t)...)
	if codeOf(err) != exitFailure || !strings.HasPrefix(out, "NOT KNOWN: none of 15 checks fails, and ") {
		t.Errorf("%v\n%s", err, out)
	}
	expect(t, filepath.Join("testdata", "check", "files.txt"), steady(out))
	p.noHealth = true
	foreign(p.world)
	out, err = runCheck(t, p.dumped(t)...)
	if codeOf(err) != exitWaiting || !strings.Contains(out, "\n  quorate check -f ") {
		t.Errorf("it does not say how to ask: %v\n%s", err, out)
	}
}

func runCheck(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := root()
	var out strings.Builder
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(append([]string{"check"}, args...))
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// Nobody has to name the only one, whoever rolls it today.
func TestACheckOfTheOnlyOne(t *testing.T) {
	p := adopted(t)
	fresh(p)
	kubeconfig := answering(t, p.api)
	for _, args := range []string{"check", "plan --assume-on-delete"} {
		out, stderr, code := invoke(t, "quorate", kubeconfig, append(strings.Fields(args), "-e", p.etcd.URL(0))...)
		if code == exitBadInput || !strings.Contains(out, "etcd-main") {
			t.Errorf("%s: exit code %d\n%s%s", args, code, out, stderr)
		}
	}
	_, stderr, code := invoke(t, "quorate", kubeconfig, "check", "--etcd-container=other")
	if code != exitBadInput || !strings.Contains(stderr, "in namespace garden none has a container other") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

// Of several, the worst decides.
func TestAChecksOfSeveral(t *testing.T) {
	p := adopted(t)
	other := p.set.DeepCopy()
	other.Name, other.UID = "etcd-events", "2"
	p.others = []appsv1.StatefulSet{*other}
	kubeconfig := answering(t, p.api)
	out, stderr, code := invoke(t, "quorate", kubeconfig, "check", "sts/etcd-main", "sts/etcd-events",
		"--probe-timeout=1s")
	if code != exitWaiting || strings.Count(out, "\nStatefulSet garden/etcd-") != 2 {
		t.Errorf("exit code %d\n%s%s", code, out, stderr)
	}
	out, _, _ = invoke(t, "quorate", kubeconfig, "check", "etcd-main", "etcd-events", "-o", "json",
		"--probe-timeout=1s")
	if !strings.Contains(out, `"kind": "CheckList"`) || strings.Count(out, `"kind": "Check"`) != 2 {
		t.Errorf("%s", out)
	}
	for args, says := range map[string]string{
		"check etcd-main etcd-events -e http://127.0.0.1:1": "--endpoints: goes with one StatefulSet",
		"check etcd-main --data -f x":                       "--data: goes with a live cluster",
		"check etcd-main --data-timeout=0":                  "--data-timeout: 0s: must be more than 0",
		"check etcd-mane":                                   "did you mean etcd-main?",
		"check etcd-main -o wide":                           `--output: "wide"`,
	} {
		if _, stderr, code := invoke(t, "quorate", kubeconfig, strings.Fields(args)...); code != exitBadInput ||
			!strings.Contains(stderr, says) {
			t.Errorf("%s: exit code %d: %s", args, code, stderr)
		}
	}
}
