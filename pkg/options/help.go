package options

import (
	"slices"

	"github.com/spf13/pflag"

	"github.com/quorate/quorate/internal/settings"
)

// The headings under which help shows the flags.
const (
	titleGeneral    = "Flags"
	titleKubernetes = "Kubernetes flags"
	titleEtcd       = "etcd flags"
	titlePolicy     = string(settings.Policy)
	titleTiming     = string(settings.Timing)
	titleReporting  = string(settings.Reporting)
	// noTitle is for a host, whose help is its own.
	noTitle = ""
)

// group annotates a flag with its heading.
const group = "quorate.dev/group"

func setGroup(f *pflag.Flag, title string) {
	if title == noTitle {
		return
	}
	if f.Annotations == nil {
		f.Annotations = map[string][]string{}
	}
	f.Annotations[group] = []string{title}
}

// Group is some flags that belong together.
type Group struct {
	Title string
	Flags *pflag.FlagSet
}

// needed are the flags that most people need at some time, in the order of need. A command's own flags are all needed,
// and of a sidecar's settings those whose right value depends on the cluster, as in the help of a host.
var needed = []string{
	"config", "namespace", "statefulset", "pod-name", "context", "kubeconfig", "endpoints", "cacert", "cert", "key",
	"until-complete", "listen-address", "log-level",
}

// rare annotates the other flags.
const rare = "quorate.dev/rare"

func setRare(f *pflag.Flag) {
	if !slices.Contains(needed, f.Name) {
		f.Annotations[rare] = []string{"true"}
	}
}

// Needed returns the flags of the group that most people need: a command's own, in the order in which it has registered
// them, and the others in the order of need. Those that are left out work all the same.
func (g Group) Needed() *pflag.FlagSet {
	var flags []*pflag.Flag
	g.Flags.SortFlags = false
	g.Flags.VisitAll(func(f *pflag.Flag) {
		if _, is := f.Annotations[rare]; !is {
			flags = append(flags, f)
		}
	})
	g.Flags.SortFlags = true
	slices.SortStableFunc(flags, func(a, b *pflag.Flag) int {
		return slices.Index(needed, a.Name) - slices.Index(needed, b.Name)
	})
	some := pflag.NewFlagSet(g.Title, pflag.ContinueOnError)
	some.SortFlags = false
	for _, f := range flags {
		some.AddFlag(f)
	}
	return some
}

// Groups splits a command's flags for its help. The command's own come first.
func Groups(fs *pflag.FlagSet) []Group {
	var groups []Group
	for _, title := range []string{titleGeneral, titleKubernetes, titleEtcd, titlePolicy, titleTiming, titleReporting} {
		g := Group{Title: title, Flags: pflag.NewFlagSet(title, pflag.ContinueOnError)}
		fs.VisitAll(func(f *pflag.Flag) {
			of := f.Annotations[group]
			if len(of) == 0 && title == titleGeneral || len(of) > 0 && of[0] == title {
				g.Flags.AddFlag(f)
			}
		})
		if g.Flags.HasAvailableFlags() {
			groups = append(groups, g)
		}
	}
	return groups
}
