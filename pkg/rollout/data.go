package rollout

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The data of members may differ although etcd raises no alarm (etcd-io/etcd#13766). Each of them answers linearizable
// reads, and not with the same. Their statuses show it: an entry of the log raises the revision of the data by at most
// one.
//
// What two members say is not of one moment, and what one says is not either: etcd reads the index first and the
// revision later. So a difference counts once it was found in this many looks in a row, over this long. It is void when
// nobody has found it for lapsesAfter.
const (
	provenBy    = 5
	provenAfter = 10 * time.Second
	lapsesAfter = 25 * time.Second
)

// Difference is between two members whose data cannot be the same.
type Difference struct {
	// More and Less are the members' IDs. What More has applied explains no such revision beside that of Less.
	More uint64 `json:"more,string"`
	Less uint64 `json:"less,string"`
	// Looks are in how many it was found, one after the other, and For is the time from the first to the last one.
	Looks int           `json:"looks"`
	For   time.Duration `json:"for"`
}

// Proven is true for a difference that no unlucky moment explains.
func (d Difference) Proven() bool { return d.Looks >= provenBy && d.For >= provenAfter }

func (d Difference) between(x, y *Member) bool {
	return d.More == x.ID && d.Less == y.ID || d.More == y.ID && d.Less == x.ID
}

// Comparison is what a coordinator keeps of the differences that its looks have found. The zero value has seen
// nothing.
type Comparison struct {
	cluster uint64
	found   map[pair]course
}

type pair struct{ more, less uint64 }

type course struct {
	first, last time.Time
	looks       int
}

func (c course) of(p pair) Difference {
	return Difference{p.more, p.less, c.looks, c.last.Sub(c.first)}
}

// Look returns what is to be kept after another look. A difference that is not found again was none, unless it had been
// proven: two members may agree for a moment by what they say while one of them is behind.
func (c Comparison) Look(now time.Time, m Membership) Comparison {
	next := Comparison{cluster: c.cluster}
	if m.Known {
		next.cluster = m.ClusterID
	}
	keep := func(p pair, is course) {
		if next.found == nil {
			next.found = map[pair]course{}
		}
		next.found[p] = is
	}
	for p, was := range c.found {
		if next.cluster == c.cluster && now.Sub(was.last) <= lapsesAfter && was.of(p).Proven() && m.lists(p) {
			keep(p, was)
		}
	}
	m.differences(func(more, less *Member) {
		p := pair{more.ID, less.ID}
		is := course{first: now, last: now, looks: 1}
		if was, ok := c.found[p]; ok && next.cluster == c.cluster && now.Sub(was.last) <= lapsesAfter {
			is.first, is.looks = was.first, was.looks+1
		}
		keep(p, is)
	})
	return next
}

// Differ returns the differences that are kept, sorted.
func (c Comparison) Differ() []Difference {
	var all []Difference
	for p, is := range c.found {
		all = append(all, is.of(p))
	}
	slices.SortFunc(all, func(x, y Difference) int {
		return cmp.Or(cmp.Compare(x.More, y.More), cmp.Compare(x.Less, y.Less))
	})
	return all
}

// lists is true as long as nobody knows of a list without these two.
func (m *Membership) lists(p pair) bool {
	has := func(id uint64) bool {
		return slices.ContainsFunc(m.Members, func(x Member) bool { return x.ID == id && !x.Learner })
	}
	return !m.Known || has(p.more) && has(p.less)
}

// differences tells of every two voters whose data cannot be the same, by what they say in this look.
func (m *Membership) differences(tell func(more, less *Member)) {
	for i := range m.Members {
		for j := range i {
			switch x, y := &m.Members[i], &m.Members[j]; {
			case !x.tellsData() || !y.tellsData():
			case x.exceeds(y):
				tell(x, y)
			case y.exceeds(x):
				tell(y, x)
			}
		}
	}
}

// tellsData is true for a voter of this cluster that says how far its data are. A learner may still be loading them. No
// revision is below 1.
func (m *Member) tellsData() bool {
	p := &m.Probe
	return !m.Learner && p.Status != nil && p.Status.Revision > 0 && p.Read != WrongMember && p.Read != WrongCluster
}

// exceeds is true if the member's revision is higher beside that of the other one than the entries explain which it may
// have applied and the other one may not, and by more than one. A member may have applied all that it knows to be
// committed: after it has loaded a snapshot, the index of what it has applied stands still until the next entry.
func (m *Member) exceeds(other *Member) bool {
	mine, others := m.Probe.Status, other.Probe.Status
	if mine.Revision <= others.Revision {
		return false
	}
	furthest := max(mine.Applied, mine.Index)
	entries := furthest - min(furthest, others.Applied)
	return uint64(mine.Revision-others.Revision)-1 > entries //nolint:gosec // It is positive.
}

// differences are those of this look, and those that were proven before and may show again at any moment.
func (s *State) differences() []Difference {
	var all []Difference
	s.Etcd.differences(func(more, less *Member) {
		d := Difference{More: more.ID, Less: less.ID, Looks: 1}
		for _, was := range s.Differ {
			if was.More == d.More && was.Less == d.Less && was.Looks > d.Looks {
				d = was
			}
		}
		all = append(all, d)
	})
	for _, was := range s.Differ {
		same := func(d Difference) bool { return d.More == was.More && d.Less == was.Less }
		if was.Proven() && s.Etcd.Known && s.Etcd.lists(pair{was.More, was.Less}) &&
			!slices.ContainsFunc(all, same) {
			all = append(all, was)
		}
	}
	return all
}

// agreeing are voters that say how far their data are, of which no two differ, with this one among them.
func agreeing(a *Assessment, with *Member) []*Member {
	if !with.tellsData() {
		return nil
	}
	set := []*Member{with}
	for i := range a.state.Etcd.Members {
		m := &a.state.Etcd.Members[i]
		if m.tellsData() && m != with && !slices.ContainsFunc(set, func(x *Member) bool { return differ(a, m, x) }) {
			set = append(set, m)
		}
	}
	return set
}

// differ is true for two members between which a difference was found.
func differ(a *Assessment, x, y *Member) bool {
	return slices.ContainsFunc(a.differing, func(d Difference) bool { return d.between(x, y) })
}

// mayLead is false for a member that must not be given the lead: the data of some members differ, and it is not among a
// majority of voters whose data agree, or it differs from one that is among another majority.
func (a *Assessment) mayLead(m *Member) bool {
	if len(a.differing) == 0 {
		return true
	}
	return inMajority(a, m) && !slices.ContainsFunc(a.state.Etcd.Members, func(x Member) bool {
		return differ(a, m, &x) && inMajority(a, a.state.member(x.ID))
	})
}

func inMajority(a *Assessment, m *Member) bool { return len(agreeing(a, m)) >= a.Quorum }

// dataTold is true where there is something to say of the members' data: some differ, or a voter that serves does not
// say how far its own are. A member that does not serve is healed all the same, unless that makes a step of etcd's
// version begin.
func dataTold(a *Assessment, c *Replica) bool {
	if c.Evidence == Down && (a.Step().Unknown != "" || !changes(a, c)) {
		return false
	}
	return a.Voters > 1 && (len(a.differing) > 0 || slices.ContainsFunc(a.state.Etcd.Members, func(m Member) bool {
		return !m.Learner && a.serves(&m) && m.Probe.Status == nil
	}))
}

// dataAgrees: if data differ, each removal may leave the member with the wrong ones to decide. What was found only now
// is looked at again, which takes a moment.
func dataAgrees(a *Assessment, _ *Replica) Verdict {
	if len(a.differing) == 0 {
		told := 0
		for i := range a.state.Etcd.Members {
			told += btoi(a.state.Etcd.Members[i].tellsData())
		}
		v := passed("no difference is known; voters that report how far their data are: %d of %d", told, a.Voters)
		v.text = a.state.Etcd.withoutStatus()
		return v
	}
	d := a.differing[0]
	for _, x := range a.differing {
		if x.Proven() && !d.Proven() {
			d = x
		}
	}
	return Verdict{lasting: d.Proven(), text: describeDifference(a, d)}
}

func describeDifference(a *Assessment, d Difference) string {
	more, less := a.state.member(d.More), a.state.member(d.Less)
	text := "the data of " + more.label() + " and " + less.label() + " differ: " + more.progress() + ", " +
		less.progress() + ", and an entry raises the revision by at most one; "
	most := mostAgreeing(a)
	if len(most) >= a.Quorum {
		text += "a majority agrees (" + labels(most) + ")"
		var rest []*Member
		for i := range a.state.Etcd.Members {
			if m := &a.state.Etcd.Members[i]; m.tellsData() && !slices.Contains(most, m) {
				rest = append(rest, m)
			}
		}
		if len(rest) > 0 {
			text += ", and not with " + labels(rest)
		}
	} else {
		text += "no majority agrees"
	}
	text += "; looks in a row that found it: " + strconv.Itoa(d.Looks) + ", within " +
		strconv.Itoa(int(d.For.Seconds())) + " s"
	if d.Proven() {
		return text
	}
	return text + " (" + strconv.Itoa(provenBy) + " within at least " + strconv.Itoa(int(provenAfter.Seconds())) +
		" s prove it)"
}

// mostAgreeing are the most voters of which no two differ.
func mostAgreeing(a *Assessment) []*Member {
	var most []*Member
	for i := range a.state.Etcd.Members {
		if set := agreeing(a, &a.state.Etcd.Members[i]); len(set) > len(most) {
			most = set
		}
	}
	return most
}

// progress says how far a member's data are.
func (m *Member) progress() string {
	st := m.Probe.Status
	if st == nil {
		return m.label() + " does not report how far it is now"
	}
	return m.label() + " has revision " + strconv.FormatInt(st.Revision, 10) + " at index " +
		strconv.FormatUint(st.Applied, 10)
}

func labels(members []*Member) string {
	names := make([]string, 0, len(members))
	for _, m := range members {
		names = append(names, m.label())
	}
	return strings.Join(names, ", ")
}
