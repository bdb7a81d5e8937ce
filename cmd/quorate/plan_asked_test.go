package main

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"

	"github.com/quorate/quorate/internal/etcdtest"
	"github.com/quorate/quorate/internal/report"
)

// unasked are the situations of which a file is missing. What is wanted is the decision that the rest comes to where
// it is known who serves, and nothing otherwise.
var unasked = []situation{
	{"member-list-missing", "", "", 3, func(w *world) { w.noList = true }},
	{"member-list-missing-and-no-member-serves", "Remove etcd-main-1 - NotServingFirst", "", 3, func(w *world) {
		w.quorumLost(20 * time.Minute)
		w.stopped(1, 20*time.Minute, "CrashLoopBackOff")
		w.noList = true
	}},
	{"health-missing", "", "", 3, func(w *world) { w.noHealth = true }},
	{"status-missing", "Wait - CaughtUp Serving", "", 3, func(w *world) { w.noStatus = true }},
	{"status-missing-whole-order", "Wait - CaughtUp Serving", "--all", 3, func(w *world) { w.noStatus = true }},
	{"nothing-of-etcd", "", "", 3, func(w *world) {
		withSidecar(w)
		w.noList, w.noStatus, w.noHealth = true, true, true
	}},
}

// withSidecar: Quorate runs in a container of its own, as deploy/sidecar-patch.yaml has it.
func withSidecar(w *world) {
	for _, p := range w.pods {
		p.Spec.Hostname, p.Spec.Subdomain = p.Name, "etcd-main-peer"
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{
			Name: "quorate", Image: "quorate", Args: []string{"sidecar", "--endpoints=https://etcd-main-local:2379",
				"--cacert=/var/etcd/ssl/ca/bundle.crt", "--cert=/var/etcd/ssl/client/tls.crt",
				"--key=/var/etcd/ssl/client/tls.key", "--etcd-password=secret"},
			Env: []corev1.EnvVar{{Name: "POD_NAME", ValueFrom: &corev1.EnvVarSource{
				FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}},
		})
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses,
			corev1.ContainerStatus{Name: "quorate", Ready: true, State: running(2 * day)})
	}
}

// inHost: Quorate runs inside etcd-backup-restore, which has no quorate command.
func inHost(w *world) {
	for _, p := range w.pods {
		p.Spec.Hostname, p.Spec.Subdomain = p.Name, "etcd-main-peer"
		p.Spec.Containers[1].Args = []string{"server", "--endpoints=https://etcd-main-local:2379",
			"--enable-quorum-aware-pod-updates=true"}
	}
}

// steady replaces what is another one in every run.
func steady(text string) string {
	text = regexp.MustCompile(`-f /\S+/objects.yaml`).ReplaceAllString(text, "-f objects.yaml")
	text = regexp.MustCompile(`=/\S+/(\S+\.json)`).ReplaceAllString(text, "=$1")
	ages := regexp.MustCompile(`reported \d+s ago: (.*), for 3m\d*s?`)
	return ages.ReplaceAllString(text, "reported 4s ago: $1, for 3m")
}

func TestAPlanWithoutAFileOfEtcdsIsNoDecision(t *testing.T) {
	base := filepath.Join("testdata", "asked")
	for _, s := range unasked {
		t.Run(s.name, func(t *testing.T) {
			args := append(s.make().dumped(t), strings.Fields(s.args)...)
			table, err := runPlan(t, args...)
			if !errors.Is(err, errNotAsked) || codeOf(err) != exitFailure {
				t.Errorf("exit code %d (%v)", codeOf(err), err)
			}
			expect(t, filepath.Join(base, s.name+".txt"), steady(table))
			text, err := runPlan(t, append(args, "-o", "json")...)
			if err == nil || codeOf(err) != exitFailure || !strings.HasPrefix(err.Error(), "not asked: ") {
				t.Errorf("exit code %d (%v)", codeOf(err), err)
			}
			if s.want == "" {
				if text != "" {
					t.Errorf("a program may take this for a decision: %s", text)
				}
				return
			}
			if got := summaryOf(t, text); got != s.want {
				t.Errorf("the rest comes to %q, want %q", got, s.want)
			}
			p := plansOf(t, text)[0]
			if p.NotAsked == nil || !p.NotAsked.Partly || p.Do != "" {
				t.Errorf("it is taken for a decision, or advises something: %s", text)
			}
		})
	}
}

// A file without a line is no answer: etcdctl writes one for each endpoint that it asks.
func TestTheHealthOfNoEndpointIsNoAnswer(t *testing.T) {
	args := newWorld(3).dumped(t)
	writeFiles(t, filepath.Dir(args[3]), map[string][]byte{"endpoint-health.json": []byte("[]\n")})
	out, err := runPlan(t, args...)
	if !errors.Is(err, errNotAsked) || !strings.Contains(out, "--endpoint-health has no endpoint in it") {
		t.Errorf("%v\n%s", err, out)
	}
}

// Some decisions need no etcd.
func TestWhatKubernetesAloneDecidesIsADecision(t *testing.T) {
	for want, change := range map[string]func(*world){
		"Hold - Paused Held":        setting("quorate.dev/paused", "true"),
		"Hold - BadControl Held":    setting("quorate.dev/paused", "yes please"),
		"Wait - StaleRevision Held": func(w *world) { w.set.Generation = 8 },
		"Idle - - NotOurs":          foreign,
	} {
		t.Run(want, func(t *testing.T) {
			w := with(3, change)
			w.noList, w.noStatus, w.noHealth = true, true, true
			code := exitWaiting
			if strings.HasPrefix(want, "Idle") {
				code = 0
			}
			offline, err := runPlan(t, append(w.dumped(t), "-o", "json")...)
			if codeOf(err) != code || summaryOf(t, offline) != want {
				t.Errorf("offline: exit code %d\n%s", codeOf(err), offline)
			}
			live, stderr, got := invoke(t, "quorate", apiServer(t, w), "plan", "-o", "json", "-e", "http://127.0.0.1:1",
				"etcd-main")
			if got != code || summaryOf(t, live) != want {
				t.Errorf("live: exit code %d\n%s%s", got, live, stderr)
			}
			if !strings.Contains(stderr, "connection refused") && want != "Idle - - NotOurs" {
				t.Errorf("standard error does not say that etcd was asked in vain: %q", stderr)
			}
		})
	}
}

func TestALivePlanThatNobodyAnswersIsNoDecision(t *testing.T) {
	base := filepath.Join("testdata", "asked")
	refusing := []string{"-e", "http://127.0.0.1:1"}
	evicting := func(w *world) { w.tells(t, time.Now().Add(-4*time.Second), evictionsRefused) }
	for _, tc := range []struct {
		name    string
		change  func(*world)
		args    []string
		podName string
	}{
		{"nobody-at-the-given-endpoint", withSidecar, refusing, ""},
		{"and-the-coordinator-has-reported", func(w *world) { withSidecar(w); evicting(w) }, refusing, ""},
		{"and-the-whole-order-is-asked-for", func(w *world) { withSidecar(w); evicting(w) },
			append(slices.Clone(refusing), "--all"), ""},
		{"and-the-template-has-changed-since", func(w *world) {
			evicting(w)
			w.set.Status.UpdateRevision = "etcd-main-5b8d6f9c77"
		}, refusing, ""},
		{"and-Quorate-runs-inside-a-host", inHost, refusing, ""},
		{"and-no-pod-has-Quorate", healthy, refusing, ""},
		{"and-no-pod-runs", func(w *world) {
			for _, p := range w.pods {
				p.Status.Phase, p.Status.ContainerStatuses = corev1.PodPending, nil
			}
		}, refusing, ""},
		{"in-a-members-pod", withSidecar, refusing, "etcd-main-1"},
		{"of-a-single-member", func(w *world) {
			one := int32(1)
			withSidecar(w)
			w.set.Spec.Replicas, w.pods, w.members = &one, w.pods[:1], w.members[:1]
		}, refusing, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			kubeconfig := apiServer(t, with(3, tc.change))
			out, code := live(t, kubeconfig, tc.podName, append([]string{"--probe-timeout=2s"}, tc.args...)...)
			if code != exitFailure {
				t.Errorf("exit code %d", code)
			}
			expect(t, filepath.Join(base, tc.name+".txt"), steady(out))
			if strings.Contains(out, "May be overridden") && tc.name == "nobody-at-the-given-endpoint" {
				t.Errorf("it proposes an override: %s", out)
			}
		})
	}
}

// live runs a plan of etcd-main, and returns what it prints on standard output, but for the error.
func live(t *testing.T, kubeconfig, podName string, args ...string) (stdout string, code int) {
	t.Helper()
	t.Setenv("POD_NAME", podName)
	t.Setenv("POD_NAMESPACE", "")
	t.Setenv("KUBECONFIG", kubeconfig)
	out, err := runPlan(t, append([]string{"-n", "garden", "etcd-main"}, args...)...)
	return out, codeOf(err)
}

func TestAProgramGetsNoPlanThatNobodyAnswers(t *testing.T) {
	w := with(3, withSidecar)
	for _, output := range []string{"json", "yaml"} {
		stdout, stderr, code := invoke(t, "quorate", apiServer(t, w), "plan", "-o", output, "-e", "http://127.0.0.1:1",
			"etcd-main")
		if code != exitFailure || stdout != "" {
			t.Errorf("exit code %d, standard output %q", code, stdout)
		}
		for _, words := range []string{"not asked: no member of etcd answered",
			"  http://127.0.0.1:1: ",
			"connection refused", "kubectl exec -n garden etcd-main-0 -c quorate -- /quorate plan --endpoints"} {
			if !strings.Contains(stderr, words) {
				t.Errorf("standard error lacks %q: %s", words, stderr)
			}
		}
		if strings.Contains(stderr, "secret") {
			t.Errorf("it tells the password: %s", stderr)
		}
	}
}

// The coordinator's word comes first, whether or not etcd was asked.
func TestTheCoordinatorsWordComesFirst(t *testing.T) {
	etcd := membersOf(t, 3)
	w := newWorld(3)
	w.tells(t, time.Now().Add(-4*time.Second), evictionsRefused)
	kubeconfig := apiServer(t, w)
	const word = "etcd-main-1 (coordinator, epoch 4) reported 4s ago: Wait: DisruptionBudget, for 3m"
	for name, args := range map[string][]string{
		"asked": {"-e", etcd.URL(0)}, "the whole order": {"-e", etcd.URL(0), "--all"},
		"not asked": {"-e", "http://127.0.0.1:1"},
	} {
		t.Run(name, func(t *testing.T) {
			out, _ := live(t, kubeconfig, "", args...)
			out = steady(out)
			if first, _, _ := strings.Cut(out, "\n"); !strings.HasPrefix(first, word) {
				t.Errorf("the first line is\n%s\nwant\n%s", first, word)
			}
			if asked := !strings.Contains(out, "\nnot asked: "); asked != (name != "not asked") {
				t.Errorf("asked: %v\n%s", asked, out)
			}
		})
	}
	out, _ := live(t, kubeconfig, "", "-e", etcd.URL(0), "-o", "json")
	if p := plansOf(t, out)[0]; p.Reported == nil || p.Reported.Guard != "DisruptionBudget" || p.Reported.Epoch != 4 ||
		p.Reported.Candidates != nil {
		t.Errorf("%+v", p.Reported)
	}
	w.tells(t, time.Now().Add(-12*time.Minute), evictionsRefused)
	if out, _ := live(t, kubeconfig, "", "-e", etcd.URL(0)); strings.Contains(out, "reported") {
		t.Errorf("an old report is no word: %s", out)
	}
}

// Where nobody says which endpoints to ask, the pods' specs do.
func TestAPlanFindsTheMembersByThePodsSpecs(t *testing.T) {
	etcd := membersOf(t, 3)
	w := newWorld(3)
	advertising := func(w *world, url func(i int) string) {
		for i, p := range w.pods {
			p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "ETCD_ADVERTISE_CLIENT_URLS", Value: url(i)}}
		}
	}
	// A loopback address is another one in every pod. So the members are where the pods' own addresses are.
	advertising(w, func(int) string { return "http://0.0.0.0:" + port(t, etcd.URL(0)) })
	for _, p := range w.pods {
		p.Status.PodIP = "127.0.0.1"
	}
	out, code := live(t, apiServer(t, w), "")
	if code != 0 || !strings.HasPrefix(out, "Remove etcd-main-2") {
		t.Errorf("exit code %d\n%s", code, out)
	}

	advertising(w, func(i int) string { return fmt.Sprintf("http://etcd-main-%d.invalid:2379", i) })
	out, code = live(t, apiServer(t, w), "", "--probe-timeout=2s")
	for i := range 3 {
		if !strings.Contains(out, fmt.Sprintf("  http://etcd-main-%d.invalid:2379: ", i)) {
			t.Errorf("it does not say what it has tried: %s", out)
		}
	}
	if code != exitFailure || !strings.HasPrefix(out, "not asked: ") || strings.Contains(out, "127.0.0.1:2379:") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	for name, explicit := range map[string][]string{
		"the flag": {"-e", etcd.URL(0)}, "the file": {"--config", endpointsFile(t, etcd.URL(0))},
	} {
		if out, code := live(t, apiServer(t, w), "", explicit...); code != 0 || !strings.HasPrefix(out, "Remove ") {
			t.Errorf("%s does not win: exit code %d\n%s", name, code, out)
		}
	}
}

func port(t *testing.T, url string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func endpointsFile(t *testing.T, url string) string {
	t.Helper()
	dir := t.TempDir()
	writeFiles(t, dir, map[string][]byte{"quorate.yaml": []byte("endpoints: " + url)})
	return filepath.Join(dir, "quorate.yaml")
}

// In a member's pod its sidecar's own way is the nearest, whatever the members advertise.
func TestAPlanInAMembersPodAsksAsItsSidecarDoes(t *testing.T) {
	etcd := membersOf(t, 3)
	w := with(3, withSidecar)
	sidecar := &w.pods[1].Spec.Containers[2]
	sidecar.Args = []string{"sidecar", "--endpoints=" + etcd.URL(1)}
	out, code := live(t, apiServer(t, w), "etcd-main-1", "-n", "garden")
	if code != 0 || !strings.HasPrefix(out, "Remove etcd-main-2") {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

// A port-forward to one member finds the member list, and the names on it lead nowhere from a laptop.
func TestAPlanThroughPortForwards(t *testing.T) {
	etcd := membersOf(t, 3)
	etcd.Set(func(_ *etcdtest.Cluster, members []*etcdtest.Member) {
		for i, m := range members {
			m.Advertised = []string{"http://etcd-main-" + strconv.Itoa(i) + ".invalid:2379"}
		}
	})
	kubeconfig := apiServer(t, newWorld(3))
	out, code := live(t, kubeconfig, "", "-e", strings.Join(etcd.URLs(), ","))
	if code != 0 || !strings.HasPrefix(out, "Remove etcd-main-2") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	// The others may be as well as can be.
	out, code = live(t, kubeconfig, "", "-e", etcd.URL(1), "--probe-timeout=2s")
	if code != exitFailure || !strings.HasPrefix(out, "not asked: 1 of 3 members answered, and there is no port-f") ||
		!strings.Contains(out, "  etcd-main-2 (http://etcd-main-2.invalid:2379): ") ||
		strings.Contains(out, "etcd-main-1 (") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	// In a member's own pod an address on this machine is the member's, and what the coordinator cannot reach is not
	// to be reached here either.
	out, code = live(t, kubeconfig, "etcd-main-1", "-e", strings.Join(etcd.URLs(), ","), "--probe-timeout=2s")
	if code != exitFailure || !strings.HasPrefix(out, "not asked: etcd's member list is known, but no ") ||
		!strings.Contains(out, "  etcd-main-2 (http://etcd-main-2.invalid:2379): ") {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

// What the coordinator has reported may be anything: others write the Lease.
func TestAReportIsPrintedHarmlessly(t *testing.T) {
	w := newWorld(3)
	w.tells(t, time.Now().Add(-time.Second), func(s *report.Sight) { s.Coordinator = "etcd\x1b[2Jmain" })
	out, _ := live(t, apiServer(t, w), "", "-e", "http://127.0.0.1:1")
	if strings.Contains(out, "\x1b") || !strings.HasPrefix(out, "etcd [2Jmain (coordinator") {
		t.Errorf("%q", out)
	}
}

// etcd may be there and say nothing, and then to look for it elsewhere helps nobody.
func TestEtcdThatRefusesIsNotTakenForSilent(t *testing.T) {
	etcd := membersOf(t, 3)
	etcd.Set(func(_ *etcdtest.Cluster, members []*etcdtest.Member) {
		for _, m := range members {
			m.ListErr = grpcstatus.Error(codes.InvalidArgument, "etcdserver: user name is empty")
		}
	})
	out, code := live(t, apiServer(t, newWorld(3)), "", "-e", etcd.URL(0))
	if code != exitFailure || !strings.HasPrefix(out, "not asked: etcd refuses to say who its members are") ||
		!strings.Contains(out, etcd.URL(0)+": etcdserver: user name is empty") {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

// A plugin advises what its user types.
func TestThePluginIsCalledByItsName(t *testing.T) {
	stdout, _, _ := invoke(t, plugin, apiServer(t, newWorld(3)), "plan", "-e", "http://127.0.0.1:1", "etcd-main")
	if !strings.Contains(stdout, "\n  kubectl quorate plan -n garden etcd-main --endpoints=") ||
		!strings.Contains(stdout, "\n  kubectl quorate status -n garden etcd-main\n") {
		t.Errorf("%s", stdout)
	}
}
