package record

// observed begins what was decided, once nothing is under way.
func (c *Config) observed(s *State, e *Observed, now Instant) Effect {
	if e.Outcome != Done {
		return c.to(s, resting, Rest{Failed: true})
	}
	if !understands(&e.Record) {
		return c.newer(s, e.Record)
	}
	if !c.ours(s, &e.Record) {
		return c.lost(s, e.Record)
	}
	s.Record = e.Record
	if s.Record.Intent.Operation != None {
		return c.unresolved(s, e, now)
	}
	if s.Record.Suspect != nil && e.Resolution == Settled {
		s.Record.Suspect = nil
		return c.to(s, clearing, WriteLease{Record: s.Record})
	}
	switch e.Next {
	case NextAct:
		return c.begin(s, e, now)
	case NextHandOver:
		return c.release(s, HandedOver)
	case NextFinish:
		return c.release(s, Finished)
	case NextRest:
	}
	if e.News {
		return c.to(s, renewing, WriteLease{Record: s.Record})
	}
	return c.to(s, resting, Rest{})
}

// unresolved is what follows an observation while an operation is on the record. Nothing else is
// begun while it does.
func (c *Config) unresolved(s *State, e *Observed, now Instant) Effect {
	on := &s.Record.Intent
	switch kindOf(on.Operation) {
	case Presumed:
		switch {
		case e.Resolution == Settled:
			return c.clear(s)
		case e.Resolution == Refuted && (s.Record.Suspect == nil || s.Record.Suspect.ID == on.Member.ID):
			s.Record.Suspect = on.Member
			return c.clear(s)
		case e.Resolution == Open && e.Next == NextAct && e.Intent.repeats(on):
			return c.begin(s, e, now)
		}
	case Blocking:
		if e.Resolution != Settled {
			s.Doubted = max(s.Doubted, now)
		} else if e.Begun-s.Doubted >= c.Recovery {
			return c.clear(s)
		}
	case Fenced, Light, Unknown:
		return c.resolve(s) // An unclear write of ours has landed after all.
	}
	if e.Next == NextHandOver {
		return c.release(s, HandedOver)
	}
	return c.rest(s, e.News)
}

// rest waits, after it has told the news.
func (c *Config) rest(s *State, news bool) Effect {
	if news {
		return c.to(s, renewing, WriteLease{Record: s.Record})
	}
	return c.to(s, resting, Rest{})
}

// begin writes to the record right before an operation, which shows that the record is still ours. It
// writes the intent of all but a light one.
func (c *Config) begin(s *State, e *Observed, now Instant) Effect {
	s.Begun = e.Begun
	switch kind := kindOf(e.Intent.Operation); {
	case kind == Light:
		renew := WriteLease{Record: s.Record}
		s.Record.Intent = e.Intent
		return c.to(s, recording, renew)
	case kind == Unknown:
		return c.end(s, Unwritable, "there is no kind of operation for "+string(e.Intent.Operation))
	case !kind.complete(&e.Intent):
		return c.end(s, Unwritable, "the intent does not say enough to be settled: "+e.Intent.String())
	case kind == Presumed && s.Record.Suspect != nil && s.Record.Suspect.ID != e.Intent.Member.ID:
		return c.rest(s, e.News) // The record has room for one.
	case kind == Blocking:
		s.Doubted = now + e.Intent.Call()
	}
	s.Record.Intent = e.Intent
	s.Record.Intent.Epoch = s.Epoch
	return c.to(s, recording, WriteLease{Record: s.Record})
}

// act carries out what was decided, if that is still young, now that the record was written.
func (c *Config) act(s *State, now Instant) Effect {
	by := s.Begun + c.MaxEvidenceAge
	deadline, aged, kind := by, now >= by, kindOf(s.Record.Intent.Operation)
	s.Pausing = s.Pausing || aged
	switch {
	case aged && kind == Light:
		s.Record.Intent = Intent{}
		return c.to(s, resting, Rest{Failed: true})
	case aged && kind == Presumed: // It may be there from an earlier attempt.
		return c.to(s, resting, Rest{Failed: true})
	case aged:
		return c.clear(s) // It was never sent, so there is nothing to resolve.
	case kind == Blocking: // Its call has to begin in time. It may well take longer.
		deadline = now + s.Record.Intent.Call()
		s.Doubted = deadline
	}
	return c.to(s, acting, Act{Intent: s.Record.Intent, By: by, Deadline: deadline})
}

// acted is what follows an operation. Only of one that is done nothing more can come.
func (c *Config) acted(s *State, o Outcome, now Instant) Effect {
	kind := kindOf(s.Record.Intent.Operation)
	if kind == Light {
		s.Record.Intent = Intent{}
		if o != Done {
			return c.to(s, resting, Rest{Failed: true})
		}
		return c.proceed(s, now)
	}
	s.Pausing = false
	if o == Done {
		return c.clear(s)
	}
	if kind != Fenced {
		return c.to(s, resting, Rest{Failed: true}) // What became of it, the next observations show.
	}
	// A removal may arrive at any time, unless its pod changes first. That holds for one that
	// failed or was refused, too: a client repeats a request by itself (client-go does after a 503
	// with Retry-After), and we only know the answer to its last attempt. An earlier attempt may
	// even be why the last one was refused: an eviction changes its pod, and then deletes what it
	// has changed.
	s.Pausing = o == Failed || o == Unclear
	return c.resolve(s)
}
