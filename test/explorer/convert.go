package explorer

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/quorate/quorate/internal/record"
)

// What the protocol knows is kept in bytes and handed to it in its own types.

const (
	tick = time.Second
	// now is every moment: what is kept are ages.
	now record.Instant = 100 * tick
	// evidenceTicks, renewTicks and patienceTicks are ages beyond which nothing changes:
	// evidence is old, the record is due for renewal, and may be claimed by the clock.
	evidenceTicks, renewTicks, patienceTicks = 1, 1, 3
	// laterTicks is how much longer a coordinator that abstains leaves the record to others.
	laterTicks = 1
)

// longest is the age beyond which nothing changes for a claim by the clock.
func (m *Model) longest() uint8 {
	if m.Faults.Unfits > 0 {
		return patienceTicks + laterTicks
	}
	return patienceTicks
}

var names = func() (names [maxMembers]string) {
	for i := range names {
		names[i] = "etcd-" + strconv.Itoa(i)
	}
	return names
}()

// identities are coordinators' names, with a mark after their pod was replaced.
func identity(c, boots uint8) uint8 { return 1 + c + maxCoordinators*boots }

var identityNames = []string{"", "A", "B", "C", "A'", "B'", "C'"}

func (m *Model) config(i uint8, c *coordinator) record.Config {
	config := record.Config{
		Identity: identityNames[identity(i, c.boots)], Duration: patienceTicks * tick,
		MaxEvidenceAge: evidenceTicks * tick,
		Recovery:       recoveryTicks * tick,
	}
	if c.later {
		config.Later = laterTicks * tick
	}
	return config
}

var numbers = func() (n [256]string) {
	for i := range n {
		n[i] = strconv.Itoa(i)
	}
	return n
}()

func version(rv uint8) string {
	if rv == 0 {
		return ""
	}
	return numbers[rv]
}

func number(text string) uint8 {
	if text == "" {
		return 0
	}
	n, err := strconv.ParseUint(text, 10, 8)
	if err != nil {
		panic(fmt.Sprintf("the protocol made up the version %q", text))
	}
	return uint8(n)
}

const (
	uidCurrent = "current"
	uidGone    = "gone"
)

func uid(current bool) string {
	if current {
		return uidCurrent
	}
	return uidGone
}

func (r ref) toPod() record.Pod {
	return record.Pod{Name: names[r.pod], UID: uid(r.current), ResourceVersion: version(r.rv)}
}

func refOf(name, uid, rv string) ref {
	return ref{pod: name[len(name)-1] - '0', current: uid == uidCurrent, rv: number(rv)}
}

func (i intent) to() record.Intent {
	out := record.Intent{Operation: operations[i.op].name, Epoch: int(i.epoch)}
	switch {
	case i.fenced():
		p := i.ref.toPod()
		out.Pod, out.UID, out.ResourceVersion = p.Name, p.UID, p.ResourceVersion
	case i.op == disturb:
		out.Member = processes[i.ref.pod][0]
		if i.ref.current {
			out.Member = processes[i.ref.pod][1]
		}
	case i.stands():
		out.Member = members[i.ref.pod]
	case i.op == lead:
		out.Member = heirs[i.ref.pod]
	}
	return out
}

func intentOf(i record.Intent) intent {
	out := intent{op: operationOf(i.Operation), epoch: uint8(i.Epoch)} //nolint:gosec // Renamed to stay small.
	switch {
	case out.fenced():
		out.ref = refOf(i.Pod, i.UID, i.ResourceVersion)
	case out.stands():
		out.ref.pod, out.ref.current = placeOf(i.Member)-1, i.Member.PodUID == uidCurrent
	case out.op == lead:
		out.ref.pod = uint8(i.Member.Heir) - 1 //nolint:gosec // A place and one.
	}
	return out
}

func (l *lease) to() record.Record {
	out := record.Record{
		ResourceVersion: version(l.rv), Schema: int(l.schema), Holder: identityNames[l.holder], Epoch: int(l.epoch),
		Rolling: l.rolling, Intent: l.intent.to(),
	}
	if l.timed {
		out.Duration = patienceTicks * tick
	}
	if l.suspect > 0 {
		out.Suspect = members[l.suspect-1]
	}
	return out
}

func leaseOf(l record.Record) lease {
	holder := uint8(0)
	for i, name := range identityNames {
		if name == l.Holder {
			holder = uint8(i)
		}
	}
	return lease{
		rv: number(l.ResourceVersion), schema: uint8(l.Schema), holder: holder,
		epoch: uint8(l.Epoch), //nolint:gosec // Renamed to stay small.
		timed: l.Duration > 0, rolling: l.Rolling, intent: intentOf(l.Intent), suspect: placeOf(l.Suspect),
	}
}

func (s *state) to() record.State {
	out := record.State{
		Phase: record.Phase(s.phase), Right: record.Right(s.right), Record: s.lease.to(), Epoch: int(s.epoch),
		Seen: version(s.seenRV), SeenSince: now - record.Instant(s.seenAge)*tick,
		Begun: now - record.Instant(s.begun)*tick, Renewed: now - record.Instant(s.renewed)*tick,
		Doubted: now - (record.Instant(s.doubted)-callTicks)*tick,
		Ending:  record.Ended(s.ending), Stopping: s.stopping, Pausing: s.pausing,
	}
	for _, r := range s.unfenced[:s.unfencedN] {
		out.Unfenced = append(out.Unfenced, r.toPod())
	}
	return out
}

// age counts the ticks since then, up to where nothing changes any more.
func age(then record.Instant, most uint8) uint8 {
	return uint8(min(int64((now-then)/tick), int64(most))) //nolint:gosec // At most 3.
}

func (m *Model) stateOf(s record.State) state {
	out := state{
		phase: uint8(s.Phase), right: uint8(s.Right), lease: leaseOf(s.Record),
		epoch: uint8(s.Epoch), //nolint:gosec // Small.
		begun: age(s.Begun, evidenceTicks), renewed: age(s.Renewed, renewTicks),
		ending: uint8(s.Ending), stopping: s.Stopping, pausing: s.Pausing, //nolint:gosec // Small.
	}
	if m.Clocks { // Only a claim by the clock looks at these.
		out.seenRV, out.seenAge = number(s.Seen), age(s.SeenSince, m.longest())
	}
	if m.Faults.Blocking > 0 { // Only a blocking operation looks at that.
		out.doubted = age(s.Doubted-callTicks*tick, settledTicks+callTicks)
	}
	for _, p := range s.Unfenced {
		out.unfenced[out.unfencedN] = refOf(p.Name, p.UID, p.ResourceVersion)
		out.unfencedN++
	}
	if m.verify {
		m.mustKeep(s, &out)
	}
	return out
}

// mustKeep panics when the protocol's state has something that is not kept here: what the
// explorer loses, it cannot explore.
func (m *Model) mustKeep(s record.State, kept *state) {
	back := kept.to()
	if !m.Clocks {
		back.Seen, back.SeenSince = s.Seen, s.SeenSince
	}
	if m.Faults.Blocking == 0 {
		back.Doubted = s.Doubted
	}
	old := func(then record.Instant, most uint8) record.Instant {
		return max(then, now-record.Instant(most)*tick)
	}
	s.Begun, s.Renewed = old(s.Begun, evidenceTicks), old(s.Renewed, renewTicks)
	if m.Faults.Blocking > 0 {
		s.Doubted = old(s.Doubted, settledTicks)
	}
	if m.Clocks {
		s.SeenSince = old(s.SeenSince, m.longest())
	}
	if len(s.Unfenced) == 0 {
		s.Unfenced = nil
	}
	if !reflect.DeepEqual(s, back) {
		panic(fmt.Sprintf("the explorer does not keep all of the protocol's state:\n%+v\n%+v", s, back))
	}
}

// mustNotMatter panics when the protocol looks at what normalise forgets.
func (m *Model) mustNotMatter(i uint8, c *coordinator, e record.Event, want record.State, wanted record.Effect) {
	if c.request.kind == writeLease {
		return
	}
	for begun := range uint8(evidenceTicks + 1) {
		other := c.state
		other.begun = begun
		got, effect := m.Step(m.config(i, c), other.to(), e, now)
		if got.Begun != want.Begun { // Then it was kept as it was.
			got.Begun = want.Begun
		}
		if !reflect.DeepEqual(got, want) || !reflect.DeepEqual(effect, wanted) {
			panic(
				fmt.Sprintf("the protocol looks at when the last observation began, and that was forgotten:\n%+v\n%+v",
					got, want))
		}
	}
}

// parseFence reads a fence's value, of which nothing but equality matters.
func parseFence(value string) fenceValue {
	epoch, rv, ok := strings.Cut(value, ", resourceVersion ")
	epoch, found := strings.CutPrefix(epoch, "epoch ")
	if !ok || !found {
		panic(fmt.Sprintf("the explorer cannot read the fence's value %q", value))
	}
	return fenceValue{epoch: number(epoch), rv: number(rv)}
}

// requestOf is the request that carries an effect out.
func (m *Model) requestOf(by uint8, e record.Effect) request {
	r := request{by: by}
	switch e := e.(type) {
	case record.ReadLease:
		r.kind = readLease
	case record.CheckRight:
		r.kind = checkRight
	case record.WriteLease:
		r.kind, r.lease = writeLease, leaseOf(e.Record)
	case record.ListPods:
		r.kind = listPods
	case record.FencePod:
		r.kind, r.ref, r.value = fencePod, refOf(e.Pod.Name, e.Pod.UID, e.Pod.ResourceVersion), parseFence(e.Value)
	case record.Observe:
		r.kind = observe
	case record.Act:
		i := intentOf(e.Intent)
		r.kind, r.op, r.ref = operations[i.op].request, i.op, i.ref
	case record.Rest:
		r.kind = rest
	default:
		panic(fmt.Sprintf("the protocol asks for %T, which the explorer does not know", e))
	}
	return r
}
