package workload_test

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/quorate/quorate/internal/workload"
	"github.com/quorate/quorate/pkg/rollout"
)

func TestTheArgumentsThatATemplateGivesToEtcd(t *testing.T) {
	const foreign, file = "the command is not etcd's own", "etcd has a configuration file of its own"
	for _, tc := range []struct {
		name   string
		image  string
		c      corev1.Container
		args   string // Separated by spaces.
		unseen string
	}{
		{"the command itself", "etcd:3.5.27", corev1.Container{Command: []string{"etcd", "--name=a", "-debug"}},
			"name=a debug", ""},
		{"the command with its path, and arguments apart", "x", corev1.Container{
			Command: []string{"/usr/local/bin/etcd"}, Args: []string{"--logger", "zap", "--enable-v2"},
		}, "logger=zap enable-v2", ""},
		{"arguments alone go to the image's own program", "registry:5000/etcd:3.5.27@sha256:00", corev1.Container{
			Args: []string{"--enable-v2=true"},
		}, "enable-v2=true", ""},
		{"so does nothing", "etcd", corev1.Container{}, "", ""},
		{"what that is in another image is not known", "etcd-wrapper:v0.7.0", corev1.Container{
			Args: []string{"start-etcd", "--debug"},
		}, "", foreign},
		{"another program's arguments are its own, even in that image", "etcd:3.5.27", corev1.Container{
			Command: []string{"etcdctl", "--debug", "endpoint", "status"},
		}, "", foreign},
		{"an image with another command", "etcd", corev1.Container{Args: []string{"/start.sh", "--debug"}}, "", foreign},
		{"a script", "x", corev1.Container{Command: []string{"/bin/sh", "-ec", "mkdir -p /var/etcd; etcdctl --debug; " +
			"exec etcd \\\n  --name \"$(POD)\" \\\n  --enable-v2='true' && echo --proxy\necho --debug\n"}},
			"name=?_$(POD) enable-v2=true", ""},
		{"a script with a comment", "x", corev1.Container{Args: []string{"sh", "-c", "# etcd --debug\netcd --name=a # --proxy"}},
			"name=a", ""},
		{"a script that begins with it", "x", corev1.Container{Command: []string{"sh", "-c", "etcd --enable-v2"}},
			"enable-v2", ""},
		{"the name of a container is not the program", "x", corev1.Container{
			Command: []string{"watch", "--container", "etcd", "--debug"},
		}, "", foreign},
		{"a program that starts another", "x", corev1.Container{Command: []string{"tini", "--", "etcd", "--name=a"}}, "name=a", ""},
		{"a file of etcd's own says more", "x", corev1.Container{Command: []string{"etcd", "--config-file=/c.yaml"}},
			"config-file=/c.yaml", file},
		{"its name may come apart", "x", corev1.Container{Command: []string{"etcd", "--config-file", "/c.yaml"}},
			"config-file=/c.yaml", file},
		{"or by the environment", "x", corev1.Container{Command: []string{"etcd"},
			Env: []corev1.EnvVar{{Name: "ETCD_CONFIG_FILE", Value: "/c.yaml"}}}, "ETCD_CONFIG_FILE=/c.yaml", file},
		{"an empty name is none", "x", corev1.Container{Command: []string{"etcd", "--config-file="},
			Env: []corev1.EnvVar{{Name: "ETCD_CONFIG_FILE"}}}, "config-file", ""},
		{"the program at the root", "x", corev1.Container{Command: []string{"/etcd", "-enable-v2"}}, "enable-v2", ""},
		{"a directory is not the program", "x", corev1.Container{Command: []string{"/start", "/var/etcd", "--debug"}},
			"", foreign},
		{"without a shell, what one would read has no meaning", "x", corev1.Container{
			Command: []string{"etcd", "--cors=http://a?b&c", "--name", "", "--initial-cluster-token=a; b", "--enable-v2"},
		}, "cors=http://a?b&c name initial-cluster-token=a;_b enable-v2", ""},
		{"a value that follows, in a script", "x", corev1.Container{
			Command: []string{"sh", "-c", `exec etcd --v2-deprecation "not-yet" --logger 'zap'`},
		}, "v2-deprecation=not-yet logger=zap", ""},
		{"what a shell puts in", "x", corev1.Container{
			Command: []string{"sh", "-c", `exec etcd --name="$POD" $ARGS`}}, "name=?_$POD", "what $ARGS stands for in etcd's command"},
		{"arguments of the script itself", "x", corev1.Container{
			Command: []string{"sh", "-c", `exec etcd --pre-vote "$@"`, "--"}, Args: []string{"--enable-v2"},
		}, "pre-vote enable-v2", "what $@ stands for in etcd's command"},
		{"what the kubelet puts in", "x", corev1.Container{
			Command: []string{"etcd", "--v2-deprecation=$(STAGE)", "--logger=$(OTHER)", "$(MORE)"},
			Env: []corev1.EnvVar{{Name: "STAGE", Value: "not-yet"}, {Name: "MORE", Value: "--enable-v2"},
				{Name: "OTHER", ValueFrom: &corev1.EnvVarSource{}}},
		}, "v2-deprecation=not-yet logger=?_$(OTHER) enable-v2", ""},
		{"variables of the environment", "x", corev1.Container{Command: []string{"etcd"}, Env: []corev1.EnvVar{
			{Name: "ETCD_V2_DEPRECATION", Value: "$(STAGE)"}, {Name: "STAGE", Value: "not-yet"}, {Name: "POD_NAME", Value: "a"},
			{Name: "ETCD_NAME", ValueFrom: &corev1.EnvVarSource{}}, {Name: "ETCD_EMPTY"}, {Name: "ETCD_DEBUG", Value: "x"},
			{Name: "ETCD_DEBUG", Value: "y"},
		}}, "ETCD_V2_DEPRECATION=not-yet ETCD_NAME=?_$(ETCD_NAME) ETCD_DEBUG=y", ""},
		{"of the environment of another program too, which may start etcd", "x", corev1.Container{
			Command: []string{"/start"}, Env: []corev1.EnvVar{{Name: "ETCD_DEBUG", Value: "y"}},
		}, "ETCD_DEBUG=y", foreign},
		{"a script sets them as well", "x", corev1.Container{
			Command: []string{"sh", "-c", "export ETCD_V2_DEPRECATION='write-only'\nETCD_NAME= ETCD_DEBUG=$X exec etcd --pre-vote"},
			Env:     []corev1.EnvVar{{Name: "ETCD_V2_DEPRECATION", Value: "not-yet"}, {Name: "ETCD_NAME", Value: "a"}},
		}, "pre-vote ETCD_V2_DEPRECATION=write-only ETCD_DEBUG=?_$X", ""},
		{"so does another program", "x", corev1.Container{Command: []string{"env", "ETCD_DEBUG=y", "etcd", "--name=a"}},
			"name=a ETCD_DEBUG=y", ""},
		{"all of a ConfigMap cannot be seen", "x", corev1.Container{Command: []string{"etcd"},
			EnvFrom: []corev1.EnvFromSource{{}}}, "", "variables come from elsewhere (envFrom)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := workload.SetFacts(statefulSet(func(s *appsv1.StatefulSet) {
				tc.c.Name, tc.c.Image = "etcd", tc.image
				s.Spec.Template.Spec.Containers[0] = tc.c
			}), workload.DefaultNames()).Etcd
			if args := told(got.Arguments); got.Image != tc.image || got.Unseen != tc.unseen || args != tc.args ||
				got.ConfigFile != strings.Contains(tc.unseen, file) {
				t.Errorf("%q of %+v", args, got)
			}
		})
	}
}

// told are arguments as name=value, or as the variable. Those whose value is hidden have a question mark, and blanks are
// underlined.
func told(args []rollout.Argument) string {
	var all []string
	for _, a := range args {
		text := cmp.Or(a.Variable, a.Name)
		if a.Hidden {
			a.Value = "? " + a.Value
		}
		if a.Value != "" {
			text += "=" + strings.ReplaceAll(a.Value, " ", "_")
		}
		all = append(all, text)
	}
	return strings.Join(all, " ")
}

func TestWhereTheTemplateHasWhatItGivesToEtcd(t *testing.T) {
	set := statefulSet(func(s *appsv1.StatefulSet) {
		c := &s.Spec.Template.Spec.Containers[0]
		c.Command, c.Args = []string{"etcd", "--name=a"}, []string{"--enable-v2", "--logger=zap"}
		c.Env = []corev1.EnvVar{{Name: "ETCD_ENABLE_V2", Value: "true"}}
	})
	p := workload.SetFacts(set, workload.DefaultNames()).Etcd
	want := []rollout.Argument{
		{Name: "name", Value: "a", Place: "command"},
		{Name: "enable-v2", Place: "args"},
		{Name: "logger", Value: "zap", Place: "args"},
		{Name: "enable-v2", Value: "true", Variable: "ETCD_ENABLE_V2", Place: "environment"},
	}
	if p.Container != "etcd" || !slices.Equal(p.Arguments, want) {
		t.Errorf("%+v", p)
	}
}

func TestTheImageOfEtcd(t *testing.T) {
	set := statefulSet(func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.Containers[0].Image = "etcd:3.5.27" })
	facts := workload.SetFacts(set, workload.DefaultNames())
	if p := facts.Etcd; p.Image != "etcd:3.5.27" {
		t.Errorf("%+v", p)
	}
	pod := &corev1.Pod{Spec: set.Spec.Template.Spec}
	if got := workload.PodFacts(pod, facts, workload.DefaultNames()).EtcdImage; got != "etcd:3.5.27" {
		t.Errorf("the pod's image is %q", got)
	}
	set.Spec.Template.Spec.Containers[0].Name = "other"
	if p := workload.SetFacts(set, workload.DefaultNames()).Etcd; p.Image != "" {
		t.Errorf("a template without etcd's container says %+v", p)
	}
}
