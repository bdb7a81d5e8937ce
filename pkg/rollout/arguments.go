package rollout

import (
	"fmt"
	"slices"
	"strings"
)

// Argument is a setting of etcd's in a pod template, by its command or by its environment.
type Argument struct {
	// Name is that of the flag, without dashes. Value is empty where it has none, and where it cannot be seen.
	Name, Value string
	// Hidden is true where it has a value that cannot be seen.
	Hidden bool
	// Variable is the one in the environment that stands for the flag, and empty for an argument of the command.
	Variable string
	// Place says where the template has it: "command", "args" or "environment".
	Place string
}

// label is what the template calls it.
func (a *Argument) label() string {
	if a.Variable != "" {
		return a.Variable
	}
	return "--" + a.Name
}

// values are what is set: several flags take a list, and that of the feature gates has NAME=true.
func (a *Argument) values(yield func(string) bool) {
	for value := range strings.SplitSeq(a.Value, ",") {
		if value, _, _ = strings.Cut(value, "="); !yield(strings.TrimSpace(value)) {
			return
		}
	}
}

// releases is a range of them: from one on, and below another. The zero value of either is no bound.
type releases struct{ from, below Version }

func (r releases) has(v Version) bool {
	return !v.less(r.from) && (r.below == Version{} || v.less(r.below))
}

// The table of arguments is about the releases from oldestListed on and before beyondListed. Of later ones, only
// what is known to go is in it.
var (
	oldestListed = Version{3, 4, 0}
	beyondListed = Version{3, 8, 0}
)

// unlisted says that nothing, or not everything, is known of a version; it is empty where all is.
func unlisted(v Version) string {
	switch {
	case v.less(oldestListed):
		return "etcd " + v.InWords() + " is older than what is known"
	case !v.less(beyondListed):
		return "etcd " + v.InWords() + " is newer than what is known"
	}
	return ""
}

// refused is a row about arguments that only these releases know, as name or, for a value of a flag that takes only
// some, as name=value.
func refused(do, source string, arguments []string, known ...releases) Check {
	return Check{
		Guard: GuardKnownArguments, From: "any", To: others(known), Do: do, Source: source,
		Why:       "etcd does not start with an argument or a value that it does not know",
		arguments: arguments, known: known,
	}
}

// lateRefused is a row about a value that etcd refuses from a release on, after it has parsed its command.
func lateRefused(do, source, argument string, since Version) Check {
	c := refused(do, source, []string{argument}, releases{below: since})
	c.late = true
	return c
}

// others says in words which releases do not know what the given ones know.
func others(known []releases) string {
	var words []string
	for i, r := range known {
		switch {
		case r.from == r.from.minor() && r.from != Version{}:
			words = append(words, "below "+r.from.InWords())
		case i > 0: // It came to this minor version later than to the one before.
			words = append(words, r.from.InWords()+" below "+r.from.String())
		case r.from != Version{}:
			words = append(words, "below "+r.from.String())
		}
	}
	if end := known[len(known)-1].below; end != (Version{}) {
		words = append(words, end.InWords()+" or later")
	}
	return strings.Join(words, ", and ")
}

// knows is true where these releases include a version.
func (c *Check) knows(v Version) bool {
	return slices.ContainsFunc(c.known, func(r releases) bool { return r.has(v) })
}

// about is the row about an argument, given as name or name=value, or nil.
func about(argument string) *Check {
	for i := range Checks {
		if slices.Contains(Checks[i].arguments, argument) {
			return &Checks[i]
		}
	}
	return nil
}

// Knows is false for an argument of etcd's command, as name or name=value, that the table says a version does not
// know.
func Knows(v Version, argument string) bool {
	row := about(argument)
	return row == nil || row.knows(v)
}

// finding is an argument that keeps a version of etcd from starting.
type finding struct {
	row      *Check
	argument *Argument
	// value is what is refused, and empty where the flag itself is.
	value string
}

func (f *finding) label() string {
	if f.value == "" {
		return f.argument.label()
	}
	return f.argument.label() + "=" + f.value
}

// wayOut is what to do about it. Many flags have lost or got a prefix, and are the same.
func (f *finding) wayOut(to Version) string {
	name, was := strings.CutPrefix(f.argument.Name, "experimental-")
	if !was {
		name = "experimental-" + name
	}
	if f.value == "" && about(name) != nil && Knows(to, name) {
		return "use --" + name + " instead"
	}
	for _, r := range f.row.known {
		switch {
		case !to.less(r.from):
		case to.minor() == r.from.minor():
			return "new in etcd " + r.from.String() + ": take that release or a later one, or remove this from the " +
				"template"
		default:
			return "new in etcd " + r.from.String() + ": remove from the template"
		}
	}
	return f.row.Do
}

// finds returns what the new template gives to etcd, and the new version refuses. An unknown flag ends it, but an
// unknown variable does not: that is ignored. A value is refused from both. Where there is a configuration file, the
// environment is not read, and of the command only the names and what its parser refuses count.
func (s *Step) finds() (found []finding) {
	for i := range s.Arguments {
		a := &s.Arguments[i]
		if s.ConfigFile && a.Variable != "" || a.Variable != "" && s.overruled(a.Name) {
			continue
		}
		if row := about(a.Name); row != nil && !row.knows(s.To) {
			if a.Variable == "" {
				found = append(found, finding{row: row, argument: a})
			}
			continue
		}
		for value := range a.values {
			row := about(a.Name + "=" + value)
			if row != nil && !row.knows(s.To) && (!s.ConfigFile || !row.late) {
				found = append(found, finding{row: row, argument: a, value: value})
			}
		}
	}
	return found
}

// overruled is true for a flag in the command, whatever the environment says of it.
func (s *Step) overruled(name string) bool {
	return slices.ContainsFunc(s.Arguments, func(a Argument) bool { return a.Variable == "" && a.Name == name })
}

// ignores are the variables of the template that the new version does not know, and ignores.
func (s *Step) ignores() (ignored []string) {
	for i := range s.Arguments {
		if a := &s.Arguments[i]; a.Variable != "" && !s.ConfigFile && !Knows(s.To, a.Name) {
			ignored = append(ignored, a.Variable)
		}
	}
	return ignored
}

// hides are the arguments whose value may be one that the new version refuses, and cannot be seen.
func (s *Step) hides() (hidden []string) {
	for i := range s.Arguments {
		a := &s.Arguments[i]
		if !a.Hidden || a.Variable != "" && (s.ConfigFile || s.overruled(a.Name)) || !Knows(s.To, a.Name) {
			continue
		}
		for k := range Checks {
			if c := &Checks[k]; !c.knows(s.To) && (!s.ConfigFile || !c.late) &&
				slices.ContainsFunc(c.arguments, func(x string) bool { return strings.HasPrefix(x, a.Name+"=") }) {
				hidden = append(hidden, a.label())
				break
			}
		}
	}
	return hidden
}

// Unchecked says what of the arguments nobody can judge here, and is empty where all are judged.
func (s *Step) Unchecked() string {
	var why []string
	if beyond := unlisted(s.To); beyond != "" && s.To != (Version{}) {
		why = append(why, beyond+" of etcd's arguments")
	}
	if s.Unseen != "" {
		why = append(why, s.Unseen)
	}
	if hidden := s.hides(); len(hidden) > 0 {
		why = append(why, "the value of "+strings.Join(hidden, ", ")+" is not in the template")
	}
	return strings.Join(why, "; ")
}

// loses is true for a candidate that would get a release of the same minor version that does not know an argument of
// the template which its own release does.
func loses(a *Assessment, c *Replica) bool {
	s := a.Step()
	own, said := a.state.versionOf(c)
	return said && len(s.From) > 0 && own.minor() == s.To.minor() && c.Pod.EtcdImage != a.state.Set.Etcd.Image &&
		slices.ContainsFunc(s.finds(), func(f finding) bool { return f.row.knows(own) }) && !a.state.wayBack(c)
}

// knownArguments: etcd ends at once with an argument that it does not know, or such a value. What the command of
// another program means by an argument is not guessed at.
func knownArguments(a *Assessment, _ *Replica) Verdict {
	s := a.Step()
	if s.Unknown != "" {
		return Verdict{Pass: true, text: "not checked: " + s.Unknown}
	}
	if found := s.finds(); len(found) > 0 {
		return Verdict{text: s.describe() + ": etcd " + s.To.String() + " does not start with " + s.tell(found)}
	}
	var said []string
	if n := len(s.Arguments); n > 0 {
		said = append(said, fmt.Sprintf("arguments and variables of etcd's in the template: %d, none that etcd %s is "+
			"known to refuse", n, s.To))
	}
	if ignored := s.ignores(); len(ignored) > 0 {
		said = append(said, "it ignores "+strings.Join(ignored, ", "))
	}
	if unchecked := s.Unchecked(); unchecked != "" {
		said = append(said, "not checked: "+unchecked)
	}
	if len(said) == 0 {
		said = append(said, "the template gives etcd no arguments")
	}
	return Verdict{Pass: true, text: strings.Join(said, "; ")}
}

// tell says what was found, where the template has it, and what to do. What has one place and one way out is told
// together.
func (s *Step) tell(found []finding) string {
	var b strings.Builder
	for i := range found {
		f := &found[i]
		end := " (" + f.argument.Place + " of the container " + s.Container + "): " + f.wayOut(s.To)
		b.WriteString(f.label())
		switch {
		case i+1 == len(found):
			b.WriteString(end)
		case f.argument.Place == found[i+1].argument.Place && f.wayOut(s.To) == found[i+1].wayOut(s.To):
			b.WriteString(", ")
		default:
			b.WriteString(end + "; nor with ")
		}
	}
	return b.String()
}
