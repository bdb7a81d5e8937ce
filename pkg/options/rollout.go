package options

import (
	"encoding"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/quorate/quorate/coordinator"
	"github.com/quorate/quorate/internal/settings"
)

// Rollout is everything about rollouts that can be chosen, and nothing about how etcd and Kubernetes
// are reached.
type Rollout struct {
	// Config has what was chosen: the fields that [coordinator.Config.Settings] names. No other field is set.
	coordinator.Config

	// Events says whether Kubernetes events are written. They are on by default, because operators look
	// at events first, and there are few.
	Events bool
	// ReadNodes says whether the nodes of the StatefulSet's pods are read. It is off by default, because it needs a
	// permission of the whole cluster.
	ReadNodes bool
}

// NewRollout returns the defaults.
func NewRollout() Rollout {
	var o Rollout
	table := o.table()
	for i := range table {
		table[i].Reset()
	}
	return o
}

// table has a row for each setting: those of a coordinator, and the switches of what a coordinator is handed over.
func (o *Rollout) table() settings.Table {
	return append(o.Settings(),
		settings.Setting{
			Name: "read-nodes", Field: settings.At(&o.ReadNodes, false), Group: settings.Policy,
			Help: "read the nodes of the StatefulSet's pods, by name, so that leadership moves away from a node that " +
				"is cordoned, and no other member is removed meanwhile",
			Why: "off, because it needs get and watch on nodes, see deploy/components/nodes; without it only " +
				"the pods' own conditions announce an eviction, a moment before it",
		},
		settings.Setting{
			Name: "events", Field: settings.At(&o.Events, true), Group: settings.Reporting,
			Help: "write Kubernetes events on the StatefulSet: removals, leader moves, hand-overs, holds that last, " +
				"completion",
			Why: "on, because operators look there first; needs create and patch on events",
		},
	)
}

// one returns the row of a name, under a heading of its own.
func (o *Rollout) one(name string, under settings.Group) settings.Table {
	rows := slices.DeleteFunc(o.table(), func(s settings.Setting) bool { return s.Name != name })
	rows[0].Group = under
	return rows
}

// outside returns the rows that matter to somebody who looks from outside, and decides as a coordinator does.
func (o *Rollout) outside() settings.Table {
	return slices.DeleteFunc(o.table(), func(s settings.Setting) bool { return s.Scope == settings.Runs })
}

// ApplyTo writes the options into a coordinator's configuration. It takes the APIs for events and nodes away if
// they are off, so set them before.
func (o *Rollout) ApplyTo(cfg *coordinator.Config) {
	to := cfg.Settings()
	for i, from := range o.Settings() {
		to[i].CopyFrom(from.Field)
	}
	if !o.Events {
		cfg.Events = nil
	}
	if !o.ReadNodes {
		cfg.Nodes = nil
	}
}

// register makes a flag of a setting.
func register(fs *pflag.FlagSet, s *settings.Setting) {
	switch p := s.Pointer().(type) {
	case *bool:
		fs.BoolVar(p, s.Name, *p, s.Usage())
	case *time.Duration:
		fs.DurationVar(p, s.Name, *p, s.Usage())
	case *uint64:
		fs.Uint64Var(p, s.Name, *p, s.Usage())
	case *[]string:
		fs.StringSliceVar(p, s.Name, *p, s.Usage())
	case textValue:
		fs.Var(text{p, s.Unit}, s.Name, s.Usage())
	default:
		panic(fmt.Sprintf("%s: no flag can have the type %T", s.Name, p))
	}
}

// textValue reads and writes itself.
type textValue interface {
	encoding.TextMarshaler
	encoding.TextUnmarshaler
}

// text makes a flag's value of it.
type text struct {
	textValue
	unit string
}

func (t text) String() string {
	written, _ := t.MarshalText()
	return string(written)
}

func (t text) Set(s string) error { return t.UnmarshalText([]byte(s)) }

func (t text) Type() string { return t.unit }
