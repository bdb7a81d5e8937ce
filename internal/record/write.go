package record

func (c *Config) leaseWritten(s *State, e LeaseWritten, now Instant) Effect {
	switch s.Phase {
	case claiming, clearing, renewing, recording, releasing:
	default:
		return c.end(s, Unwritable, "a write was answered that nobody asked for")
	}
	if e.Outcome != Done {
		return c.notWritten(s, e.Outcome)
	}
	if s.Phase == releasing {
		return c.end(s, s.Ending, "")
	}
	s.Record.ResourceVersion, s.Renewed = e.ResourceVersion, now
	switch {
	case s.Phase == recording:
		return c.act(s, now)
	case s.Phase == claiming && kindOf(s.Record.Intent.Operation) == Blocking:
		// Whoever put it there may have begun it a moment ago.
		s.Doubted = now + s.Record.Intent.Call()
	case s.Pausing:
		s.Pausing = false
		return c.to(s, resting, Rest{Failed: true})
	}
	return c.proceed(s, now)
}

// notWritten: another writer was faster, or nobody knows. An operation is sent only after its intent
// is known to stand on the record, so what is read next is the whole truth. Only an unclear write may
// still land, and then the next swap fails.
func (c *Config) notWritten(s *State, o Outcome) Effect {
	if s.Phase == recording && kindOf(s.Record.Intent.Operation) == Light {
		s.Record.Intent = Intent{}
	}
	if s.Phase == claiming {
		switch o {
		case Refused:
			return c.end(s, Lost, "another coordinator was faster")
		case Done, Failed, Unclear:
		}
		return c.end(s, Unwritable, "the Lease could not be written")
	}
	switch {
	case o == Refused:
		return c.to(s, rereading, ReadLease{})
	case s.Stopping && o == Failed: // There is no time to wait until it is allowed.
		return c.end(s, Stopped, "")
	}
	return c.to(s, resting, Rest{Failed: true})
}

// release gives the record back, so that the next coordinator need not wait. An intent
// that is not resolved stays on it.
//
// Only a write that was answered ends the claim. After any other answer the record may still
// be ours, and nobody else would end what it says. So we observe again if there is time for that, and
// otherwise read the record alone.
func (c *Config) release(s *State, how Ended) Effect {
	s.Ending = how
	given := s.Record
	given.Holder = ""
	given.Rolling = how != Finished
	return c.to(s, releasing, WriteLease{Record: given})
}

func (c *Config) stop(s *State) Effect {
	s.Stopping = true
	switch s.Phase {
	case out, reading, checking, claiming:
		return c.end(s, Stopped, "")
	case rereading: // That will say whether there is something to give back.
		return c.to(s, rereading, ReadLease{})
	case releasing:
		return c.release(s, s.Ending)
	case recording, acting:
		// The operation is not sent. Only an earlier attempt of a presumed one may be.
		if kindOf(s.Record.Intent.Operation) != Presumed {
			s.Record.Intent = Intent{}
		}
	default:
	}
	return c.release(s, Stopped)
}
