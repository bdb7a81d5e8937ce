package workload_test

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/quorate/quorate/internal/workload"
)

func TestTheArgumentsThatATemplateGivesToEtcd(t *testing.T) {
	const foreign = "the command is not etcd's own"
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
			"name=$(POD) enable-v2=true", ""},
		{"a script with a comment", "x", corev1.Container{Args: []string{"sh", "-c", "# etcd --debug\netcd --name=a # --proxy"}},
			"name=a", ""},
		{"the name of a container is not the program", "x", corev1.Container{
			Command: []string{"watch", "--container", "etcd", "--debug"},
		}, "", foreign},
		{"a program that starts another", "x", corev1.Container{Command: []string{"tini", "--", "etcd", "--name=a"}}, "name=a", ""},
		{"a file of etcd's own says more", "x", corev1.Container{Command: []string{"etcd", "--config-file=/c.yaml"}},
			"config-file=/c.yaml", "etcd has a configuration file of its own"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := workload.SetFacts(statefulSet(func(s *appsv1.StatefulSet) {
				tc.c.Name, tc.c.Image = "etcd", tc.image
				s.Spec.Template.Spec.Containers[0] = tc.c
			}), workload.DefaultNames()).Etcd
			if got.Image != tc.image || got.Unseen != tc.unseen || !slices.Equal(got.Arguments, strings.Fields(tc.args)) {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestTheImageAndTheVariablesOfEtcd(t *testing.T) {
	set := statefulSet(func(s *appsv1.StatefulSet) {
		c := &s.Spec.Template.Spec.Containers[0]
		c.Image = "etcd:3.5.27"
		c.Env = []corev1.EnvVar{{Name: "ETCD_ENABLE_V2", Value: "true"}, {Name: "POD_NAME"}, {Name: "ETCD_NAME"}}
	})
	facts := workload.SetFacts(set, workload.DefaultNames())
	if p := facts.Etcd; p.Image != "etcd:3.5.27" || !slices.Equal(p.Variables, []string{"ETCD_ENABLE_V2", "ETCD_NAME"}) {
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
