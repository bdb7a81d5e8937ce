package workload_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate/quorate/internal/workload"
)

func TestAPodsSpecTellsWhereItsEtcdIsReached(t *testing.T) {
	field := func(name, path string) corev1.EnvVar {
		return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{
			FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
	}
	value := func(name, value string) corev1.EnvVar { return corev1.EnvVar{Name: name, Value: value} }
	const own = "https://etcd-main-1.etcd-main-peer.garden.svc:2379"
	for _, tc := range []struct {
		name    string
		command []string
		args    []string
		env     []corev1.EnvVar
		near    []string
		change  func(*corev1.Pod)
		want    string
	}{
		{
			name: "etcd's command says what it advertises",
			args: []string{"--advertise-client-urls=http://a:2379,http://b:2379"}, want: "http://a:2379 http://b:2379",
		},
		{
			name: "as two words", command: []string{"etcd", "--advertise-client-urls", "http://a:2379"},
			want: "http://a:2379",
		},
		{
			name: "its environment says it, by the pod's own name",
			env: []corev1.EnvVar{
				field("POD_NAME", "metadata.name"), field("NS", "metadata.namespace"),
				value("ETCD_ADVERTISE_CLIENT_URLS", "https://$(POD_NAME).peer.$(NS).svc:2379"),
			},
			want: "https://etcd-main-1.peer.garden.svc:2379",
		},
		{
			name: "a variable of a variable",
			env: []corev1.EnvVar{
				field("POD_NAME", "metadata.name"), value("HOST", "$(POD_NAME).peer"),
				value("ETCD_ADVERTISE_CLIENT_URLS", "https://$(HOST):2379"),
			},
			want: "https://etcd-main-1.peer:2379",
		},
		{
			name:    "a script says it, by a variable of its shell",
			command: []string{"sh", "-c", "exec etcd --advertise-client-urls=http://${POD_NAME}.peer:2379"},
			env:     []corev1.EnvVar{field("POD_NAME", "metadata.name")}, want: "http://etcd-main-1.peer:2379",
		},
		{
			name: "the command wins over the environment", args: []string{"--advertise-client-urls=http://a:2379"},
			env: []corev1.EnvVar{value("ETCD_ADVERTISE_CLIENT_URLS", "http://b:2379")}, want: "http://a:2379",
		},
		{
			name: "what is good inside the pod only has the port",
			args: []string{"--advertise-client-urls=https://0.0.0.0:2379"}, want: own,
		},
		{
			name: "so has what it listens on",
			args: []string{"--listen-client-urls=https://[::]:2379,http://127.0.0.1:2381"}, want: own,
		},
		{
			name: "a script's own variable is not known, and what it listens on is",
			command: []string{"sh", "-c", "etcd --advertise-client-urls=https://$(hostname):1 " +
				"--listen-client-urls=https://0.0.0.0:2379"},
			want: own,
		},
		{
			name: "nothing but another container's address of it", near: []string{"https://etcd-main-local:2379"},
			want: own,
		},
		{
			name: "a configuration file, and another container's address of it",
			args: []string{"--config-file=/etc/etcd.yaml", "--advertise-client-urls=http://a:2379"},
			near: []string{"https://etcd-main-local:2379"}, want: own,
		},
		{
			name: "a pod without a name of its own has an address", near: []string{"https://etcd-main-local:2379"},
			change: func(p *corev1.Pod) { p.Spec.Subdomain, p.Status.PodIP = "", "fd00::7" },
			want:   "https://[fd00::7]:2379",
		},
		{
			name: "one without either", near: []string{"https://etcd-main-local:2379"},
			change: func(p *corev1.Pod) { p.Spec.Subdomain = "" },
		},
		{name: "nothing at all"},
		{name: "a variable from elsewhere", env: []corev1.EnvVar{
			{Name: "X", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{Key: "x"}}},
			value("ETCD_ADVERTISE_CLIENT_URLS", "http://$(X):2379"),
		}},
		{name: "no URL", args: []string{"--advertise-client-urls=etcd-main-1:2379"}},
		{name: "no container of etcd", args: []string{"--advertise-client-urls=http://a:2379"},
			change: func(p *corev1.Pod) { p.Spec.Containers[0].Name = "other" }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: "etcd-main-1", Namespace: "garden"},
				Spec: corev1.PodSpec{
					Hostname: "etcd-main-1", Subdomain: "etcd-main-peer",
					Containers: []corev1.Container{
						{Name: "etcd", Image: "etcd", Command: tc.command, Args: tc.args, Env: tc.env},
					},
				},
			}
			if tc.change != nil {
				tc.change(p)
			}
			before := slices.Clone(p.Spec.Containers[0].Env)
			got := workload.ClientURLs(p, workload.DefaultNames(), tc.near)
			if strings.Join(got, " ") != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
			if !slices.EqualFunc(before, p.Spec.Containers[0].Env, func(a, b corev1.EnvVar) bool {
				return a.Value == b.Value && a.ValueFrom == b.ValueFrom
			}) {
				t.Errorf("the pod's own variables have changed: %v", p.Spec.Containers[0].Env)
			}
		})
	}
}
