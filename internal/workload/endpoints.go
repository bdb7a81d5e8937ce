package workload

import (
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// ClientURLs are those under which clients reach the etcd of a pod, as far as the pod's spec tells. These are the URLs
// that etcd advertises. If the spec does not name them, or they are good inside the pod only, it is the pod's own name
// with the scheme and the port of a URL that is good inside the pod: one that etcd listens on, or one of near, by which
// another of the pod's containers reaches it. It is empty if the spec tells neither.
func ClientURLs(p *corev1.Pod, names Names, near []string) []string {
	var advertised, listens []string
	c := containerOf(&p.Spec, names.EtcdContainer)
	// With a configuration file of its own, etcd takes neither from its command or its environment.
	if c != nil && Setting(p, c, "config-file", prefix+"CONFIG_FILE") == "" {
		advertised = strings.Split(Setting(p, c, "advertise-client-urls", prefix+"ADVERTISE_CLIENT_URLS"), ",")
		listens = strings.Split(Setting(p, c, "listen-client-urls", prefix+"LISTEN_CLIENT_URLS"), ",")
	}
	var good []string
	for _, text := range advertised {
		if u := clientURL(text); u != nil && !Inside(u.Hostname()) {
			good = append(good, text)
		}
	}
	if len(good) > 0 {
		return good
	}
	for _, text := range slices.Concat(advertised, listens, near) {
		if u, host := clientURL(text), hostOf(p); u != nil && host != "" {
			return []string{u.Scheme + "://" + net.JoinHostPort(host, u.Port())}
		}
	}
	return nil
}

// Setting is what a container of a pod is given by a flag, or else by its environment, with the variables that the
// flag's value refers to. It is empty if there is none, or if the pod's spec does not tell it.
func Setting(p *corev1.Pod, c *corev1.Container, flag, variable string) string {
	own := corev1.Container{Command: c.Command, Args: c.Args, Env: inPod(c.Env, p)}
	values := map[string]string{}
	for i := range own.Env {
		if v := &own.Env[i]; v.ValueFrom == nil && !open(v.Value) {
			values[v.Name] = v.Value
		}
	}
	// The kubelet puts values for $(NAME), and the shell of a script for $NAME and ${NAME}.
	text := os.Expand(expanded(settingOf(&own, flag, variable), own.Env), func(name string) string {
		if value, known := values[name]; known {
			return value
		}
		return "$" + name
	})
	if open(text) {
		return ""
	}
	return text
}

// inPod gives the variables that come from the pod's own fields the values that they have in this pod.
func inPod(env []corev1.EnvVar, p *corev1.Pod) []corev1.EnvVar {
	env = slices.Clone(env)
	for i := range env {
		v := &env[i]
		if v.ValueFrom != nil && v.ValueFrom.FieldRef != nil {
			value := map[string]string{
				"metadata.name": p.Name, "metadata.namespace": p.Namespace, "status.podIP": p.Status.PodIP,
			}[v.ValueFrom.FieldRef.FieldPath]
			if value != "" {
				v.Value, v.ValueFrom = value, nil
			}
		}
		v.Value = expanded(v.Value, env[:i]) // A variable may refer to those before it.
	}
	return env
}

// clientURL reads a URL with a host and a port, and returns nil for anything else.
func clientURL(text string) *url.URL {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.Port() == "" {
		return nil
	}
	return u
}

// Inside is true for a host that is another one in every pod, and on every machine.
func Inside(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && (ip.IsLoopback() || ip.IsUnspecified())
}

// hostOf is the name that a pod has by the Service of its StatefulSet, or else its address. It is empty if the pod has
// neither yet.
func hostOf(p *corev1.Pod) string {
	if p.Spec.Hostname != "" && p.Spec.Subdomain != "" {
		return p.Spec.Hostname + "." + p.Spec.Subdomain + "." + p.Namespace + ".svc"
	}
	return p.Status.PodIP
}

// InsideURL is true for a URL whose host is such a one.
func InsideURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && Inside(u.Hostname())
}
