package rollout

// Quota is how large the database of a replica's member may become.
func (a *Assessment) Quota(r *Replica) Quota {
	q := Quota{Bytes: defaultQuota, From: "etcd's default, because nothing says otherwise"}
	switch {
	case r.Member != nil && r.Member.Probe.Status != nil && r.Member.Probe.Status.Quota != 0:
		q = Quota{r.Member.Probe.Status.Quota, "the member's status"}
	case r.Pod != nil && r.Pod.Quota.Bytes != 0:
		q = r.Pod.Quota
	case a.policy.QuotaBytes != 0:
		q = Quota{a.policy.QuotaBytes, "Quorate's option quota-bytes"}
	}
	return q
}

// Database says how large a member's database is.
type Database struct {
	// Size is how many bytes it takes, and Free how many of them a defragmentation would give back.
	Size, Free int64
	Quota      Quota
}

// Database returns the numbers of a replica's database, or nil if they are not known.
func (a *Assessment) Database(r *Replica) *Database {
	if r.Member == nil || r.Member.Probe.Status == nil || r.Member.Probe.Status.Size == 0 {
		return nil
	}
	st := r.Member.Probe.Status
	return &Database{Size: st.Size, Free: max(st.Size-st.InUse, 0), Quota: a.Quota(r)}
}

// reaches is true for a database of at least so many percent of its quota.
func (d *Database) reaches(percent int) bool {
	return d.Quota.Bytes > 0 && d.Size >= d.Quota.Bytes/100*int64(percent)
}

// gains is true if so many percent of the database are free, and that is worth a defragmentation.
func (d *Database) gains(percent int) bool {
	return d.Free >= leastFree && d.Free >= d.Size/100*int64(percent)
}

// String says it for people.
func (d *Database) String() string {
	if d == nil {
		return "unknown"
	}
	text := SizeText(d.Size)
	if d.Quota.Bytes > 0 {
		text += " of " + SizeText(d.Quota.Bytes)
	}
	return text + ", " + SizeText(d.Free) + " free in it"
}

// Fullest is the largest part of its quota that the database of a member of ours takes, 0 if none is known. With it
// comes whether there is an alarm NOSPACE.
func (a *Assessment) Fullest() (part float64, alarm bool) {
	for i := range a.Replicas {
		if d := a.Database(&a.Replicas[i]); d != nil && d.Quota.Bytes > 0 {
			part = max(part, float64(d.Size)/float64(d.Quota.Bytes))
		}
	}
	return part, a.noSpace
}
