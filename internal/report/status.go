package report

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/pkg/rollout"
)

// Word says whose word a report is.
type Word string

// Whose word it can be.
const (
	// OwnWord is what the observer found out: etcd was asked just now.
	OwnWord Word = "own"
	// CoordinatorsWord is what the coordinator wrote to the Lease a moment ago.
	CoordinatorsWord Word = "coordinator"
	// KubernetesWord is what Kubernetes alone says: nothing is known of etcd.
	KubernetesWord Word = "kubernetes"
	// OldWord is what a coordinator wrote too long ago to be believed, or nothing at all.
	OldWord Word = "old"
)

// FreshFor is for how long a coordinator's word is believed at least during a rollout: it is
// written anew with every renewal of the record, and the reader's clock is another one.
const FreshFor = 30 * time.Second

// Fresh is true for a report that may be taken for what is going on now. Its coordinator holds the
// record, or has just given it back in the middle of a rollout for another to go on. The report is at
// most as old as FreshFor or twice the record's duration, by a clock that is ahead by at most FreshFor.
func (r *Report) Fresh(now time.Time, lease record.Record) bool {
	return !r.At.IsZero() && (lease.Holder != "" || lease.Rolling) && r.within(now, max(FreshFor, 2*lease.Duration))
}

// within is true for a report that is not older than this. A report from the future is only as good as
// its clock: beyond FreshFor it would be believed for hours after its coordinator has died.
func (r *Report) within(now time.Time, last time.Duration) bool {
	return now.Sub(r.At) <= last && r.At.Sub(now) <= FreshFor
}

// Outside is what an observer sees that does not coordinate.
type Outside struct {
	Namespace, StatefulSet string
	// At is when it was seen.
	At time.Time
	// State is what Kubernetes says, and what etcd says if it was asked. Its ages come
	// from the objects' own timestamps.
	State  rollout.State
	Asked  bool
	Policy rollout.Policy
	// Lease is the record, and Renewed is when it was last written. Last and History are what its
	// coordinator wrote beside it.
	Lease   record.Record
	Renewed time.Time
	Last    Report
	History History
}

// Status is a report, seen from outside, with what Kubernetes says besides.
type Status struct {
	Report
	// Now is when it was seen; the report may be a little older.
	Now time.Time
	// Word says whose word the report is.
	Word Word
	// Last is the coordinator's last report, however old it is. Holder holds the record, and Claims
	// is how often the record was claimed. Current is true while the holder still reports, and Claimed
	// while it has just claimed the record and has reported nothing yet.
	Last    Report
	Holder  string
	Claims  int
	Current bool
	Claimed bool
	Pods    map[string]Pod
	History History
	Bad     []string
	// Without are the pods whose sidecar has no Quorate, while that of others has.
	Without []string
	// Nobody says why nobody coordinates, as far as Kubernetes shows that: Quorate runs in no pod, or who coordinated
	// in the middle of a rollout is silent. It has no ages, so that it stays the same while nothing changes.
	Nobody string
	// commands are about the silence of who coordinated.
	commands []string
}

// Crashed notes the pods in which Quorate does not run, and why.
func (s *Status) Crashed(down map[string]string) {
	for i := range s.Members {
		if why := down[s.Members[i].Pod]; why != "" {
			s.Members[i].Sidecar = why
		}
	}
}

// Pod is what Kubernetes says of one.
type Pod struct {
	Ready bool
	// Etcd is true while its etcd container is ready and it does not terminate. The pod itself is not Ready while any
	// other container is not, and its member may serve all the same.
	Etcd bool
	// Age is since when it exists; zero if that is not known.
	Age time.Duration
}

// Look makes the best report there can be of what is seen from outside. It is the observer's own where
// etcd named its members. Otherwise it is the coordinator's, but only a fresh one of the present
// revision and controls, and Complete only if Kubernetes agrees. Otherwise it is what Kubernetes says
// alone.
func Look(o Outside) Status {
	s := look(o)
	if s.Faults = nil; s.Current || s.Holder != "" {
		s.Faults = s.Last.Faults
	}
	if s.Suspect = ""; o.Lease.Suspect != nil {
		s.Suspect = fmt.Sprintf("%s (ID %x)", o.Lease.Suspect.Name, o.Lease.Suspect.ID)
	}
	// Who coordinates tells of ghosts when they come and when they go, and says nothing in between.
	if s.Word != OwnWord {
		s.Ghosts = o.Last.Ghosts
	}
	// A coordinator may not read events.
	if said := o.State.Set.NotCreated; said != "" && !strings.Contains(s.Reason, said) {
		s.Reason += "; the StatefulSet controller says: " + said
	}
	return s
}

func look(o Outside) Status {
	fresh := o.Last.Fresh(o.At, o.Lease)
	s := Status{
		Now: o.At, Last: o.Last, Holder: o.Lease.Holder, Claims: o.Lease.Epoch, Current: fresh, History: o.History,
		Claimed: o.Lease.Holder != "" && o.Last.Epoch != o.Lease.Epoch && o.At.Sub(o.Renewed) <= FreshFor,
		Pods:    map[string]Pod{}, Bad: o.State.Controls.Bad,
	}
	for i := range o.State.Pods {
		if p := &o.State.Pods[i]; p.Owned {
			s.Pods[p.Name] = Pod{
				Ready: p.Ready, Etcd: p.Etcd.Ready && !p.Terminating,
				Age: o.State.Ages[rollout.Sighting{UID: p.UID, Condition: rollout.PodSeen}],
			}
		}
	}
	same := o.Last.UpdateRevision == o.State.Set.UpdateRevision
	// A report that is too old does not say for how long things have been as they are now. It does
	// say when the rollout began.
	last := o.Last
	if !fresh && (o.Lease.Rolling || !same) {
		last = Report{}
		if o.Lease.Rolling {
			last.Started = o.Last.Started
		}
	}
	sight := Sight{Namespace: o.Namespace, StatefulSet: o.StatefulSet, At: o.At, State: o.State}
	if o.Asked && o.State.Etcd.Known {
		if fresh {
			o.Last.Memory.Recall(&sight.State)
		}
		sight.Decision = rollout.Decide(sight.State, o.Policy)
		last.Ghosts = o.Last.Ghosts
		s.Word, s.Report = OwnWord, New(sight, last)
		s.onlyKnownTimes()
		return s
	}
	var certain bool
	sight.State.Etcd = rollout.Membership{}
	sight.Decision, certain = Certain(sight.State, o.Policy)
	mine := New(sight, last)
	believed := same && (certain || o.Last.obeys(&mine))
	if len(o.Last.Leaving) == 0 {
		o.Last.Leaving = mine.Leaving // An idle coordinator reports nothing, and this needs no etcd.
	}
	fromKubernetes := s
	fromKubernetes.Word, fromKubernetes.Report = KubernetesWord, mine
	fromKubernetes.forget(sight.Decision.Assessment)
	if !certain {
		fromKubernetes.fromKubernetes(o, sight.Decision.Assessment, fresh)
	}
	fromKubernetes.onlyKnownTimes()
	done := rollout.ActionComplete
	switch {
	case o.Last.Action == done && fromKubernetes.Action != done && !certain:
		return fromKubernetes
	case fresh && believed:
		s.Word, s.Report = CoordinatorsWord, o.Last
		s.Overrides, s.EndedOverrides, s.OverrideTerms = mine.Overrides, mine.EndedOverrides, mine.OverrideTerms
		s.Paused, s.GuardOff = mine.Paused, mine.GuardOff
		s.Partition, s.MaxUnavailable = mine.Partition, mine.MaxUnavailable
		if certain && mine.Key() != o.Last.Key() {
			s.tells(&mine)
		}
		return s
	// Its coordinator has finished and let go. What it saw at the end is good for a moment, as long
	// as Kubernetes agrees.
	case believed && o.Last.Action == done && fromKubernetes.Action == done && o.Last.within(o.At, FreshFor):
		s.Word, s.Report = CoordinatorsWord, o.Last
		return s
	}
	return fromKubernetes
}

// obeys is true for a report that knew the controls that are set now. A report of a rule or guard that
// Kubernetes alone decides is not believed, because Kubernetes does not say so any more.
func (r *Report) obeys(now *Report) bool {
	switch {
	case r.Rule == rollout.RuleNotOurs, r.Guard == rollout.GuardBadControl, r.Guard == rollout.GuardStaleRevision:
		return false
	case (r.Partition == nil) != (now.Partition == nil), r.Partition != nil && *r.Partition != *now.Partition:
		return false
	}
	return r.Paused == now.Paused && r.MaxUnavailable == now.MaxUnavailable && slices.Equal(r.Overrides, now.Overrides)
}

// onlyKnownTimes takes out the times that are those of the observation only because nobody knows when it
// really began.
func (s *Status) onlyKnownTimes() {
	times := []*time.Time{&s.Started, &s.Ended}
	for i := range s.Members {
		times = append(times, &s.Members[i].Since)
	}
	for _, t := range times {
		if t.Equal(s.At) {
			*t = time.Time{}
		}
	}
}

// tells replaces the decision by a newer one.
func (s *Status) tells(newer *Report) {
	s.Work, s.Others, s.Since = newer.Work, newer.Others, newer.At
}

// forget takes out what only etcd could know. Whether a pod has settled is judged by what Kubernetes
// says alone.
func (s *Status) forget(a *rollout.Assessment) {
	s.Voters, s.Quorum, s.Serving, s.Candidates = 0, 0, 0, nil
	s.Progress.Settled = 0
	for i := range s.Members {
		m, replica := &s.Members[i], &a.Replicas[i]
		m.Member, m.ID, m.Role, m.Evidence, m.Voter, m.Lag, m.Since = "", "", "", "", false, nil, time.Time{}
		m.Settled = replica.PodSettled
		m.Detail = replica.DescribePod()
		if m.Settled {
			s.Progress.Settled++
		}
	}
}

// fromKubernetes says how far the rollout is by what Kubernetes alone knows. It is complete when the
// pods are, unless a coordinator began the rollout and has not reported its end yet.
func (s *Status) fromKubernetes(o Outside, a *rollout.Assessment, fresh bool) {
	partition := o.Policy.Partition
	if s.Partition != nil {
		partition = *s.Partition
	}
	outdated, waitsFor := 0, -1
	for i := range s.Members {
		switch m, protected := &s.Members[i], o.State.Set.Start+i < partition; {
		case protected || m.Settled:
		case m.Outdated && !m.missing():
			outdated++
		case waitsFor < 0:
			waitsFor = i
		}
	}
	finished := o.Last.Action == rollout.ActionComplete && o.Last.UpdateRevision == o.State.Set.UpdateRevision
	s.Work, s.Others = Work{Duty: rollout.DutyRoll, Action: rollout.ActionWait, Candidates: s.Candidates}, nil
	s.Do = "If this lasts, look at the logs of the sidecars, and ask etcd with --endpoints."
	silent := !fresh && !s.Claimed && o.Lease.Rolling && !o.Last.At.IsZero() &&
		(outdated > 0 || waitsFor >= 0 || !finished)
	if silent {
		s.silent(o)
	}
	switch {
	case outdated > 0:
		s.Reason = fmt.Sprintf("%d of %d pods are outdated", outdated, s.Progress.Pods)
		for i := range s.Members {
			if r := &a.Replicas[i]; o.State.Set.Start+i >= partition && !r.Outdated && (r.Going() || r.ContainerDead) {
				s.Reason += "; " + r.Name + ": " + s.Members[i].Detail
			}
		}
		for i := range a.Replicas {
			if r := &a.Replicas[i]; silent && o.State.Set.Start+i >= partition && r.ContainerDead && !r.Going() {
				s.Do += " About " + r.Name + ": " + Plain(a.Advice(rollout.GuardUpdatedFailing, r))
			}
		}
	case waitsFor >= 0:
		m := s.Members[waitsFor]
		s.Guard = rollout.GuardUpdatedPending
		if o.going(m.Pod) {
			s.Guard = rollout.GuardTerminating
		}
		s.Reason, s.Do = "waiting for "+m.Pod+": "+m.Detail, a.Advice(s.Guard, &a.Replicas[waitsFor])
		s.LeftAlone = a.LeftAlone(&a.Replicas[waitsFor])
	case o.Lease.Rolling && !finished:
		s.Reason = "every pod is up to date and Ready, but no coordinator has confirmed yet that their members serve"
	default:
		s.Action, s.Rule, s.Do = rollout.ActionComplete, rollout.RuleComplete, ""
		s.Reason = fmt.Sprintf("%d of %d pods are up to date and Ready", s.Progress.Settled, s.Progress.Pods)
		if partition > 0 {
			s.Reason += fmt.Sprintf(", those below partition %d may stay behind", partition)
		}
		if s.Started = (time.Time{}); finished {
			s.Since, s.Ended = o.Last.Since, o.Last.Ended
		}
		return
	}
	switch {
	case fresh && o.Last.UpdateRevision != o.State.Set.UpdateRevision:
		s.Reason += "; " + o.Last.Coordinator + " coordinates, and has not reported on this revision yet"
	case fresh:
		s.Reason += "; " + o.Last.Coordinator + " coordinates, and has not reported this yet"
	case s.Claimed:
		s.Reason += "; " + podOf(s.Holder) + " has claimed the record, and has reported nothing yet"
	case o.Lease.Rolling && !o.Last.At.IsZero():
		s.Reason += fmt.Sprintf(
			"; nobody coordinates: %s was the last to report, %s ago (%s)",
			o.Last.Coordinator,
			Ago(s.Now, o.Last.At),
			o.Last.Headline(),
		)
	case outdated > 0:
		s.Reason += ", and no coordinator has begun to roll them yet"
	}
}

// silent says that who coordinated does not report any more, and where to look.
func (s *Status) silent(o Outside) {
	pod := podOf(cmp.Or(s.Holder, o.Last.Coordinator))
	s.Nobody = pod + " coordinated last, and is silent"
	s.Do = "See in the sidecars' logs why nobody coordinates. A plan asks etcd, and says what would be done next."
	if _, there := s.Pods[pod]; there {
		logs := "kubectl logs -n " + s.Namespace + " " + pod
		if c := o.State.Set.Sidecar; c != "" {
			logs += " -c " + c
		}
		s.commands = append(s.commands, logs)
	}
	s.commands = append(s.commands, "quorate plan -n "+s.Namespace+" "+s.StatefulSet)
}

// Commands are what an operator types first: about the silence where nobody coordinates, and else about the guard.
func (s *Status) Commands() []string { return slices.Concat(s.commands, s.Report.Commands()) }

// going is true for a pod that is on its way out or not there.
func (o *Outside) going(pod string) bool {
	for i := range o.State.Pods {
		if p := &o.State.Pods[i]; p.Owned && p.Name == pod {
			return p.Terminating
		}
	}
	return true
}

// Waits is true while the rollout holds, waits, or has nobody to act.
func (s *Status) Waits() bool { return s.Plan.Waits() || s.nobodyActs() }

// Unattended is true when nobody carries out a rollout, and no guard says why.
func (s *Status) Unattended() bool {
	switch {
	case s.Current:
		return false
	case s.Action == rollout.ActionIdle:
		return true
	}
	return s.nobodyActs() || s.Plan.Waits() && s.Guard == ""
}

// nobodyActs is true when there is something to do and nobody who coordinates.
func (s *Status) nobodyActs() bool {
	return s.Word == OwnWord && !s.Current && (s.Action == rollout.ActionRemove || s.Action == rollout.ActionMoveLeader)
}

func (p Plan) votersInWords() string {
	return fmt.Sprintf("%d of %d voters serve, quorum %d", p.Serving, p.Voters, p.Quorum)
}

// Waits is true while the rollout holds or waits for something.
func (p Plan) Waits() bool {
	return p.Action == rollout.ActionHold || p.Action == rollout.ActionWait
}

// Bar draws the progress in so many characters: settled pods, then those in between, then outdated
// ones. Others may write the Lease, so the numbers may be anything: there is no bar for more pods than
// a StatefulSet can have.
func (p Progress) Bar(width int) string {
	if p.Pods <= 0 || p.Pods > math.MaxInt32 {
		return ""
	}
	part := func(n int) int { return int(int64(min(max(n, 0), p.Pods)) * int64(width) / int64(p.Pods)) }
	settled := part(p.Settled)
	outdated := min(part(p.Outdated), width-settled)
	return strings.Repeat("█", settled) + strings.Repeat("▒", width-settled-outdated) + strings.Repeat("░", outdated)
}

// Other is how many pods are unsettled: missing, going, coming up or failing.
func (p Progress) Other() int { return max(p.Pods-p.Settled-p.Outdated, 0) }

// String is the progress in words.
func (p Progress) String() string {
	text := fmt.Sprintf("%d of %d settled", p.Settled, p.Pods)
	if p.Outdated > 0 {
		text += fmt.Sprintf(", %d outdated", p.Outdated)
	}
	if n := p.Other(); n > 0 {
		text += fmt.Sprintf(", %d unsettled", n)
	}
	return text
}

// Coordinators says who reports, with the number of its claim.
func (r *Report) Coordinators() string {
	text := fmt.Sprintf("%s, epoch %d", r.Coordinator, r.Epoch)
	if r.Fallback {
		text += ", in fallback mode: without the lock, because etcd cannot grant one"
	}
	return text
}

// Sets are the controls that are set, but for the overrides, in words.
func (r *Report) Sets() []string {
	var sets []string
	if r.Paused {
		sets = append(sets, "paused")
	}
	if r.Partition != nil {
		sets = append(sets, "partition "+strconv.Itoa(*r.Partition))
	}
	if r.MaxUnavailable != "" {
		sets = append(sets, "max-unavailable "+r.MaxUnavailable)
	}
	if r.GuardOff {
		sets = append(sets, "quorum guard off")
	}
	return sets
}

// Row is a line of the table of members; a dash is what is not known.
type Row struct {
	Pod, Member, Role, Revision, Evidence, Lag, Sidecar, Ready, Age, Since string
	Detail                                                                 string
}

// Rows are the members' lines; pods may be nil.
func (r *Report) Rows(pods map[string]Pod, now time.Time) []Row {
	rows := make([]Row, 0, len(r.Members))
	for _, m := range r.Members {
		row := Row{
			Pod: dash(
				m.Pod,
			), Member: dash(m.Member), Role: dash(m.Role), Evidence: dash(m.Evidence), Sidecar: dash(m.Sidecar),
			Revision: m.revision(), Lag: "-", Ready: "-", Age: "-", Since: "-", Detail: m.Detail,
		}
		if m.Lag != nil {
			row.Lag = strconv.FormatUint(*m.Lag, 10)
		}
		if p, ok := pods[m.Pod]; ok {
			row.Ready = yes(p.Ready)
			if p.Age > 0 {
				row.Age = duration.HumanDuration(p.Age)
			}
		}
		if !m.Since.IsZero() {
			row.Since = Ago(now, m.Since)
		}
		rows = append(rows, row)
	}
	return rows
}

func (m *Member) revision() string {
	switch {
	case m.Pod == "" || m.missing():
		return "-"
	case m.Outdated:
		return "outdated"
	}
	return "updated"
}

// Ago is how long ago it was, as kubectl writes ages. Another clock may be ahead of ours.
func Ago(now, then time.Time) string { return duration.HumanDuration(max(now.Sub(then), 0)) }

// Paint colours a text for a terminal; the zero value does not.
type Paint bool

// The colours, by what they say.
const (
	good    = "32"
	busy    = "36"
	waiting = "33"
	alarm   = "1;31"
	strong  = "1"
)

func (p Paint) as(colour, text string) painted {
	if text = clean(text); !p {
		return painted(text)
	}
	return painted("\x1b[" + colour + "m" + text + "\x1b[0m")
}

func (p Plan) colour() string {
	switch p.Action {
	case rollout.ActionComplete:
		return good
	case rollout.ActionHold:
		return alarm
	case rollout.ActionWait:
		return waiting
	case rollout.ActionIdle:
		return strong
	default:
		return busy
	}
}

// barWidth is the width of the bar in characters. It is divisible by one, two, three and five, so that
// each member is as long as the others.
const barWidth = 30

// Screen is what a text is shown on. The zero Screen is a file: it has no colours and lines of any length.
type Screen struct {
	Paint
	// Width is the number of columns, 0 where lines may have any length.
	Width int
	// Reword, if it is set, rewrites a text before it is wrapped: the commands in it may have another name here.
	Reword func(string) string
}

// Table writes the status for a person. It answers first whether the cluster is safe, then what the rollout waits for,
// since when, what happens if nobody does anything, and what to do. Who says so and the members come after that.
func (s Status) Table(w io.Writer, screen Screen) error {
	var b strings.Builder
	s.answers(&b, screen)
	b.WriteString("\n")
	s.circumstances(&b, screen)
	b.WriteString("\n")

	t := newTable(&b, "POD", "MEMBER", "ROLE", "REVISION", "EVIDENCE", "SINCE", "LAG", "SIDECAR", "READY", "AGE")
	for _, r := range s.Rows(s.Pods, s.Now) {
		t.row(r.Pod, r.Member, r.Role, r.Revision, r.Evidence, r.Since, r.Lag, r.Sidecar, r.Ready, r.Age)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// answers says what somebody who was woken up asks.
func (s *Status) answers(b *strings.Builder, screen Screen) {
	say := func(indent, text string) { screen.wrap(b, indent, text) }
	verdict := s.Verdict()
	printf(b, "%s\n", screen.as(verdict.Safety.colour(), verdict.String()))
	if s.Nobody != "" {
		printf(b, "%s\n", screen.as(alarm, "NOBODY COORDINATES: "+s.Nobody))
	}
	printf(b, "%s", screen.as(s.colour(), s.Headline()))
	if !s.Since.IsZero() && s.Since.Before(s.Now) {
		printf(b, ", since %s", Ago(s.Now, s.Since))
	}
	b.WriteString("\n")
	if s.nobodyActs() {
		say("  ", "Nobody coordinates. This is what a coordinator would do next.")
	}
	say("  ", s.Reason)
	if text := s.Otherwise(); text != "" {
		say("  ", "If nobody does anything: "+text)
	}
	if s.Do != "" && (s.Waits() || s.Action == rollout.ActionIdle) {
		say("  ", "What to do: "+s.Do)
	}
	for _, command := range s.Commands() {
		printf(b, "    %s\n", command) // It is not wrapped, so that it can be copied.
	}
	if link := Link(s.Guard); link != "" {
		printf(b, "  More: %s\n", link)
	}
	if s.Rule != "" {
		printf(b, "  rule %s", s.Rule)
		if s.Voters > 0 {
			b.WriteString("; " + s.votersInWords())
		}
		b.WriteString("\n")
	}
	for _, o := range s.Others {
		say("  ", "Also: "+o.Headline()+": "+o.Reason)
		if o.Do != "" {
			say("    ", "What to do: "+o.Do)
		}
	}
	if s.Backup != nil {
		say("  ", fmt.Sprintf("backup ready: %s (%s)", yes(s.Backup.Ready), s.Backup.Detail))
	}
}

// circumstances says how far the rollout is, who coordinates, and what else there is to know.
func (s *Status) circumstances(b *strings.Builder, screen Screen) {
	head := func(key, format string, args ...any) {
		printf(b, "%-12s ", key)
		printf(b, format+"\n", args...)
	}
	head("StatefulSet", "%s/%s", s.Namespace, s.StatefulSet)
	if s.UpdateRevision != "" {
		head("Revision", "%s", s.UpdateRevision)
	}
	if s.Action != rollout.ActionIdle {
		text := s.Progress.String()
		switch {
		case s.Rolling() && s.Started.Before(s.Now):
			text += ", under way for " + Ago(s.Now, s.Started)
		case !s.Ended.IsZero():
			text += ", ended " + Ago(s.Now, s.Ended) + " ago"
		}
		head("Progress", "%s %s", screen.as(good, s.Progress.Bar(barWidth)), text)
	}
	head("Coordinator", "%s", s.who())
	if len(s.Without) > 0 {
		head("Sidecars", "%s", strings.Join(s.Without, ", ")+": without Quorate")
	}
	for _, who := range s.Leaving {
		head("Leaving", "%s", screen.as(waiting, who))
	}
	for i := range s.Ghosts {
		head("GHOST", "%s", screen.as(waiting, s.Ghosts[i].Tell(s.Now)))
	}
	if s.Suspect != "" {
		head("SUSPECT", "%s", screen.as(waiting,
			s.Suspect+" may still be removed from etcd's list, and is not relied on"))
	}
	for _, fault := range s.Faults {
		head("FAULT", "%s", screen.as(alarm, fault))
	}
	if sets := s.Sets(); len(sets) > 0 {
		head("Controls", "%s", screen.as(waiting, strings.Join(sets, ", ")))
	}
	for _, bad := range s.Bad {
		head("BAD CONTROL", "%s", screen.as(alarm, bad))
	}
	if words := s.OverrideWords(); words != "" {
		head("OVERRIDDEN", "%s", screen.as(alarm, words))
	}
	if words := s.EndedWords(); words != "" {
		head("Override", "%s", screen.as(waiting, words))
	}
}

// who says who coordinates, and for how long nothing has been heard from it.
func (s *Status) who() string {
	reported := ", reported " + Ago(s.Now, s.Last.At) + " ago"
	switch {
	case s.Current && s.Holder == "":
		return s.Last.Coordinators() + reported + ", and has made way for another one"
	case s.Current:
		return s.Last.Coordinators() + reported
	case s.Claimed:
		return fmt.Sprintf("%s holds the record (epoch %d), and has reported nothing yet", podOf(s.Holder), s.Claims)
	case s.Holder != "":
		text := fmt.Sprintf("SILENT: %s holds the record (epoch %d)", podOf(s.Holder), s.Claims)
		if !s.Last.At.IsZero() {
			text += reported
		}
		return text
	case s.Last.Coordinator != "":
		return "none now; the last was " + s.Last.Coordinators() + reported
	}
	return "none has reported yet"
}

// podOf is the pod of an identity on the record, where it has one.
func podOf(identity string) string {
	if pod, _, ok := strings.Cut(identity, "_"); ok && pod != "outside" {
		return pod
	}
	return identity
}

// Line is the status in one line, for a log.
func (s *Status) Line() string {
	text := fmt.Sprintf("%s  %s  %s  %s: %s", s.Now.UTC().Format(time.RFC3339), s.Verdict(), s.Progress, s.Headline(),
		s.Reason)
	if s.Nobody != "" {
		text += "  NOBODY COORDINATES: " + s.Nobody
	}
	if words := s.OverrideWords(); words != "" {
		text += "  OVERRIDDEN: " + words
	}
	if len(s.Ghosts) > 0 {
		text += "  GHOSTS: " + GhostNames(s.Ghosts)
	}
	for _, fault := range s.Faults {
		text += "  FAULT: " + fault
	}
	return clean(text)
}
