package report

import (
	"slices"

	"github.com/quorate/quorate/pkg/rollout"
)

// Memory is what a coordinator's decision rests on beyond what anybody can see. It stands in the
// report, so that whoever decides from outside (status, plan) comes to the same guard.
type Memory struct {
	// Policy is the policy that the coordinator was given.
	Policy rollout.Policy `json:"policy"`
	rollout.Memory
	// Gates are the host's own checks, as they were answered.
	Gates []rollout.Gate `json:"gates,omitempty"`
	// Heard are the UIDs of the pods whose own address refused a connection, so that their kubelets are believed.
	Heard []string `json:"heard,omitempty"`
	// Sidecars are what is known of the others that are there.
	Sidecars rollout.Sidecars `json:"sidecars,omitzero"`
}

// memoryOf returns nil for an observer from outside, who has no memory to tell of.
func memoryOf(s Sight) *Memory {
	if s.Policy == nil {
		return nil
	}
	m := &Memory{Policy: *s.Policy, Memory: s.State.Memory, Gates: s.State.Gates, Sidecars: s.State.Sidecars}
	for i := range s.State.Pods {
		if p := &s.State.Pods[i]; p.Heard {
			m.Heard = append(m.Heard, p.UID)
		}
	}
	return m
}

// Recall lets a state rest on the memory instead of on what its maker could find out, and
// reports false when there is none.
func (m *Memory) Recall(s *rollout.State) bool {
	if m == nil {
		return false
	}
	s.Memory, s.Gates, s.Sidecars = m.Memory, m.Gates, m.Sidecars
	s.Pods = slices.Clone(s.Pods)
	for i := range s.Pods {
		s.Pods[i].Heard = slices.Contains(m.Heard, s.Pods[i].UID)
	}
	return true
}
