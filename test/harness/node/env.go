package node

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/kubernetes/pkg/fieldpath"
	"k8s.io/kubernetes/third_party/forked/golang/expansion"
)

// objectSource reads the objects that containers and volumes refer to.
type objectSource interface {
	secret(name string) (*corev1.Secret, error)
	configMap(name string) (*corev1.ConfigMap, error)
}

// resolvedEnv is a container's environment as its pod's spec gives it.
type resolvedEnv struct {
	names  []string // in order of first appearance
	values map[string]string
}

func (e *resolvedEnv) set(name, value string) {
	if _, ok := e.values[name]; !ok {
		e.names = append(e.names, name)
	}
	e.values[name] = value
}

// resolveEnv computes the environment of a container by the kubelet's rules: envFrom
// first, then env in order, where a value may refer to variables before it. An API error
// other than "not found" is returned as it is, so that the caller can tell an API server
// that is away from a mistake in the spec.
func resolveEnv(pod *corev1.Pod, container *corev1.Container, hostIP, podIP string,
	objects objectSource) (*resolvedEnv, error) {
	env := &resolvedEnv{values: map[string]string{}}
	for _, from := range container.EnvFrom {
		data := map[string]string{}
		switch {
		case from.ConfigMapRef != nil:
			configMap, err := objects.configMap(from.ConfigMapRef.Name)
			if skip, err := optional(err, from.ConfigMapRef.Optional); skip {
				continue
			} else if err != nil {
				return nil, err
			}
			data = configMap.Data
		case from.SecretRef != nil:
			secret, err := objects.secret(from.SecretRef.Name)
			if skip, err := optional(err, from.SecretRef.Optional); skip {
				continue
			} else if err != nil {
				return nil, err
			}
			for name, value := range secret.Data {
				data[name] = string(value)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(data)) {
			env.set(from.Prefix+name, data[name])
		}
	}
	lookup := expansion.MappingFuncFor(env.values)
	for _, variable := range container.Env {
		value := variable.Value
		if value != "" {
			value = expansion.Expand(value, lookup)
		} else if variable.ValueFrom != nil {
			var ok bool
			var err error
			value, ok, err = resolveSource(variable.ValueFrom, pod, hostIP, podIP, objects)
			if err != nil {
				return nil, fmt.Errorf("env %s: %w", variable.Name, err)
			}
			if !ok {
				continue
			}
		}
		env.set(variable.Name, value)
	}
	return env, nil
}

// optional reports whether a missing object may be left out.
func optional(err error, isOptional *bool) (skip bool, _ error) {
	if apierrors.IsNotFound(err) && isOptional != nil && *isOptional {
		return true, nil
	}
	return false, err
}

// resolveSource returns the value, or false when it is optional and missing.
func resolveSource(source *corev1.EnvVarSource, pod *corev1.Pod, hostIP, podIP string,
	objects objectSource) (string, bool, error) {
	switch {
	case source.FieldRef != nil:
		value, err := fieldValue(source.FieldRef.FieldPath, pod, hostIP, podIP)
		return value, true, err
	case source.ConfigMapKeyRef != nil:
		ref := source.ConfigMapKeyRef
		configMap, err := objects.configMap(ref.Name)
		if skip, err := optional(err, ref.Optional); skip || err != nil {
			return "", false, err
		}
		if value, ok := configMap.Data[ref.Key]; ok {
			return value, true, nil
		}
		return "", false, missingKey(ref.Optional, "couldn't find key %s in ConfigMap %s/%s", ref.Key,
			pod.Namespace, ref.Name)
	case source.SecretKeyRef != nil:
		ref := source.SecretKeyRef
		secret, err := objects.secret(ref.Name)
		if skip, err := optional(err, ref.Optional); skip || err != nil {
			return "", false, err
		}
		if value, ok := secret.Data[ref.Key]; ok {
			return string(value), true, nil
		}
		return "", false, missingKey(ref.Optional, "couldn't find key %s in Secret %s/%s", ref.Key,
			pod.Namespace, ref.Name)
	default:
		return "", false,
			fmt.Errorf("this source of a value is not supported by the node agent; use fieldRef, configMapKeyRef or " +
				"secretKeyRef")
	}
}

func missingKey(isOptional *bool, format string, args ...any) error {
	if isOptional != nil && *isOptional {
		return nil
	}
	return fmt.Errorf(format, args...)
}

// fieldValue reads a field of the pod for the downward API.
func fieldValue(path string, pod *corev1.Pod, hostIP, podIP string) (string, error) {
	switch path {
	case "spec.nodeName":
		return pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	case "status.hostIP", "status.hostIPs":
		return hostIP, nil
	case "status.podIP", "status.podIPs":
		return podIP, nil
	}
	value, err := fieldpath.ExtractFieldPathAsString(pod, path)
	if err != nil {
		return "", fmt.Errorf("field %q: %w", path, err)
	}
	return value, nil
}

// mount says where a volume that a container has mounted is on this machine.
type mount struct {
	path  string // in the container
	local string // on the machine
}

// rewriter replaces mount paths by local paths.
type rewriter []mount

func newRewriter(mounts []mount) rewriter {
	r := slices.Clone(mounts)
	// The longest first: a volume may be mounted below another one.
	slices.SortStableFunc(r, func(a, b mount) int { return len(b.path) - len(a.path) })
	return r
}

// rewrite replaces mount paths wherever they stand as a path of their own or as the
// beginning of one: not in the middle of a word or of a longer path, but behind "=", ",",
// ":", a quote, or the "//" of a URL.
func (r rewriter) rewrite(text string) string {
	var out strings.Builder
	for i := 0; i < len(text); {
		if m, ok := r.at(text, i); ok {
			out.WriteString(m.local)
			i += len(m.path)
			continue
		}
		out.WriteByte(text[i])
		i++
	}
	return out.String()
}

func (r rewriter) at(text string, i int) (mount, bool) {
	if text[i] != '/' {
		return mount{}, false
	}
	if i > 0 && (pathByte(text[i-1]) || text[i-1] == '/') && !strings.HasSuffix(text[:i], "://") {
		return mount{}, false
	}
	for _, m := range r {
		if rest, ok := strings.CutPrefix(text[i:], m.path); ok && (rest == "" || !pathByte(rest[0])) {
			return m, true
		}
	}
	return mount{}, false
}

// pathByte reports whether a byte continues the last element of a path.
func pathByte(b byte) bool {
	return b == '.' || b == '-' || b == '_' || b == '~' || b == '%' || b == '+' || b == '@' ||
		'0' <= b && b <= '9' || 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' || b >= 0x80
}

// commandLine is what runs in a container.
type commandLine struct {
	argv    []string
	env     []string
	dir     string
	scratch string
	probe   []string // the command of an exec probe
	rewrite rewriter // of the paths of its volumes
}

// surroundings is what a container gets without its spec's doing.
type surroundings struct {
	binary  string            // the program of the image
	scratch string            // a directory of the container's own
	env     map[string]string // of the agent's configuration
}

// serviceAccountPath is where a container has its ServiceAccount's token: the API server's
// admission mounts it there.
const serviceAccountPath = "/var/run/secrets/kubernetes.io/serviceaccount"

// addKubeconfig gives a container with a token a kubeconfig with it. The file refers to that
// of the token, which is renewed.
func (s *surroundings) addKubeconfig(config Config, namespace string, mounts []mount) error {
	i := slices.IndexFunc(mounts, func(m mount) bool { return m.path == serviceAccountPath })
	if i < 0 || config.APIServer == "" {
		return nil
	}
	const name = "pod"
	path := filepath.Join(s.scratch, "kubeconfig")
	if err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{
			name: {Server: config.APIServer, CertificateAuthorityData: config.APIServerCA}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{
			name: {TokenFile: filepath.Join(mounts[i].local, corev1.ServiceAccountTokenKey)}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name, Namespace: namespace}},
		CurrentContext: name,
	}, path); err != nil {
		return err
	}
	if s.env == nil {
		s.env = map[string]string{}
	}
	s.env["KUBECONFIG"] = path
	return nil
}

// newCommandLine puts together a container's command. References are expanded with the
// values of the spec, and every result is rewritten once.
func newCommandLine(pod *corev1.Pod, container *corev1.Container, env *resolvedEnv, r rewriter,
	s surroundings) commandLine {
	lookup := expansion.MappingFuncFor(env.values)
	expand := func(texts []string) []string {
		expanded := make([]string, 0, len(texts))
		for _, text := range texts {
			expanded = append(expanded, r.rewrite(expansion.Expand(text, lookup)))
		}
		return expanded
	}
	command := expand(container.Command)
	if len(command) == 0 {
		command = []string{s.binary}
	} else {
		command[0] = program(command[0], s.binary)
	}

	// What a container runtime sets, unless the spec does.
	given := map[string]string{
		"PATH":     "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME":     s.scratch,
		"TMPDIR":   s.scratch,
		"HOSTNAME": pod.Name,
	}
	if pod.Spec.Hostname != "" {
		given["HOSTNAME"] = pod.Spec.Hostname
	}
	maps.Copy(given, s.env)
	line := commandLine{argv: append(command, expand(container.Args)...), dir: s.scratch,
		scratch: s.scratch, rewrite: r}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if _, ok := env.values[name]; !ok {
			line.env = append(line.env, name+"="+given[name])
		}
	}
	for _, name := range env.names {
		line.env = append(line.env, name+"="+r.rewrite(env.values[name]))
	}
	if container.WorkingDir != "" {
		if dir := r.rewrite(container.WorkingDir); dir != container.WorkingDir {
			line.dir = dir
		} else {
			// A directory of the image, which is empty here.
			line.dir = filepath.Join(s.scratch, filepath.Clean("/"+container.WorkingDir))
		}
	}
	if p := container.ReadinessProbe; p != nil && p.Exec != nil && len(p.Exec.Command) > 0 {
		// In a probe's command a kubelet expands only variables with a plain value.
		static := map[string]string{}
		for _, variable := range container.Env {
			if variable.ValueFrom == nil {
				static[variable.Name] = variable.Value
			}
		}
		for _, word := range p.Exec.Command {
			line.probe = append(line.probe, r.rewrite(expansion.Expand(word, expansion.MappingFuncFor(static))))
		}
		line.probe[0] = program(line.probe[0], s.binary)
	}
	return line
}

// program returns what runs for the first word of a command: the image's binary under
// whatever name, or the shell.
func program(name, binary string) string {
	if name == "sh" || name == "/bin/sh" {
		return "/bin/sh"
	}
	return binary
}
