package soak

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"sort"
	"time"
)

const (
	// Least is how long a process has to live before what it occupies says anything about growth.
	Least = 20 * time.Minute
	// fewest is how many looks a quarter of a life must have.
	fewest = 10
	// collected is the time in which Go collects its garbage at least once.
	collected = 2 * time.Minute
	// replaced is how long it takes at most to replace a member's pod, or until a fault of it is over.
	replaced = time.Minute
	// stale is for how long the lease of a sidecar that has ended may stay in etcd.
	stale = time.Minute
	// tolerance is the share by which a median may differ although nothing grows.
	tolerance = 0.1
)

// Measure is something that could grow.
type Measure struct {
	Name, Unit string
	// slack is what may come on top of the tolerance, because small numbers differ by more than a share.
	slack float64
	of    func(Sidecar) float64
	// floor is true if only the lowest value counts of the time in which garbage is collected once.
	floor bool
	// varies is true if a coordinator needs more of it than a sidecar that waits, and either needs more of it beside
	// more members. They give it back in the end.
	varies bool
}

// Measures are those of a sidecar.
var Measures = []Measure{
	{Name: "anonymous memory", Unit: "MiB", slack: 2, of: func(s Sidecar) float64 { return s.Anonymous }},
	{Name: "Go heap after a collection", Unit: "MiB", slack: 1, floor: true,
		of: func(s Sidecar) float64 { return s.Heap }},
	{Name: "goroutines", slack: 5, varies: true, of: func(s Sidecar) float64 { return float64(s.Goroutines) }},
	{Name: "connections", slack: 3, varies: true, of: func(s Sidecar) float64 { return float64(s.Connections) }},
}

// Those of etcd.
var (
	// spare are the leases that no running sidecar can need.
	spare = Measure{Name: "leases in etcd beyond one for each running sidecar", slack: 2}
	bare  = Measure{Name: "leases in etcd without a key", slack: 2}
)

// Point is a value at a time, in seconds since the run began.
type Point struct{ At, Value float64 }

// Series is how a measure of somebody went.
type Series struct {
	Measure
	// Whose is a lasting sidecar, [Pods] or [Etcd].
	Whose string
	// Circumstances are empty for a measure that does not depend on them.
	Circumstances
	Points []Point
	// From and To are the ends of the whole life, whatever the circumstances.
	From, To float64
}

// Circumstances are what a sidecar does, and for how many members.
type Circumstances struct {
	Role    Role
	Members int
}

func (c Circumstances) compare(o Circumstances) int {
	return cmp.Or(cmp.Compare(c.Role, o.Role), cmp.Compare(c.Members, o.Members))
}

// Role is what a sidecar does.
type Role string

// The roles: to coordinate, to have the lock while there is nothing to do, and neither of them.
const (
	Coordinating Role = "coordinating"
	Owning       Role = "with the lock"
	Waiting      Role = "waiting"
)

// Those that have series beside the lasting sidecars.
const (
	// Pods are the sidecars that a rollout replaces. Of these, the highest value counts.
	Pods = "the members' sidecars, the most of any"
	Etcd = "etcd"
)

// Series are all series of a run, in the order in which they are told.
func (r *Run) Series() []Series {
	all := make([]Series, 0, 8*len(Measures))
	members := r.members()
	for _, m := range Measures {
		ofRun := map[string]map[Circumstances]*Series{}
		for i, l := range r.Looks {
			for _, s := range l.Sidecars {
				whose, in := Pods, Circumstances{}
				if s.Lasts {
					whose = s.Pod
				}
				if m.varies {
					in = Circumstances{Role: s.Role, Members: members[i]}
				}
				if ofRun[whose] == nil {
					ofRun[whose] = map[Circumstances]*Series{}
				}
				if ofRun[whose][in] == nil {
					ofRun[whose][in] = &Series{Measure: m, Whose: whose, Circumstances: in}
				}
				ofRun[whose][in].add(l.Seconds, m.of(s))
			}
		}
		for _, whose := range slices.Sorted(maps.Keys(ofRun)) {
			from, to := math.Inf(1), 0.0
			for _, s := range ofRun[whose] {
				from, to = min(from, s.Points[0].At), max(to, s.Points[len(s.Points)-1].At)
			}
			for _, in := range slices.SortedFunc(maps.Keys(ofRun[whose]), Circumstances.compare) {
				s := ofRun[whose][in]
				if s.From, s.To = from, to; m.floor {
					s.Points = floor(s.Points)
				}
				all = append(all, *s)
			}
		}
	}
	of := func(m Measure, value func(*Leases) int) Series {
		s := Series{Measure: m, Whose: Etcd}
		for _, l := range r.Looks {
			if l.Leases != nil {
				s.add(l.Seconds, float64(value(l.Leases)))
				s.To = l.Seconds
			}
		}
		return s
	}
	return append(all, of(spare, func(l *Leases) int { return l.All - l.Running }),
		of(bare, func(l *Leases) int { return l.Bare }))
}

// members is how many members the cluster had at each look. Those that are being replaced are known from the looks
// before.
func (r *Run) members() []int {
	known := make([]int, len(r.Looks))
	for i := range r.Looks {
		pods := map[string]bool{}
		for _, l := range recent(r.Looks[:i+1], secondsOf, replaced) {
			for _, s := range l.Sidecars {
				if !s.Lasts {
					pods[s.Pod] = true
				}
			}
		}
		known[i] = len(pods)
	}
	return known
}

// add adds a value. Of several at one time the highest counts.
func (s *Series) add(at, value float64) {
	if n := len(s.Points) - 1; n >= 0 && s.Points[n].At == at {
		s.Points[n].Value = max(s.Points[n].Value, value)
		return
	}
	s.Points = append(s.Points, Point{at, value})
}

// floor is the lowest value since the garbage was collected last, at every point.
func floor(points []Point) []Point {
	lowest := make([]Point, len(points))
	for i, p := range points {
		since := recent(points[:i+1], func(p Point) float64 { return p.At }, collected)
		lowest[i] = Point{p.At, slices.MinFunc(since, func(a, b Point) int {
			return cmp.Compare(a.Value, b.Value)
		}).Value}
	}
	return lowest
}

// recent are the last ones: those of so long a time, which ends with the last of all.
func recent[T any](all []T, seconds func(T) float64, within time.Duration) []T {
	end := seconds(all[len(all)-1])
	return all[sort.Search(len(all), func(i int) bool { return end-seconds(all[i]) <= within.Seconds() }):]
}

func secondsOf(l Look) float64 { return l.Seconds }

// Trend compares the last quarter of a series with its second. In the first one, a process still fills its caches.
type Trend struct {
	Series
	Hours float64
	// Early and Late are the medians of the two quarters, and Limit is what Late may be. Most is the highest value.
	Early, Late, Limit, Most float64
}

// Grows reports whether it is more in the end than it may be.
func (t Trend) Grows() bool { return t.Late > t.Limit }

func (t Trend) String() string {
	return fmt.Sprintf("%s of %s: %.1f in the second quarter of %.1f h, %.1f in the last (at most %.1f)", t.Name,
		t.Who(), t.Early, t.Hours, t.Late, t.Limit)
}

// Who is whose series it is, and in which circumstances.
func (s Series) Who() string {
	if s.Circumstances == (Circumstances{}) {
		return s.Whose
	}
	return fmt.Sprintf("%s, %s (members: %d)", s.Whose, s.Role, s.Members)
}

// trend is that of a series, or false if it is too short for one.
func (s Series) trend() (Trend, bool) {
	life := s.To - s.From
	early, late := s.between(s.From+life/4, s.From+life/2), s.between(s.From+life*3/4, s.To+1)
	if life < Least.Seconds() || len(early) < fewest || len(late) < fewest {
		return Trend{}, false
	}
	t := Trend{Series: s, Hours: life / time.Hour.Seconds(), Early: median(early), Late: median(late)}
	t.Most = slices.Max(s.between(s.From, s.To+1))
	t.Limit = t.Early + max(0, t.Early)*tolerance + s.slack
	return t, true
}

// between are the values of that time.
func (s Series) between(from, to float64) []float64 {
	var values []float64
	for _, p := range s.Points {
		if p.At >= from && p.At < to {
			values = append(values, p.Value)
		}
	}
	return values
}

// Judge compares the quarters of everything that was seen for long enough, and says what is wrong: what grows, a
// lasting sidecar that has ended all the same, or that there is nothing to be judged.
func (r *Run) Judge() (trends []Trend, wrong []string) {
	for _, s := range r.Series() {
		if t, ok := s.trend(); ok {
			trends = append(trends, t)
			if t.Grows() {
				wrong = append(wrong, "growth: "+t.String())
			}
		}
	}
	wrong = append(wrong, r.tooManyLeases()...)
	processes := map[string]map[int]bool{}
	for _, l := range r.Looks {
		for _, s := range l.Sidecars {
			if s.Lasts {
				if processes[s.Pod] == nil {
					processes[s.Pod] = map[int]bool{}
				}
				processes[s.Pod][s.PID] = true
			}
		}
	}
	for _, pod := range slices.Sorted(maps.Keys(processes)) {
		if n := len(processes[pod]); n > 1 {
			wrong = append(wrong, fmt.Sprintf("%s has ended and begun again: it has had %d processes", pod, n))
		}
		for _, m := range Measures {
			if !slices.ContainsFunc(trends, func(t Trend) bool { return t.Name == m.Name && t.Whose == pod }) {
				wrong = append(wrong, fmt.Sprintf("nobody knows whether there is growth in %s of %s: not "+
					"seen for %v, or not in the same role with as many members", m.Name, pod, Least))
			}
		}
	}
	if len(processes) == 0 {
		wrong = append(wrong, "no lasting sidecar was seen")
	}
	return trends, wrong
}

// tooManyLeases says when there were more leases than sidecars can account for, at most once.
func (r *Run) tooManyLeases() []string {
	for i, l := range r.Looks {
		if l.Leases == nil {
			continue
		}
		ran := 0
		for _, earlier := range recent(r.Looks[:i+1], secondsOf, stale) {
			if earlier.Leases != nil {
				ran = max(ran, earlier.Leases.Running)
			}
		}
		if l.Leases.All > 2*ran {
			return []string{fmt.Sprintf("%d leases were in etcd after %.1f h, and %d sidecars ran: each has one, and "+
				"its predecessor may have left another", l.Leases.All, l.Seconds/time.Hour.Seconds(), ran)}
		}
	}
	return nil
}

func median(values []float64) float64 {
	values = slices.Sorted(slices.Values(values))
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}
