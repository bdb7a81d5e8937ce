package workload

import (
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate/quorate/internal/rollout"
)

// programOf returns what a container says of etcd: its image, and the arguments and variables that etcd itself
// will read.
func programOf(c *corev1.Container) rollout.Program {
	p := rollout.Program{Image: c.Image}
	if args, found := argumentsOfEtcd(c); !found {
		p.Unseen = "the command is not etcd's own"
	} else {
		p.Arguments = args
		if slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "config-file=") }) {
			p.Unseen = "etcd has a configuration file of its own"
		}
	}
	for i := range c.Env {
		if name := c.Env[i].Name; strings.HasPrefix(name, "ETCD_") {
			p.Variables = append(p.Variables, name)
		}
	}
	return p
}

// argumentsOfEtcd returns the arguments that follow etcd's program, as name or name=value. The program may be
// inside a script. Without a command, the image named etcd runs it. What another program gets, whether it runs
// etcd or not, says nothing about etcd: then found is false.
func argumentsOfEtcd(c *corev1.Container) (args []string, found bool) {
	image, _, _ := strings.Cut(path.Base(c.Image), "@")
	image, _, _ = strings.Cut(image, ":")
	// Arguments alone go to the program that the image names.
	ofEtcd := image == "etcd" && len(c.Command) == 0 && (len(c.Args) == 0 || strings.HasPrefix(c.Args[0], "-"))
	found = ofEtcd
	before := ""
	for _, list := range [2][]string{c.Command, c.Args} {
		for _, element := range list {
			if strings.ContainsAny(element, " \t\n") {
				before = "" // A script.
			}
			for word := range words(element) {
				switch {
				case word == "":
					ofEtcd = false
				case !ofEtcd:
					ofEtcd = runsEtcd(word, before)
					found = found || ofEtcd
				case strings.HasPrefix(word, "-"):
					args = append(args, strings.TrimPrefix(strings.TrimPrefix(word, "-"), "-"))
				case len(args) > 0 && !strings.Contains(args[len(args)-1], "="):
					args[len(args)-1] += "=" + word
				}
				before = word
			}
		}
	}
	return args, found
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
