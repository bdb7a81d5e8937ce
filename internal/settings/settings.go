// Package settings says what a setting is: one row with everything that is known about it. Package coordinator has
// the table. Flags, files, help, the reference page and the validation are made from its rows, so none of them has a
// list of its own.
package settings

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"
)

// Setting is one thing that an operator may choose.
type Setting struct {
	// Name is that of the flag, and the key in a file: lock-ttl.
	Name string
	// Field is where the value is kept, with its default. [At] makes one.
	Field
	// Unit is what the value is counted in, or how it is written. It is empty where the type says that.
	Unit  string
	Group Group
	Scope Scope
	// Help says what the value is for. Why gives the reason for the default.
	Help, Why string
	// Host is what the right value depends on, if only the operator of a cluster can know that. The help of a host then
	// shows the flag. Where Host is empty the flag is hidden there, and works all the same.
	Host string
	// Rules are what has to hold of the value, as it is now.
	Rules []Rule
}

// Table has all settings of something.
type Table []Setting

// Group is the heading under which help shows the flag.
type Group string

// The headings.
const (
	Policy    Group = "Policy flags"
	Timing    Group = "Timing flags"
	Reporting Group = "Reporting flags"
)

// Scope says which commands have the flag.
type Scope uint8

const (
	// Runs is for a setting of the running coordinator alone.
	Runs Scope = iota
	// Looks is for one that matters to whoever looks at the cluster. The commands plan and status have it too.
	Looks
	// Decides is for one of the policy. So plan and status have it, and if it is given, they decide with that policy
	// instead of the coordinator's.
	Decides
)

// Usage is the help's text.
func (s *Setting) Usage() string {
	if s.Why == "" {
		return s.Help
	}
	return s.Help + " (" + s.Why + ")"
}

// Camel is the name as etcd-backup-restore writes its own keys: lock-ttl is lockTTL.
func (s *Setting) Camel() string {
	words := strings.Split(s.Name, "-")
	for i, w := range words[1:] {
		words[i+1] = strings.ToUpper(w[:1]) + w[1:]
		if w == "ttl" {
			words[i+1] = "TTL"
		}
	}
	return strings.Join(words, "")
}

// GoName is the name of the field in a configuration: LockTTL, or Policy.MaxLag.
func (s *Setting) GoName() string {
	name := s.Camel()
	name = strings.ToUpper(name[:1]) + name[1:]
	if s.Scope == Decides {
		return "Policy." + name
	}
	return name
}

// Rule is something that has to hold of a value.
type Rule struct {
	holds bool
	about any
	words string
}

// Must returns a rule. The words follow the name and the value, and say what is wrong. Another setting is named in
// them as {lock-ttl}, and appears there under the name that its user knows.
func Must(holds bool, words string, args ...any) Rule {
	return Rule{holds: holds, words: fmt.Sprintf(words, args...)}
}

// Each returns a rule for every part of a value that is a list. An error has that part alone.
func Each[T any](parts []T, holds func(T) bool, words string) []Rule {
	rules := make([]Rule, len(parts))
	for i, part := range parts {
		rules[i] = Rule{holds: holds(part), about: part, words: words}
	}
	return rules
}

var mentioned = regexp.MustCompile(`\{[a-z-]+\}`)

// Check returns every rule that is broken, one line each, with the setting, its value and what is wrong. called is
// what its user calls a setting: a flag, a key of a file, or a field.
func (t Table) Check(called func(*Setting) string) error {
	var errs []error
	rename := func(braced string) string {
		other := Setting{Name: strings.Trim(braced, "{}")} // The table may be a part that does not have it.
		for i := range t {
			if t[i].Name == other.Name {
				other = t[i]
			}
		}
		return called(&other)
	}
	for i := range t {
		s := &t[i]
		for _, r := range s.Rules {
			if r.holds {
				continue
			}
			value := r.about
			if value == nil {
				value = s.Value()
			}
			errs = append(errs, fmt.Errorf("%s: %s: %s", called(s), shown(value),
				mentioned.ReplaceAllStringFunc(r.words, rename)))
		}
	}
	return errors.Join(errs...)
}

// shown puts texts into quotes, so that one that is empty or has a space is seen.
func shown(value any) string {
	switch value := value.(type) {
	case string:
		return fmt.Sprintf("%q", value)
	case []string:
		return fmt.Sprintf("%q", strings.Join(value, ","))
	}
	return fmt.Sprint(value)
}

// Field is a place for a value, and the default.
type Field struct {
	pointer, byDefault any
	set                func(any)
}

// At returns a field.
func At[T any](field *T, byDefault T) Field {
	return Field{pointer: field, byDefault: byDefault, set: func(value any) { *field = value.(T) }}
}

// Pointer is a *T, where T is the field's type.
func (f Field) Pointer() any { return f.pointer }

// Value is the T that is there now.
func (f Field) Value() any { return reflect.ValueOf(f.pointer).Elem().Interface() }

// Reset sets the default.
func (f Field) Reset() { f.set(f.byDefault) }

// Fill sets the default if there is the zero value.
func (f Field) Fill() {
	if reflect.ValueOf(f.Value()).IsZero() {
		f.Reset()
	}
}

// CopyFrom takes the value of another field of the same type.
func (f Field) CopyFrom(other Field) { f.set(other.Value()) }
