package report

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/quorate/quorate/internal/rollout"
)

// Memory is what a coordinator's decision rests on beyond what anybody can see: the policy
// that it was given, and what only time has taught it. It stands in the report, so that
// whoever decides from outside (status, plan) comes to the same guard.
type Memory struct {
	Policy Policy `json:"policy"`
	// Ages are how long things have been seen without a break.
	Ages []Age `json:"ages,omitempty"`
	// RefusedEviction is what the eviction API has said when it refused one just now.
	RefusedEviction *Refusal `json:"refusedEviction,omitempty"`
	// FailedTransfers counts leadership transfers that failed in a row, by the member's
	// ID in hexadecimal.
	FailedTransfers map[string]int `json:"failedTransfers,omitempty"`
	// Gates are the host's own checks.
	Gates []Gate `json:"gates,omitempty"`
}

// Policy is a [rollout.Policy] as it is written in flags.
type Policy struct {
	MaxUnavailable    string `json:"maxUnavailable"`
	Partition         int    `json:"partition,omitempty"`
	SettleTimeout     string `json:"settleTimeout"`
	DeadAfter         string `json:"deadAfter"`
	MaxLag            uint64 `json:"maxLag"`
	Removal           string `json:"removal"`
	AllowVolatileData bool   `json:"allowVolatileData,omitempty"`
	// TrustedMembers are those that the coordinator was told to rely on.
	TrustedMembers []string `json:"trustedMembers,omitempty"`
}

// Age says for how many seconds a condition of a pod (of the cluster, without a UID) has
// been seen without a break.
type Age struct {
	UID       string  `json:"uid,omitempty"`
	Condition string  `json:"condition"`
	Seconds   float64 `json:"seconds"`
}

// Refusal is a [rollout.Refusal].
type Refusal struct {
	Words   string `json:"words"`
	Lasting bool   `json:"lasting,omitempty"`
}

// Gate is a [rollout.Gate].
type Gate struct {
	Name    string `json:"name"`
	Pass    bool   `json:"pass"`
	Detail  string `json:"detail,omitempty"`
	SickToo bool   `json:"sickToo,omitempty"`
}

// memoryOf is nil for who has none: from outside.
func memoryOf(s Sight) *Memory {
	if s.Policy == nil {
		return nil
	}
	p := *s.Policy
	m := &Memory{
		Policy: Policy{
			MaxUnavailable: p.MaxUnavailable.String(), Partition: p.Partition, SettleTimeout: p.SettleTimeout.String(), DeadAfter: p.DeadAfter.String(),
			MaxLag: p.MaxLag, Removal: p.Removal.String(), AllowVolatileData: p.AllowVolatileData,
			TrustedMembers: p.TrustedMembers,
		},
	}
	if r := Refusal(s.State.RefusedEviction); r.Words != "" {
		m.RefusedEviction = &r
	}
	for seen, age := range s.State.Ages {
		m.Ages = append(m.Ages, Age{UID: seen.UID, Condition: seen.Condition.String(), Seconds: age.Round(time.Millisecond).Seconds()})
	}
	slices.SortFunc(m.Ages, func(x, y Age) int { return cmp.Or(cmp.Compare(x.UID, y.UID), cmp.Compare(x.Condition, y.Condition)) })
	for id, n := range s.State.FailedTransfers {
		if m.FailedTransfers == nil {
			m.FailedTransfers = map[string]int{}
		}
		m.FailedTransfers[strconv.FormatUint(id, 16)] = n
	}
	for _, g := range s.State.Gates {
		m.Gates = append(m.Gates, Gate(g))
	}
	return m
}

// Recall lets a state rest on the memory instead of on what its maker could find out, and
// reports false when there is none. What the coordinator has not seen yet has no age, which
// only makes a decision wait.
func (m *Memory) Recall(s *rollout.State) bool {
	if m == nil {
		return false
	}
	conditions := map[string]rollout.Condition{}
	for c := rollout.ReadySeen; c <= rollout.PodSeen; c++ {
		conditions[c.String()] = c
	}
	s.Ages = map[rollout.Sighting]time.Duration{}
	for _, a := range m.Ages {
		if c, ok := conditions[a.Condition]; ok {
			s.Ages[rollout.Sighting{UID: a.UID, Condition: c}] = time.Duration(a.Seconds * float64(time.Second))
		}
	}
	s.RefusedEviction = rollout.Refusal{}
	if m.RefusedEviction != nil {
		s.RefusedEviction = rollout.Refusal(*m.RefusedEviction)
	}
	s.FailedTransfers = map[uint64]int{}
	for id, n := range m.FailedTransfers {
		if member, err := strconv.ParseUint(id, 16, 64); err == nil {
			s.FailedTransfers[member] = n
		}
	}
	s.Gates = nil
	for _, g := range m.Gates {
		s.Gates = append(s.Gates, rollout.Gate(g))
	}
	return true
}

// Of returns the policy; what cannot be read is the default.
func (p Policy) Of() rollout.Policy {
	policy := rollout.DefaultPolicy()
	if a, err := rollout.ParseAmount(p.MaxUnavailable); err == nil {
		policy.MaxUnavailable = a
	}
	if d, err := time.ParseDuration(p.SettleTimeout); err == nil {
		policy.SettleTimeout = d
	}
	if d, err := time.ParseDuration(p.DeadAfter); err == nil {
		policy.DeadAfter = d
	}
	if p.MaxLag > 0 {
		policy.MaxLag = p.MaxLag
	}
	if p.Removal == rollout.RemoveByDelete.String() {
		policy.Removal = rollout.RemoveByDelete
	}
	policy.Partition, policy.AllowVolatileData = p.Partition, p.AllowVolatileData
	policy.TrustedMembers = p.TrustedMembers
	return policy
}
