package record

import (
	"fmt"
	"slices"
)

// proceed is what a holder does whenever it knows what the record says. First it rules out what can
// be ruled out, then it keeps the record fresh, and only then it observes.
func (c *Config) proceed(s *State, now Instant) Effect {
	switch {
	case kindOf(s.Record.Intent.Operation) == Fenced:
		return c.resolve(s)
	case now-s.Renewed >= c.Every(s):
		return c.to(s, renewing, WriteLease{Record: s.Record})
	}
	return c.to(s, observing, Observe{})
}

// resolve makes sure that the removal on the record has no effect from here on. Its pod is changed
// even if it has changed since: an eviction changes its pod before it removes it.
func (c *Config) resolve(s *State) Effect {
	i := s.Record.Intent
	if i.Operation == FenceAll {
		return c.to(s, listing, ListPods{})
	}
	s.Unfenced = []Pod{{Name: i.Pod, UID: i.UID, ResourceVersion: i.ResourceVersion}}
	return c.fence(s)
}

func (c *Config) podsListed(s *State, e PodsListed) Effect {
	if e.Outcome != Done {
		return c.to(s, resting, Rest{Failed: true})
	}
	s.Unfenced = slices.Clone(e.Pods)
	return c.fence(s)
}

func (c *Config) fence(s *State) Effect {
	if len(s.Unfenced) == 0 {
		s.Unfenced = nil
		return c.clear(s)
	}
	return c.to(s, fencing, s.change(s.Unfenced[0]))
}

// change is the change that fences a pod. The value is new for this pod: no two claims on one Lease share an epoch, and
// a pod never has the same resourceVersion twice. If the request is repeated, only the first attempt changes the pod,
// and that is enough.
func (s *State) change(p Pod) FencePod {
	return FencePod{Pod: p, Value: fmt.Sprintf("epoch %d, resourceVersion %s", s.Epoch, p.ResourceVersion)}
}

// Fences are the changes that are asked for one after the other from here on, unless one of them fails. They may be
// carried out at once. Each is about a pod of its own, and all it does is to make earlier removals of that pod fail. So
// a change does no harm if the claim ends before it is asked for.
func (s *State) Fences() []FencePod {
	fences := make([]FencePod, 0, len(s.Unfenced))
	for _, p := range s.Unfenced {
		fences = append(fences, s.change(p))
	}
	return fences
}

func (c *Config) podFenced(s *State, e PodFenced) Effect {
	fenced := e.Outcome == Refused || e.Outcome == Done && e.ResourceVersion != s.Unfenced[0].ResourceVersion
	if !fenced {
		s.Unfenced = nil
		return c.to(s, resting, Rest{Failed: true})
	}
	s.Unfenced = s.Unfenced[1:]
	return c.fence(s)
}

func (c *Config) clear(s *State) Effect {
	s.Record.Intent = Intent{}
	return c.to(s, clearing, WriteLease{Record: s.Record})
}
