package options

import (
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
