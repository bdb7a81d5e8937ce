package workload

import (
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate/quorate/pkg/rollout"
)

// prefix is that of the variables that stand for flags of etcd's.
const prefix = "ETCD_"

// programOf returns what a container says of etcd: its image, and what etcd itself will read of the container's command
// and its environment.
func programOf(c *corev1.Container) rollout.Program {
	p := rollout.Program{Image: c.Image, Container: c.Name}
	var unseen []string
	command := commandLine{env: c.Env, ofEtcd: runsItself(c)}
	command.found = command.ofEtcd
	command.read("command", c.Command)
	command.read("args", c.Args)
	if command.found {
		p.Arguments = command.args
	} else {
		unseen = append(unseen, "the command is not etcd's own")
	}
	if command.open != "" {
		unseen = append(unseen, "what "+command.open+" stands for in etcd's command")
	}
	for i := range c.Env {
		if v := &c.Env[i]; strings.HasPrefix(v.Name, prefix) {
			p.Arguments = withVariable(p.Arguments, variable(v.Name, value(v, c.Env), "environment"))
		}
	}
	for _, v := range command.variables {
		p.Arguments = withVariable(p.Arguments, v)
	}
	if slices.ContainsFunc(p.Arguments, isConfigFile) {
		p.ConfigFile = true
		unseen = append(unseen, "etcd has a configuration file of its own")
	} else if len(c.EnvFrom) > 0 {
		unseen = append(unseen, "variables come from elsewhere (envFrom)")
	}
	p.Unseen = strings.Join(unseen, "; ")
	return p
}

func isConfigFile(a rollout.Argument) bool {
	return a.Name == "config-file" && (a.Value != "" || a.Hidden)
}

// withVariable sets a variable. The last one of a name counts, and etcd takes an empty one for none.
func withVariable(all []rollout.Argument, v rollout.Argument) []rollout.Argument {
	all = slices.DeleteFunc(all, func(a rollout.Argument) bool { return a.Variable == v.Variable })
	if v.Value == "" {
		return all
	}
	return append(all, v)
}

// runsItself is true where the image named etcd runs it without a command. Arguments alone go to the program that the
// image names.
func runsItself(c *corev1.Container) bool {
	image, _, _ := strings.Cut(path.Base(c.Image), "@")
	image, _, _ = strings.Cut(image, ":")
	return image == "etcd" && len(c.Command) == 0 && (len(c.Args) == 0 || strings.HasPrefix(c.Args[0], "-"))
}

// commandLine is what has been read of a container's command: the arguments that follow etcd's program, and the
// variables that are set before it. The program may be inside a script. What another program gets, whether it runs etcd
// or not, says nothing about etcd: then found is false.
type commandLine struct {
	env             []corev1.EnvVar
	args, variables []rollout.Argument
	found, ofEtcd   bool
	// open is a word in the place of an argument for which the shell puts something else.
	open   string
	before string
	// valued is true where the last argument has its value.
	valued bool
}

func (l *commandLine) read(place string, elements []string) {
	for i, element := range elements {
		element = expanded(element, l.env)
		switch {
		case l.ofEtcd: // No shell reads it.
			l.argument(element, place)
			continue
		case strings.ContainsAny(element, " \t\n"):
			l.before = "" // A script.
		case i == 0 && place == "command" && path.Base(element) == "etcd":
			l.found, l.ofEtcd = true, true
			continue
		}
		for word := range words(element) {
			l.word(word, place)
			l.before = word
		}
	}
}

func (l *commandLine) word(word, place string) {
	switch {
	case word == "":
		l.ofEtcd = false
	case l.ofEtcd:
		l.argument(word, place)
	default:
		l.ofEtcd = runsEtcd(word, l.before)
		l.found = l.found || l.ofEtcd
		if name, value, sets := strings.Cut(word, "="); sets && strings.HasPrefix(name, prefix) {
			l.variables = append(l.variables, variable(name, value, place))
		}
	}
}

func (l *commandLine) argument(word, place string) {
	switch {
	case strings.HasPrefix(word, "-"):
		name, value, valued := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(word, "-"), "-"), "=")
		if l.valued = valued; name != "" {
			l.args = append(l.args, rollout.Argument{Name: name, Value: value, Hidden: open(value), Place: place})
		}
	case len(l.args) > 0 && !l.valued && word != "$@" && word != "$*":
		last := &l.args[len(l.args)-1]
		last.Value, last.Hidden, l.valued = word, open(word), true
	case open(word):
		l.open = word
	}
}

// variable is one of etcd's environment, which stands for a flag.
func variable(name, value, place string) rollout.Argument {
	flag := strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(name, prefix)), "_", "-")
	return rollout.Argument{Name: flag, Value: value, Hidden: open(value), Variable: name, Place: place}
}

// value is that of a variable. One that comes from elsewhere is said as the kubelet says what it does not know.
func value(v *corev1.EnvVar, env []corev1.EnvVar) string {
	if v.ValueFrom != nil {
		return "$(" + v.Name + ")"
	}
	return expanded(v.Value, env)
}

// open is true for text that something else is put for, which is not in the template.
func open(text string) bool { return strings.ContainsAny(text, "$`") }

// expanded puts the values of variables for $(NAME), as the kubelet does, but for those that are not in the template.
func expanded(text string, env []corev1.EnvVar) string {
	if !strings.Contains(text, "$(") {
		return text
	}
	for i := range env {
		if v := &env[i]; v.ValueFrom == nil && !strings.Contains(v.Value, "$(") {
			text = strings.ReplaceAll(text, "$("+v.Name+")", v.Value)
		}
	}
	return text
}

// runsEtcd is true for a word that is etcd's program, and not the value of an argument.
func runsEtcd(word, before string) bool {
	program := word == "etcd" || strings.HasSuffix(word, "bin/etcd")
	return program && (before == "--" || !strings.HasPrefix(before, "-"))
}

var unquoted = strings.NewReplacer(`"`, "", "'", "")

// words returns the words of a command line or a script, and an empty one where a command ends.
func words(script string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for i, line := range strings.Split(strings.ReplaceAll(script, "\\\n", " "), "\n") {
			if i > 0 && !yield("") {
				return
			}
			for word := range strings.FieldsSeq(line) {
				if word[0] == '#' {
					break
				}
				bare := unquoted.Replace(strings.Trim(word, ";&|"))
				if bare != "" && !yield(bare) || strings.ContainsAny(word, ";&|") && !yield("") {
					return
				}
			}
		}
	}
}
