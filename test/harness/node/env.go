package node

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/kubernetes/pkg/fieldpath"
	"k8s.io/kubernetes/third_party/forked/golang/expansion"

	"github.com/quorate/quorate/test/harness/network"
	"github.com/quorate/quorate/test/harness/process"
	"github.com/quorate/quorate/test/harness/rootfs"
)

// objectSource reads the objects that volumes refer to.
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

// resolveEnv computes the environment of a container by the kubelet's rules: in order, where a value may refer to
// variables before it.
func resolveEnv(pod *corev1.Pod, container *corev1.Container, hostIP, podIP string) (*resolvedEnv, error) {
	env := &resolvedEnv{values: map[string]string{}}
	lookup := expansion.MappingFuncFor(env.values)
	for _, variable := range container.Env {
		value := expansion.Expand(variable.Value, lookup)
		if source := variable.ValueFrom; source != nil {
			if source.FieldRef == nil {
				return nil, fmt.Errorf("env %s: a value from elsewhere is not supported by the node agent; "+
					"use fieldRef", variable.Name)
			}
			var err error
			if value, err = fieldValue(source.FieldRef.FieldPath, pod, hostIP, podIP); err != nil {
				return nil, fmt.Errorf("env %s: %w", variable.Name, err)
			}
		}
		env.set(variable.Name, value)
	}
	return env, nil
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
	path     string // in the container
	local    string // on the machine
	readOnly bool
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
	argv     []string
	env      []string
	dir      string
	launcher []string
	probe    []string // the command of an exec probe
	rewrite  rewriter // of the paths of its volumes
	// contained is what it sees, where it has a root file system of its own.
	contained *rootfs.Container
}

// spec is how a program is started in the container.
func (l commandLine) spec(name string, argv []string) process.Spec {
	if l.contained == nil {
		return process.Spec{Name: name, Path: argv[0], Args: argv[1:], Env: l.env, Dir: l.dir, Launcher: l.launcher}
	}
	// The program is looked up in the container, by the launcher.
	return process.Spec{Name: name, Path: l.launcher[0], Args: slices.Concat(l.launcher[1:], argv), Env: l.env,
		Dir: l.dir}
}

// joining is the same for further programs in the container, once its first process runs.
func (l commandLine) joining(process int, attachment network.Attachment) commandLine {
	if l.contained == nil {
		return l
	}
	again := *l.contained
	again.Mounts, again.Joins = nil, process
	// What could be written once can be written again.
	l.launcher, _ = attachment.Contain(again)
	return l
}

// surroundings is what a container gets without its spec's doing.
type surroundings struct {
	program string            // of the image, by the path under which the container has it
	env     map[string]string // what a container runtime and the agent's configuration set
	dir     string            // the working directory on the machine
	// rewrite and contained are alternatives.
	rewrite   rewriter
	contained *rootfs.Container
}

// usualPath is the PATH of a container whose image does not set it.
const usualPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

func hostname(pod *corev1.Pod) string {
	if pod.Spec.Hostname != "" {
		return pod.Spec.Hostname
	}
	return pod.Name
}

// serviceAccountPath is where a container has its ServiceAccount's token: the API server's
// admission mounts it there.
const serviceAccountPath = "/var/run/secrets/kubernetes.io/serviceaccount"

// outside are the surroundings of a container that shares the machine's root file system: its files
// are in a folder, and the paths of its volumes are rewritten.
func outside(config Config, pod *corev1.Pod, spec *corev1.Container, image Image, mounts []mount,
	scratch string) (surroundings, error) {
	s := surroundings{program: image.Program, rewrite: newRewriter(mounts), dir: scratch, env: map[string]string{
		"PATH": usualPath, "HOME": scratch, "TMPDIR": scratch, "HOSTNAME": hostname(pod),
	}}
	if spec.WorkingDir != "" {
		if dir := s.rewrite.rewrite(spec.WorkingDir); dir != spec.WorkingDir {
			s.dir = dir
		} else {
			// A directory of the image, which is empty here.
			s.dir = filepath.Join(scratch, filepath.Clean("/"+spec.WorkingDir))
		}
	}
	maps.Copy(s.env, config.Env)
	i := slices.IndexFunc(mounts, func(m mount) bool { return m.path == serviceAccountPath })
	if i < 0 || config.APIServer == "" {
		return s, nil
	}
	s.env["KUBECONFIG"] = filepath.Join(scratch, "kubeconfig")
	return s, writeKubeconfig(s.env["KUBECONFIG"], config, pod.Namespace, mounts[i].local)
}

// writeKubeconfig writes the kubeconfig of a ServiceAccount. It refers to the file with its token,
// which is renewed.
func writeKubeconfig(path string, config Config, namespace, account string) error {
	const name = "pod"
	return clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{
			name: {Server: config.APIServer, CertificateAuthorityData: config.APIServerCA}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{
			name: {TokenFile: filepath.Join(account, corev1.ServiceAccountTokenKey)}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name, Namespace: namespace}},
		CurrentContext: name,
	}, path)
}

// inside are the surroundings of a container with a root file system of its own. Its folder is where
// that is mounted.
func inside(config Config, pod *corev1.Pod, spec *corev1.Container, image Image, mounts []mount,
	folder string) (surroundings, error) {
	c := identity(pod, spec, image)
	if nonRoot(pod, spec) && c.User == 0 {
		return surroundings{}, fmt.Errorf("container has runAsNonRoot and image will run as root "+
			"(pod: %q, container: %s)", pod.Name, spec.Name)
	}
	c.Folder, c.Program, c.Hostname, c.Dir = folder, image.Program, hostname(pod), spec.WorkingDir
	if c.Dir == "" {
		c.Dir = "/"
	}
	for _, m := range mounts {
		c.Mounts = append(c.Mounts, rootfs.Mount{Path: m.path, Source: m.local, ReadOnly: m.readOnly})
	}
	s := surroundings{dir: folder, contained: &c, env: map[string]string{
		"PATH": usualPath, "HOME": rootfs.Home(c.User), "HOSTNAME": c.Hostname,
	}}
	if image.Program != "" {
		s.program = rootfs.ProgramPath(image.Program)
	}
	if config.APIServer != "" {
		server, err := url.Parse(config.APIServer)
		if err != nil {
			return surroundings{}, err
		}
		s.env["KUBERNETES_SERVICE_HOST"] = server.Hostname()
		s.env["KUBERNETES_SERVICE_PORT"] = cmp.Or(server.Port(), "443")
	}
	maps.Copy(s.env, config.Env)
	return s, nil
}

// identity is who a container runs as. What the container says goes before what the pod says.
func identity(pod *corev1.Pod, spec *corev1.Container, image Image) rootfs.Container {
	ofPod, own := pod.Spec.SecurityContext, spec.SecurityContext
	if ofPod == nil {
		ofPod = &corev1.PodSecurityContext{}
	}
	if own == nil {
		own = &corev1.SecurityContext{}
	}
	c := rootfs.Container{User: image.User}
	if user := cmp.Or(own.RunAsUser, ofPod.RunAsUser); user != nil {
		c.User = int(*user)
	}
	c.Group = rootfs.GroupOf(c.User)
	if group := cmp.Or(own.RunAsGroup, ofPod.RunAsGroup); group != nil {
		c.Group = int(*group)
	}
	for _, group := range ofPod.SupplementalGroups {
		c.Groups = append(c.Groups, int(group))
	}
	if ofPod.FSGroup != nil {
		c.Groups = append(c.Groups, int(*ofPod.FSGroup))
	}
	c.NoNewPrivileges = own.AllowPrivilegeEscalation != nil && !*own.AllowPrivilegeEscalation
	c.ReadOnly = own.ReadOnlyRootFilesystem != nil && *own.ReadOnlyRootFilesystem
	return c
}

func nonRoot(pod *corev1.Pod, spec *corev1.Container) bool {
	var own, ofPod *bool
	if spec.SecurityContext != nil {
		own = spec.SecurityContext.RunAsNonRoot
	}
	if pod.Spec.SecurityContext != nil {
		ofPod = pod.Spec.SecurityContext.RunAsNonRoot
	}
	is := cmp.Or(own, ofPod)
	return is != nil && *is
}

// newCommandLine puts together a container's command. References are expanded with the
// values of the spec, and every result is rewritten once.
func newCommandLine(container *corev1.Container, env *resolvedEnv, s surroundings) commandLine {
	r := s.rewrite
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
		command = []string{s.program}
	} else {
		command[0] = program(command[0], s.program)
	}
	line := commandLine{argv: append(command, expand(container.Args)...), dir: s.dir, rewrite: r,
		contained: s.contained}
	for _, name := range slices.Sorted(maps.Keys(s.env)) {
		if _, ok := env.values[name]; !ok {
			line.env = append(line.env, name+"="+s.env[name])
		}
	}
	for _, name := range env.names {
		line.env = append(line.env, name+"="+r.rewrite(env.values[name]))
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
		line.probe[0] = program(line.probe[0], s.program)
	}
	return line
}

// program returns what runs for the first word of a command: the image's program under whatever name,
// or the shell. An image without a program has only tools, by their names.
func program(name, ofImage string) string {
	switch {
	case name == "sh" || name == "/bin/sh":
		return "/bin/sh"
	case ofImage == "":
		return name
	default:
		return ofImage
	}
}
