package scenarios

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/quorate/quorate/test/harness"
	"github.com/quorate/quorate/test/harness/build"
	"github.com/quorate/quorate/test/harness/network"
	"github.com/quorate/quorate/test/harness/process"
)

// typed are the programs, beside those of every machine and Go, that the documentation tells
// people to type.
var typed = []build.Target{build.Kubectl, build.Helm, build.Etcdctl}

// gettingStarted is the page that is followed below.
const gettingStarted = "docs/getting-started.md"

func TestNoPageHasCommandsThatNobodyRuns(t *testing.T) {
	t.Parallel()
	root, err := build.Root()
	require.NoError(t, err)
	var found []string
	for _, pattern := range []string{"*.md", "*/*.md"} {
		pages, err := filepath.Glob(filepath.Join(root, pattern))
		require.NoError(t, err)
		for _, page := range pages {
			text, err := os.ReadFile(page)
			require.NoError(t, err)
			if len(blocks(string(text), "sh")) > 0 {
				relative, err := filepath.Rel(root, page)
				require.NoError(t, err)
				found = append(found, relative)
			}
		}
	}
	require.Equal(t, []string{gettingStarted}, found,
		"pages with blocks marked sh, and those that are followed by a test; mark what is not to be run console")
}

// What operators are told to type is what the other page tells, where it is run.
func TestOperationsTellsOfNoCommandThatIsNotRun(t *testing.T) {
	t.Parallel()
	root, err := build.Root()
	require.NoError(t, err)
	lines := func(page, mark string) []string {
		text, err := os.ReadFile(filepath.Join(root, page))
		require.NoError(t, err)
		var all []string
		for _, b := range blocks(string(text), mark) {
			all = append(all, strings.Split(strings.TrimSpace(b.text), "\n")...)
		}
		return all
	}
	told := lines("docs/operations.md", "console")
	require.NotEmpty(t, told)
	require.Subset(t, lines(gettingStarted, "sh"), told)
}

// Who reads why it is safe wants to see the tests that show it.
func TestEveryTestThatSafetyNamesIsThere(t *testing.T) {
	t.Parallel()
	root, err := build.Root()
	require.NoError(t, err)
	there := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && path != root:
			return fs.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		for _, f := range function.FindAllStringSubmatch(string(text), -1) {
			there[f[1]] = true
		}
		return err
	}))
	for _, page := range []string{"safety.md", "proof.md"} {
		text, err := os.ReadFile(filepath.Join(root, "docs", page))
		require.NoError(t, err)
		named := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(string(text), -1)
		require.NotEmpty(t, named)
		for _, name := range named {
			require.True(t, there[name[1]], "docs/%s names %s, which is no test", page, name[1])
		}
	}
}

// What people do by the page is done as it stands there, with the real kubectl and etcdctl,
// and after every part the cluster is as the page says.
func TestGettingStartedCanBeFollowedWordForWord(t *testing.T) {
	t.Parallel()
	gettingStartedWith(t, environment(t, harness.Namespaces), "kustomize")
}

// The same with the real Helm, in an API server of its own, because the names are the same.
func TestGettingStartedCanBeFollowedWordForWordWithHelm(t *testing.T) {
	t.Parallel()
	gettingStartedWith(t, ownEnvironment(t, "helm", harness.Namespaces), "helm")
}

// gettingStartedWith begins with two clusters, and with nothing of Quorate's: not even the ServiceAccount.
func gettingStartedWith(t *testing.T, env *harness.Env, way string) {
	t.Helper()
	ctx, main := newClusterIn(t, env,
		harness.Spec{Name: "etcd-main", Bare: true, Strategy: appsv1.RollingUpdateStatefulSetStrategyType})
	_, events := newClusterIn(t, env, harness.Spec{Name: "etcd-events", Bare: true})
	before := main.traces(ctx)
	require.Empty(t, before.objects, "the namespace has nothing of Quorate's")
	sh := newShell(t, ctx, main.env, "IMAGE="+harness.Sidecar, "OPERATORS=etcd-operators")
	leader := ""

	sh.follow(ctx, gettingStarted, "Getting started", way, []part{
		{heading: "Install the plugin", check: func(t *testing.T, _ outcome, said string) {
			require.Contains(t, said, "go1.", "the version names the toolchain")
			require.Contains(t, said, "NOT READY: ")
			require.Regexp(t, `(?m)^fail +Sidecars `, said)
			require.Equal(t, "exit code 3", lastLine(said))
		}},
		{heading: "Grant the permissions", check: func(t *testing.T, _ outcome, said string) {
			require.Equal(t, "yes", lastLine(said))
		}},
		{heading: "Bring the sidecar into the pods", on: main, check: func(t *testing.T, o outcome, _ string) {
			o.rolledByKubernetes(t, main)
			main.haveSidecars(ctx, t, true)
		}},
		{heading: "Switch to OnDelete", on: main, check: func(t *testing.T, o outcome, said string) {
			require.Empty(t, o.order)
			require.Contains(t, said, "etcd-main-0")
			var err error
			leader, err = main.Leader(ctx)
			require.NoError(t, err)
		}},
		{heading: "Roll", on: main, load: true, check: func(t *testing.T, o outcome, said string) {
			o.lostNothing(t)
			o.rolledByQuorate(t, main)
			require.Equal(t, leader, o.order[2], "the leader goes last")
			for _, pod := range main.Pods() {
				require.Regexp(t, `Removed +`+pod+` +- +Serving`, said, "history")
				require.Contains(t, said, "Removed "+pod+" for revision", "events")
			}
		}},
		{heading: "Ask etcd itself", on: main, check: func(t *testing.T, o outcome, said string) {
			require.Empty(t, o.order)
			require.Equal(t, 3, strings.Count(said, "is healthy"))
			require.Contains(t, said, "Complete")
			require.Contains(t, said, "READY: ", "check")
			require.NotRegexp(t, `(?m)^(fail|unknown) `, said, "check")
			var err error
			leader, err = main.Leader(ctx)
			require.NoError(t, err)
		}},
		{heading: "Pause and resume", on: main, check: func(t *testing.T, o outcome, said string) {
			o.rolledByQuorate(t, main)
			require.Equal(t, leader, o.order[2], "the leader goes last")
			require.Regexp(t, `(?s)Hold: Paused.*\nexit code 3\n`, said, "status")
			require.Regexp(t, `4 +Remove +`+leader+` `, said, "plan: two followers, a change of leader, and the leader")
		}},
		{heading: "Another way: a Job that rolls the first time", on: events, load: true,
			check: func(t *testing.T, o outcome, _ string) {
				o.lostNothing(t)
				o.rolledByQuorate(t, events)
				for _, r := range o.granted() {
					require.True(t, strings.HasPrefix(r.Pod, "etcd-events-quorate-bootstrap-"), "the Job's, not %s", r)
				}
				events.haveSidecars(ctx, t, true)
			}},
		{heading: "Turn it off", on: main, check: func(t *testing.T, o outcome, said string) {
			o.rolledByKubernetes(t, main)
			main.haveSidecars(ctx, t, false)
			require.Equal(t, before, main.in(t).traces(ctx), "nothing is left behind")
			require.Contains(t, said, "nothing is left\n")
		}},
	})
}

// The same with the real etcd-druid, whose pods first have no Quorate.
func TestGettingStartedWithEtcdDruidCanBeFollowedWordForWord(t *testing.T) {
	leftOut(t)
	t.Parallel()
	_, env, _ := druidEnvironment(t, "followed")
	// The pods are made once and rolled three times.
	ctx, cancel := context.WithTimeout(t.Context(), 2*druidTimeout)
	t.Cleanup(cancel)
	main := newEtcd(t, ctx, env, harness.Spec{Name: "etcd-main"})
	before := main.traces(ctx)
	sh := newShell(t, ctx, env, "IMAGE="+harness.Sidecar, "SIDECAR="+harness.DropIn)
	sh.follow(ctx, gettingStarted, "Getting started with etcd-druid", "", []part{
		{heading: "Install the plugin, the policies and the Role", on: main,
			check: func(t *testing.T, o outcome, _ string) { require.Empty(t, o.order) }},
		{heading: "Opt in", on: main, check: func(t *testing.T, o outcome, said string) {
			require.Empty(t, o.order)
			require.Contains(t, said, "No running pod has Quorate yet. Start the Job of deploy/bootstrap-job.yaml")
			require.Equal(t, "exit code 3", lastLine(said))
		}},
		{heading: "Let a Job roll the first time", on: main, check: func(t *testing.T, o outcome, said string) {
			o.rolledByQuorate(t, main)
			for _, r := range o.granted() {
				require.True(t, strings.HasPrefix(r.Pod, "etcd-main-quorate-bootstrap-"), "the Job's, not %s", r)
			}
			require.Contains(t, said, "condition met")
		}},
		{heading: "Roll", on: main, check: func(t *testing.T, o outcome, said string) {
			o.rolledByQuorate(t, main)
			for _, pod := range main.Pods() {
				require.Regexp(t, `Removed +`+pod+` +- +Serving`, said, "history")
			}
			require.Contains(t, said, "condition met")
		}},
		{heading: "Turn it off", on: main, check: func(t *testing.T, o outcome, said string) {
			o.rolledByKubernetes(t, main)
			require.Contains(t, said, "etcd-main is still: the record has no intent, and every pod is Ready")
			after := main.in(t).traces(ctx)
			require.Equal(t, before.objects, after.objects, "nothing is left behind")
			require.Equal(t, before.spec.UpdateStrategy, after.spec.UpdateStrategy)
			for i, c := range after.spec.Template.Spec.Containers {
				require.Equal(t, before.spec.Template.Spec.Containers[i].Args, c.Args, c.Name)
				require.Equal(t, before.spec.Template.Spec.Containers[i].Image, c.Image, c.Name)
			}
		}},
	})
}

// watching is during without load, and so without its figures.
func (s *scene) watching(ctx context.Context, body func(*harness.Ledger)) outcome {
	s.t.Helper()
	began := time.Now()
	ledger, err := s.Watch(ctx)
	require.NoError(s.t, err)
	defer ledger.Stop()
	body(ledger)
	return outcome{removals: ledger.Removals(), order: ledger.Order(), fewestReady: ledger.FewestReady(),
		requests: s.RemovalRequests(began)}
}

// rolledByKubernetes checks that RollingUpdate replaced each pod once and that Quorate did not
// interfere.
func (o outcome) rolledByKubernetes(t *testing.T, s *scene) {
	t.Helper()
	require.Equal(t, s.others(), o.order, "the highest ordinal first")
	require.Empty(t, o.requests, "Quorate looks on")
	o.oneAtATime(t)
	require.Equal(t, len(s.Pods())-1, o.fewestReady, "fewest Ready pods")
}

// rolledByQuorate: each pod was replaced once, while all others were Ready, and every removal
// was asked for by a sidecar. What that costs in seconds is for the scenarios that do nothing
// else meanwhile: here a stall of the machine would be taken for one of etcd.
func (o outcome) rolledByQuorate(t *testing.T, s *scene) {
	t.Helper()
	o.replacedOnce(t, s.Pods()...)
	o.oneAtATime(t)
	require.Equal(t, len(s.Pods())-1, o.fewestReady, "fewest Ready pods")
	var granted []string
	for _, r := range o.granted() {
		granted = append(granted, r.Name)
	}
	require.Equal(t, o.order, granted, "who was removed, and whose removal sidecars have asked for")
}

// tokenPath is where programs look for the token of their ServiceAccount.
const tokenPath = "/var/run/secrets/kubernetes.io/serviceaccount"

// haveSidecars: every pod has the container quorate, and no other has the token of the account. Or none has it.
func (s *scene) haveSidecars(ctx context.Context, t *testing.T, want bool) {
	t.Helper()
	pods, err := s.ListPods(ctx)
	require.NoError(t, err)
	require.Len(t, pods, len(s.Pods()))
	for i := range pods {
		has := slices.ContainsFunc(pods[i].Spec.Containers, func(c corev1.Container) bool {
			return c.Name == "quorate"
		})
		require.Equal(t, want, has, "%s has a container quorate", pods[i].Name)
		var tokens []string
		for _, c := range pods[i].Spec.Containers {
			mounts := func(m corev1.VolumeMount) bool { return m.MountPath == tokenPath }
			if slices.ContainsFunc(c.VolumeMounts, mounts) {
				tokens = append(tokens, c.Name)
			}
		}
		if want {
			require.Equal(t, []string{"quorate"}, tokens, "who has the account's token in %s", pods[i].Name)
		}
		require.Empty(t, pods[i].Annotations["quorate.dev/fenced"])
	}
}

// traces are what of Quorate's is in a cluster: the objects of the kinds that it or its users
// make for it, by name, and what runs.
type traces struct {
	objects []string
	spec    appsv1.StatefulSetSpec
}

func (s *scene) traces(ctx context.Context) traces {
	s.t.Helper()
	var found traces
	client, list := s.env.Client, metav1.ListOptions{}
	for kind, read := range map[string]func() (runtime.Object, error){
		"Lease": func() (runtime.Object, error) {
			return client.CoordinationV1().Leases(harness.Namespace).List(ctx, list)
		},
		"Job": func() (runtime.Object, error) {
			return client.BatchV1().Jobs(harness.Namespace).List(ctx, list)
		},
		"ServiceAccount": func() (runtime.Object, error) {
			return client.CoreV1().ServiceAccounts(harness.Namespace).List(ctx, list)
		},
		"release of Helm's": func() (runtime.Object, error) {
			return client.CoreV1().Secrets(harness.Namespace).List(ctx,
				metav1.ListOptions{LabelSelector: "owner=helm,name=quorate"})
		},
		"Role": func() (runtime.Object, error) {
			return client.RbacV1().Roles(harness.Namespace).List(ctx, list)
		},
		"RoleBinding": func() (runtime.Object, error) {
			return client.RbacV1().RoleBindings(harness.Namespace).List(ctx, list)
		},
		"ClusterRole": func() (runtime.Object, error) { return client.RbacV1().ClusterRoles().List(ctx, list) },
	} {
		objects, err := read()
		require.NoError(s.t, err)
		require.NoError(s.t, meta.EachListItem(objects, func(o runtime.Object) error {
			object, err := meta.Accessor(o)
			if err == nil && (strings.Contains(object.GetName(), s.Spec.Name) || kind == "release of Helm's" ||
				strings.HasPrefix(object.GetName(), "quorate-viewer")) {
				found.objects = append(found.objects, kind+" "+object.GetName())
			}
			return err
		}))
	}
	slices.Sort(found.objects)
	set, err := client.AppsV1().StatefulSets(harness.Namespace).Get(ctx, s.Spec.Name, metav1.GetOptions{})
	require.NoError(s.t, err)
	require.Empty(s.t, set.Annotations)
	found.spec = set.Spec
	found.spec.Template.Annotations = nil // That of kubectl rollout restart.
	return found
}

// part is a section of a page.
type part struct {
	// heading is its heading.
	heading string
	// on is the cluster that is changed, nil for none, and load puts it under load meanwhile.
	// Under load an etcd takes seven seconds to end, so not all parts are.
	on   *scene
	load bool
	// check reports whether all is as the page says, from what happened to that cluster and
	// from what the commands have printed.
	check func(t *testing.T, o outcome, said string)
}

// block is a sequence of commands on a page, below a heading of a chapter. The way is empty where it is for all
// readers.
type block struct {
	chapter, heading, way, text string
	// line is where it begins.
	line int
}

// blocks are the commands of a page: its blocks of code that are marked sh, and may have the way after
// that which a reader has chosen. What is marked otherwise (text, console, yaml) is not for typing.
func blocks(page, mark string) []block {
	var all []block
	chapter, heading, inside := "", "", ""
	for n, line := range strings.Split(page, "\n") {
		fence, isFence := strings.CutPrefix(line, "```")
		switch {
		case isFence && inside != "":
			inside = ""
		case isFence:
			language, way, _ := strings.Cut(fence, " ")
			inside = "```" + language
			if language == mark {
				all = append(all, block{chapter: chapter, heading: heading, way: way, line: n + 2})
			}
		case inside == "```"+mark:
			all[len(all)-1].text += line + "\n"
		case inside == "" && strings.HasPrefix(line, "#"):
			heading = strings.TrimLeft(line, "# ")
			if strings.HasPrefix(line, "# ") {
				chapter = heading
			}
		}
	}
	return all
}

// shell is where a user types: a machine that reaches the pods by their names, with kubectl
// configured, and the working directory in a checkout. A block does not see the variables of
// those before it that were not exported, nor their functions.
type shell struct {
	t        *testing.T
	checkout string
	env      []string
	launcher []string
	// state are the exported variables, after every block.
	state string
	logs  string
}

// newShell prepares a machine. The variables are those that the page tells its readers to
// set.
func newShell(t *testing.T, ctx context.Context, env *harness.Env, variables ...string) *shell {
	t.Helper()
	binaries, err := build.Some(ctx, say, typed...)
	require.NoError(t, err)
	root, err := build.Root()
	require.NoError(t, err)
	dir := t.TempDir()
	s := &shell{t: t, checkout: filepath.Join(dir, "checkout"), state: filepath.Join(dir, "state"),
		logs: filepath.Join(env.Dir, "docs")}
	require.NoError(t, copyCheckout(root, s.checkout))

	home, programs := filepath.Join(dir, "home"), filepath.Join(dir, "bin")
	require.NoError(t, os.MkdirAll(filepath.Join(home, ".kube"), 0o700))
	require.NoError(t, os.MkdirAll(programs, 0o755))
	kubeconfig, err := os.ReadFile(env.Plane.KubeconfigPath())
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(home, ".kube", "config"), kubeconfig, 0o600))
	require.NoError(t, os.Symlink(binaries.Kubectl, filepath.Join(programs, "kubectl")))
	require.NoError(t, os.Symlink(binaries.Helm, filepath.Join(programs, "helm")))
	require.NoError(t, os.Symlink(binaries.Etcdctl, filepath.Join(programs, "etcdctl")))
	s.env = append(variables, "HOME="+home, "PATH="+
		strings.Join([]string{filepath.Join(home, ".local", "bin"), programs, os.Getenv("PATH")}, ":"))
	// Go's caches are those of this machine: a new home has none, and the network is
	// another one.
	for _, variable := range []string{"GOMODCACHE", "GOCACHE"} {
		value, err := exec.CommandContext(ctx, "go", "env", variable).Output()
		require.NoError(t, err)
		s.env = append(s.env, variable+"="+strings.TrimSpace(string(value)))
	}

	place, ok := env.Network.(network.Network)
	if !ok {
		return s // Real nodes have a DNS that the harness sees too.
	}
	pod := network.Pod{Namespace: harness.Namespace, Name: "workstation", UID: "workstation"}
	attachment, err := place.Attach(ctx, pod)
	require.NoError(t, err)
	s.launcher = attachment.Launcher
	t.Cleanup(func() { require.NoError(t, place.Detach(context.WithoutCancel(ctx), pod)) })
	return s
}

// copyCheckout copies the repository without its history and what was built.
func copyCheckout(root, to string) error {
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, relative)
		switch {
		case relative == ".git" || relative == ".build":
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		case entry.IsDir():
			return os.MkdirAll(target, 0o755)
		case !entry.Type().IsRegular():
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		return os.WriteFile(target, data, info.Mode().Perm())
	})
}

// follow types all commands of a chapter of a page in their order, but those of another way, and checks every
// part of it. Each part with commands needs its check, and each check its part.
func (s *shell) follow(ctx context.Context, page, chapter, way string, parts []part) {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.checkout, page))
	require.NoError(s.t, err)
	commands := slices.DeleteFunc(blocks(string(text), "sh"), func(b block) bool {
		return b.chapter != chapter || b.way != "" && b.way != way
	})
	if way != "" {
		require.True(s.t, slices.ContainsFunc(commands, func(b block) bool { return b.way == way }),
			"%s has no commands for %s", page, way)
	}
	var headings, checked []string
	for _, b := range commands {
		if !slices.Contains(headings, b.heading) {
			headings = append(headings, b.heading)
		}
	}
	for _, p := range parts {
		checked = append(checked, p.heading)
	}
	require.Equal(s.t, headings, checked, "the parts of %s that have commands, and those that are checked here", page)
	for _, p := range parts {
		done := s.t.Run(p.heading, func(t *testing.T) {
			var said strings.Builder
			body := func(*harness.Ledger) {
				for _, b := range commands {
					if b.heading == p.heading {
						said.WriteString(s.run(ctx, t, page, b))
					}
				}
			}
			var o outcome
			switch {
			case p.on == nil:
				body(nil)
			case p.load:
				o = p.on.in(t).during(ctx, body)
			default:
				o = p.on.in(t).watching(ctx, body)
			}
			p.check(t, o, said.String())
		})
		require.True(s.t, done, "the rest of %s builds on this part", page)
	}
}

// run types the commands of a block and returns what they have printed. The first that fails
// fails the test.
func (s *shell) run(ctx context.Context, t *testing.T, page string, b block) string {
	t.Helper()
	where := fmt.Sprintf("%s:%d", page, b.line)
	name := filepath.Join(s.logs, strings.ReplaceAll(where, "/", "_"))
	require.NoError(t, os.MkdirAll(s.logs, 0o755))
	script := fmt.Sprintf("set -euo pipefail\n[ ! -e %[1]q ] || . %[1]q\n%[2]s\nexport -p >%[1]q\n", s.state, b.text)
	require.NoError(t, os.WriteFile(name+".sh", []byte(script), 0o600))
	began := time.Now()
	bash, err := process.Start(process.Spec{
		// Nice, because a compiler may be among the commands, and other scenarios run beside.
		Name: where, Path: "nice", Args: []string{"bash", name + ".sh"}, Dir: s.checkout, Env: s.env,
		Launcher: s.launcher, LogPath: name + ".log",
	})
	require.NoError(t, err)
	select {
	case <-bash.Done():
	case <-ctx.Done():
		require.NoError(t, bash.Stop(context.WithoutCancel(ctx), 0))
	}
	printed, err := os.ReadFile(name + ".log")
	require.NoError(t, err)
	t.Logf("%s (%s)\n%s\n%s", where, time.Since(began).Round(100*time.Millisecond), b.text, printed)
	require.Zero(t, bash.ExitCode(), "%s: a command failed", where)
	return string(printed)
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}
