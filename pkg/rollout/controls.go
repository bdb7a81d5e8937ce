package rollout

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// The annotations by which an operator controls a rollout. They stand on the
// record's Lease (quorate-<statefulset>): a flag in the pod template would itself start
// a rollout, and etcd-druid replaces the StatefulSet's metadata at every reconcile.
const (
	// ControlPaused holds the rollout while it is "true".
	ControlPaused = "quorate.dev/paused"
	// ControlPartition protects the ordinals below its value. It cannot bind a crash:
	// under OnDelete every recreated pod gets the new revision.
	ControlPartition = "quorate.dev/partition"
	// ControlMaxUnavailable is a number of members or a percentage of replicas, rounded
	// down, at least 1 (KEP-961).
	ControlMaxUnavailable = "quorate.dev/max-unavailable"
	// ControlOverrideGuards names guards that are not to hold a removal, separated by
	// commas: the escape hatch of an operator who knows better.
	ControlOverrideGuards = "quorate.dev/override-guards"
	// ControlOverrideUntil (a time in RFC 3339) ends the override at that time, and ControlOverrideRevision as soon
	// as the StatefulSet has another update revision than its value, or that one is complete: then the coordinator
	// takes the override off the Lease. Without them it lasts until it is cleared.
	// ControlOverrideBy and ControlOverrideReason say who has set it, and why.
	ControlOverrideUntil    = "quorate.dev/override-until"
	ControlOverrideRevision = "quorate.dev/override-revision"
	ControlOverrideBy       = "quorate.dev/override-by"
	ControlOverrideReason   = "quorate.dev/override-reason"
	// ControlEtcdVersions says which version of etcd is in an image whose tag does not say it, as
	// IMAGE=VERSION, separated by commas. IMAGE is the end of the image's name with its tag or digest.
	ControlEtcdVersions = "quorate.dev/etcd-versions"
	// ControlAllowLast lets the last member of an older minor version go, where the policy holds before
	// it. It names the rollout (REVISION@GENERATION), so that it does not bind the next one.
	ControlAllowLast = "quorate.dev/allow-last"
	// ControlQuorumGuard, if it is "off", lets the quorum guard (deploy/components/quorum-guard) deny nothing. It holds
	// no rollout, whatever it says: the guard itself goes by this word alone.
	ControlQuorumGuard = "quorate.dev/guard"
	// QuorumGuardOff is that word.
	QuorumGuardOff = "off"
)

// Controls are what an operator set on the record's Lease.
type Controls struct {
	Paused bool
	// Partition and MaxUnavailable replace the policy's; nil when not set.
	Partition      *int
	MaxUnavailable *Amount
	// Override are the guards that do not hold, and Terms say for how long, by whose will, and why.
	Override []Guard
	Terms    Terms
	// Ended are the guards of an override that is over: they hold again, and its annotations are still there.
	Ended []Guard
	// EtcdVersions say which version of etcd is in an image.
	EtcdVersions []ImageVersion
	// AllowLast is the [Set.Allowance] of the rollout that may end; empty for none.
	AllowLast string
	// GuardOff: the quorum guard denies nothing, where it is installed.
	GuardOff bool
	// Bad names every control that cannot be read, with its value and what is
	// allowed. A bad control holds the rollout: it is never guessed at.
	Bad []string
}

// Terms are those of an override.
type Terms struct {
	// Until is when it ends, zero if no time ends it. Revision is the only update revision that it is for, empty if
	// it is for all of them.
	Until    time.Time `json:"until,omitzero"`
	Revision string    `json:"revision,omitempty"`
	// By is who has set it, and Reason is why, in that person's words.
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// At returns the controls as they are at a time and a revision: an override may have ended by then.
func (c Controls) At(revision string, now time.Time) Controls {
	if t := &c.Terms; !t.Until.IsZero() && !now.Before(t.Until) || t.Revision != "" && t.Revision != revision {
		c.Override, c.Ended = nil, c.Override
	}
	return c
}

// HoldAll is true if the controls hold everything that a coordinator could do.
func (c Controls) HoldAll() bool { return c.Paused || len(c.Bad) > 0 }

// Amount is a number of members, or a percentage of them.
type Amount struct {
	Number  int
	Percent bool
}

// Of returns how many of n members the amount is: rounded down, at least 1, because
// with 0 nothing could ever be replaced.
func (a Amount) Of(n int) int {
	if a.Percent {
		return max(1, n*a.Number/100)
	}
	return max(1, a.Number)
}

// String returns what [ParseAmount] reads.
func (a Amount) String() string {
	if a.Percent {
		return strconv.Itoa(a.Number) + "%"
	}
	return strconv.Itoa(a.Number)
}

// ParseAmount reads "2" or "40%".
func ParseAmount(s string) (Amount, error) {
	digits, percent := strings.CutSuffix(s, "%")
	n, err := strconv.Atoi(digits)
	switch {
	case err != nil || strconv.Itoa(n) != digits:
		return Amount{}, fmt.Errorf("%q is neither a number nor a percentage such as 40%%", s)
	case n < 1:
		return Amount{}, fmt.Errorf("%q is below 1, so nothing could ever be replaced", s)
	case percent && n > 100:
		return Amount{}, fmt.Errorf("%q is above 100%%", s)
	}
	return Amount{Number: n, Percent: percent}, nil
}

// MarshalText writes what [ParseAmount] reads.
func (a Amount) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// ParseControls reads the controls among a Lease's annotations. Unknown annotations
// of ours are bad as well: a misspelt pause must not be taken for none.
func ParseControls(annotations map[string]string) Controls {
	var c Controls
	for _, key := range sortedKeys(annotations) {
		value := strings.TrimSpace(annotations[key])
		said := false
		bad := func(allowed string) {
			if !said { // Once for each: a long list may have many faults.
				c.Bad = append(c.Bad, fmt.Sprintf("%s: %s: %s", key, quoted(value), allowed))
			}
			said = true
		}
		switch key {
		case ControlPaused:
			switch value {
			case "true":
				c.Paused = true
			case "false":
			default:
				bad(`use "true" or "false"`)
			}
		case ControlPartition:
			n, err := strconv.Atoi(value)
			if err != nil || n < 0 {
				bad("use an ordinal, 0 or higher")
				continue
			}
			c.Partition = &n
		case ControlMaxUnavailable:
			a, err := ParseAmount(value)
			if err != nil {
				bad("use a number of members or a percentage, at least 1")
				continue
			}
			c.MaxUnavailable = &a
		case ControlOverrideGuards:
			c.Override = overrides(value, bad)
		case ControlOverrideUntil:
			until, err := time.Parse(time.RFC3339, value)
			if err != nil || until.IsZero() {
				bad("use a time such as 2026-01-02T15:04:05Z")
				continue
			}
			c.Terms.Until = until
		case ControlOverrideRevision:
			if value == "" {
				bad("use the name of an update revision")
				continue
			}
			c.Terms.Revision = value
		case ControlOverrideBy:
			c.Terms.By = oneLine(value)
		case ControlOverrideReason:
			c.Terms.Reason = oneLine(value)
		case ControlEtcdVersions:
			c.EtcdVersions = etcdVersions(value, bad)
		case ControlAllowLast:
			c.AllowLast = value
		case ControlQuorumGuard:
			c.GuardOff = annotations[key] == QuorumGuardOff
		default:
			if misspelt(key) {
				bad("is not a control; use " + strings.Join(controlNames, ", "))
			}
		}
	}
	return c
}

// quoted is a value as it is told: what is not ours may be of any length.
func quoted(value string) string {
	const longest = 64
	if len(value) <= longest {
		return strconv.Quote(value)
	}
	return strconv.Quote(strings.ToValidUTF8(value[:longest], "")) + "…"
}

// oneLine is a person's word as it is told: it may be of any length, and contain anything.
func oneLine(value string) string {
	const longest = 256
	if len(value) > longest {
		value = strings.ToValidUTF8(value[:longest], "") + "…"
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, value)
}

var controlNames = []string{ControlPaused, ControlPartition, ControlMaxUnavailable, ControlOverrideGuards,
	ControlOverrideUntil, ControlOverrideRevision, ControlOverrideBy, ControlOverrideReason, ControlEtcdVersions,
	ControlAllowLast}

// misspelt is true for a key that differs from a control only in letter case, dashes
// or a final "d" or "s", and for every other one that begins like an override: what was to end it would have no effect.
// Other keys under quorate.dev/ are the record's own.
func misspelt(key string) bool {
	key = plain(key)
	return strings.HasPrefix(key, overrideBegins) ||
		slices.ContainsFunc(controlNames, func(name string) bool { return key == plain(name) })
}

// separators is made once: every observation reads the controls, and to make it takes more
// memory than all else in a decision.
var separators = strings.NewReplacer("-", "", "_", "", ".", "")

var overrideBegins = plain("quorate.dev/override")

func plain(key string) string {
	key = strings.ToLower(separators.Replace(key))
	return strings.TrimRight(key, "ds")
}

func overrides(value string, bad func(string)) []Guard {
	var names []Guard
	for name := range strings.SplitSeq(value, ",") {
		name = strings.TrimSpace(name)
		switch row := RowOf(Guard(name)); {
		case name == "":
		case row != nil && row.overridable:
			names = append(names, row.Name)
		default:
			bad(quoted(name) + " is not a guard that can be overridden")
		}
	}
	return names
}

func etcdVersions(value string, bad func(string)) []ImageVersion {
	var said []ImageVersion
	for one := range strings.SplitSeq(value, ",") {
		if one = strings.TrimSpace(one); one == "" {
			continue
		}
		image, version, _ := strings.Cut(one, "=")
		v, ok := ParseVersion(version)
		if !ok || image == "" {
			bad("use IMAGE=VERSION, such as etcd-wrapper:v0.7.0=3.5.27")
			continue
		}
		said = append(said, ImageVersion{Image: image, Version: v})
	}
	return said
}

// under returns the policy as the controls change it.
func (p Policy) under(c Controls) Policy {
	if c.Partition != nil {
		p.Partition = *c.Partition
	}
	if c.MaxUnavailable != nil {
		p.MaxUnavailable = *c.MaxUnavailable
	}
	return p
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
