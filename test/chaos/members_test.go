package chaos

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// work: a sidecar puts an operation on a member on record.
func (s *story) work(t time.Duration, operation, member string) *story {
	w := Work{Operation: operation, ID: "7", Member: member}
	if operation == "" {
		w = Work{}
	}
	s.Lease = append(s.Lease, LeaseChange{At: s.at(t), Version: s.next(), Holder: "main-0", Work: w})
	s.Requests = append(s.Requests, Request{By: "main-0", At: s.at(t - time.Millisecond), Verdict: 200, Work: w,
		Forwarded: s.at(t - time.Millisecond), Answered: s.at(t)})
	return s
}

// rewritten: by the member's own log.
func (s *story) rewritten(from, to time.Duration, pod string) *story {
	s.Rewritten = append(s.Rewritten, Rewriting{Pod: pod, From: s.at(from), To: s.at(to)})
	return s
}

// defragmented: as the product does it.
func (s *story) defragmented(t time.Duration, pod string) *story {
	return s.work(t, defragments, pod).rewritten(t+20*time.Millisecond, t+90*time.Millisecond, pod).
		work(t+100*time.Millisecond, "", "")
}

func (s *story) asked(t time.Duration) *story {
	s.Asked = append(s.Asked, s.at(t))
	return s
}

// haunted begins a story of five members that were scaled to three, of which two were left on the list.
func haunted() *story {
	s := tell(5).scaled(second, second+500*time.Millisecond)
	for _, pod := range []string{"main-3", "main-4"} {
		s.terminates(second+600*time.Millisecond, pod, "old").silent(pod, second+700*time.Millisecond, lasts).
			pod(2*second, PodChange{Pod: pod, UID: "old", Terminates: true, Gone: true})
	}
	return s
}

func TestAnAuditorsJudgementOfOperationsOnMembers(t *testing.T) {
	for _, c := range []struct {
		name     string
		story    *story
		wrong    []string
		residues int
	}{
		{"one after the other is as it should be",
			tell(3).defragmented(20*second, "main-2").defragmented(21*second, "main-1"), nil, 0},
		{"a member stops while a pod that we removed is away",
			tell(3).removed(18*second, "main-2", "old").defragmented(20*second, "main-1"),
			[]string{"main-2, which we had removed, was terminating",
				"1 of the 2 other voters served: quorum is 2 (silent: [main-2])"}, 0},
		{"a member stops while another that a drain has taken long ago is away",
			tell(3).drained(10*second, "main-2", "old").silent("main-2", 10*second, lasts).
				defragmented(20*second, "main-1"),
			[]string{"main-2, removed by a drain for 9.989s, was away", "1 of the 2 other voters served"}, 0},
		{"that a drain has just taken another is excused",
			tell(3).drained(19*second, "main-2", "old").silent("main-2", 19*second, lasts).
				defragmented(20*second, "main-1"),
			nil, 1},
		{"a member stops while another has been silent for long",
			tell(5).silent("main-2", 5*second, lasts).defragmented(20*second, "main-1"),
			[]string{"the member of main-2 had been silent"}, 0},
		{"one that was ready for a moment in between, and was taken again, has not been silent",
			tell(5).drained(8*second, "main-2", "old").silent("main-2", 8*second, lasts).
				back(19900*time.Millisecond, "main-2", "old", "new").drained(20*second, "main-2", "new").
				defragmented(20*second, "main-1"),
			nil, 0},
		{"that a fault has just silenced another is excused",
			tell(3).fault(19*second, 22*second, "main-2").silent("main-2", 18*second, 22*second).
				defragmented(20*second, "main-1"),
			nil, 1},

		{"a ghost that an operator has given up goes",
			haunted().asked(18*second).work(20*second, removesMember, "main-4"), nil, 0},
		{"nobody has asked for it",
			haunted().work(20*second, removesMember, "main-4"), []string{"nobody has asked for it"}, 0},
		{"a member of ours is removed",
			haunted().asked(18*second).work(20*second, removesMember, "main-1"),
			[]string{"its pod is not scaled away", "2 of 5 voters served: quorum is 3"}, 0},
		{"a member that still serves is removed",
			tell(5).scaled(second, second).asked(18*second).work(20*second, removesMember, "main-4"),
			[]string{"its pod is still there"}, 0},
		{"a member that served a moment ago is removed",
			tell(5).scaled(second, second).
				pod(19*second, PodChange{Pod: "main-4", UID: "old", Terminates: true, Gone: true}).
				silent("main-4", 19*second, lasts).asked(18*second).work(20*second, removesMember, "main-4"),
			[]string{"it served"}, 0},
		{"a ghost goes while those that serve are no quorum",
			haunted().silent("main-2", 5*second, lasts).asked(18*second).work(20*second, removesMember, "main-4"),
			[]string{"2 of 5 voters served: quorum is 3"}, 0},
		{"that a fault has just silenced one of them is excused",
			haunted().fault(19*second, 22*second, "main-2").silent("main-2", 18*second, 22*second).
				asked(18*second).work(20*second, removesMember, "main-4"),
			nil, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var wrong []string
			residues := 0
			_, works := c.story.judgeAll()
			require.NotEmpty(t, works)
			for _, j := range works {
				wrong = append(wrong, j.Violations...)
				residues += min(1, len(j.Residue))
			}
			require.Len(t, wrong, len(c.wrong), "%q", wrong)
			for i, want := range c.wrong {
				require.Contains(t, wrong[i], want)
			}
			require.Equal(t, c.residues, residues, "excused")
		})
	}
}

func TestQuorateDoesOneThingAtATime(t *testing.T) {
	for _, c := range []struct {
		name  string
		story *story
		wrong []string
	}{
		{"one after the other is as it should be",
			tell(3).defragmented(20*second, "main-2").defragmented(21*second, "main-1").
				replaced(25*second, 4*second, "main-2", "old", "new"), nil},
		{"two at once", tell(3).work(20*second, defragments, "main-2").
			rewritten(20*second+second/10, 23*second, "main-2").
			defragmented(21*second, "main-1"), []string{"the databases of main-1 and main-2 are rewritten at once"}},
		{"what is not on record", tell(3).rewritten(20*second, 21*second, "main-2"),
			[]string{"the database of main-2 is rewritten, and the record says"}},
		{"another than is on record", tell(3).work(20*second, defragments, "main-1").rewritten(21*second, 22*second,
			"main-2"), []string{"the database of main-2 is rewritten, and the record says"}},
		{"a pod goes meanwhile", tell(3).work(20*second, defragments, "main-2").
			rewritten(20*second+second/10, 30*second, "main-2").removed(25*second, "main-1", "old"),
			[]string{"main-1 served and was removed while the database of main-2 was rewritten"}},
		{"a pod that does not serve may go meanwhile", tell(3).silent("main-1", 5*second, lasts).
			work(20*second, defragments, "main-2").rewritten(20*second+second/10, 30*second, "main-2").
			removed(25*second, "main-1", "old"), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			wrong := c.story.Together(time.Time{})
			require.Len(t, wrong, len(c.wrong), "%q", wrong)
			for i, want := range c.wrong {
				require.Contains(t, wrong[i], want)
			}
			require.Empty(t, c.story.Together(c.story.at(lasts)), "what has been judged is not judged again")
		})
	}
}

func TestWhoeverLeavesTheListWasRemoved(t *testing.T) {
	begin := func() *story {
		s := haunted()
		s.Members = map[string]string{"1": "main-0", "2": "main-1", "3": "main-2", "7": "main-4"}
		s.Listed = []string{"1", "2", "3"}
		return s
	}
	expelled := begin()
	expelled.Expelled = []string{"main-3", "main-4"}
	served := begin().work(20*second, removesMember, "main-4")
	served.Listed = []string{"1", "2"}
	for _, c := range []struct {
		name  string
		story *story
		wrong []string
	}{
		{"by an operation on record", begin().work(20*second, removesMember, "main-4"), nil},
		{"by the harness", expelled, nil},
		{"by another operation", begin().work(20*second, defragments, "main-4"),
			[]string{`the member 7 ("main-4") has left the list, and nobody is known to have removed it`}},
		{"a member that serves, by nobody", served,
			[]string{`the member 3 ("main-2") has left the list, and nobody is known to have removed it`}},
	} {
		t.Run(c.name, func(t *testing.T) { require.Equal(t, c.wrong, c.story.Departed()) })
	}
}

func TestWhenADatabaseWasRewrittenStandsInTheMembersLog(t *testing.T) {
	dir := t.TempDir()
	log := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	line := func(second, says string) string {
		return `{"level":"info","ts":"2026-01-01T00:00:` + second + `+0000","caller":"x.go:1","msg":"` + says + `"}
`
	}
	log("aaaaaaaa-etcd-0.log", line("01.5", "ready")+"not JSON\n"+line("02.25", "starting defragment")+
		line("03", "defragmenting")+line("04", "finished defragment")+line("05", "closing"))
	log("aaaaaaaa-etcd-1.log", line("06", "starting defragment")+line("07", "defragmenting")) // And then SIGKILL.
	log("bbbbbbbb-etcd-0.log", line("08", "starting defragment")+line("09", "failed to defragment")+
		line("10", "closing"))
	all, err := rewritten(map[string]string{"main-0": filepath.Join(dir, "*-etcd-*.log"),
		"main-1": filepath.Join(dir, "none-*")})
	require.NoError(t, err)
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var took [][2]time.Duration
	for _, r := range all {
		require.Equal(t, "main-0", r.Pod)
		took = append(took, [2]time.Duration{r.From.Sub(begin), r.To.Sub(begin)})
	}
	require.Equal(t, [][2]time.Duration{{2250 * time.Millisecond, 4 * second}, {6 * second, 7 * second},
		{8 * second, 9 * second}}, took)
}

func TestAnIntentOnAMemberIsReadAsQuorateWritesIt(t *testing.T) {
	for text, want := range map[string]struct {
		Intent
		Work
	}{
		"":                     {},
		`{"operation":"none"}`: {},
		`{"operation":"delete","pod":"main-1","uid":"x"}`: {Intent: Intent{"main-1", "x"}},
		`{"operation":"defragment","member":{"id":"7","name":"main-1","seconds":30}}`: {
			Work: Work{defragments, "7", "main-1"}},
		`{"operation":"remove-member","member":{"id":"7","urls":["https://main-6.main-peer.x.svc:2380"]}}`: {
			Work: Work{removesMember, "7", "main-6"}},
	} {
		intent, work := intentIn(text)
		require.Equal(t, want.Intent, intent, text)
		require.Equal(t, want.Work, work, text)
	}
}
