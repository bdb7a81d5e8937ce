package bench

import (
	"bufio"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// How the two versions of etcd log what raft reports. They differ only in the caller.
const (
	etcd35 = `{"level":"info","ts":"%s","logger":"raft","caller":"etcdserver/zap_raft.go:77","msg":"%s"}`
	etcd36 = `{"level":"info","ts":"%s","logger":"raft","caller":"v3@v3.6.0/raft.go:970","msg":"%s"}`
)

// What raft says.
const (
	asked = "3d7452e5b8a913fa [term 4] received MsgTimeoutNow from 902cb9f8406f3191 and starts an election to " +
		"get leadership."
	ignored = "3d7452e5b8a913fa [term 5 state StateCandidate] ignored MsgTimeoutNow from 902cb9f8406f3191"
	cannot  = "3d7452e5b8a913fa cannot campaign at term 4 since there are still pending configuration changes " +
		"to apply"
	starting     = "3d7452e5b8a913fa is starting a new election at term 4"
	preCandidate = "3d7452e5b8a913fa became pre-candidate at term 4"
	preVote      = "3d7452e5b8a913fa has received 2 MsgPreVoteResp votes and 0 vote rejections"
	candidate    = "3d7452e5b8a913fa became candidate at term 5"
	vote         = "3d7452e5b8a913fa has received 2 MsgVoteResp votes and 0 vote rejections"
	leader5      = "3d7452e5b8a913fa became leader at term 5"
	elected      = "raft.node: 3d7452e5b8a913fa elected leader 3d7452e5b8a913fa at term 5"
	lostTo       = "3d7452e5b8a913fa [term: 4] received a MsgVote message with higher term from 7c348b9e3a1f139c " +
		"[term: 5]"
	follower5  = "3d7452e5b8a913fa became follower at term 5"
	otherLeads = "raft.node: 3d7452e5b8a913fa elected leader 7c348b9e3a1f139c at term 5"
	asks       = "3d7452e5b8a913fa sends MsgTimeoutNow to 902cb9f8406f3191 immediately as 902cb9f8406f3191 already " +
		"has up-to-date log"
	follower6  = "3d7452e5b8a913fa became follower at term 6"
	candidate6 = "3d7452e5b8a913fa became candidate at term 6"
	leader6    = "3d7452e5b8a913fa became leader at term 6"
	candidate7 = "3d7452e5b8a913fa became candidate at term 7"
	leader7    = "3d7452e5b8a913fa became leader at term 7"
)

func parsed(log string) ([]election, error) {
	return parseElections(bufio.NewScanner(strings.NewReader(log)), "t1-0")
}

func TestAChangeOfLeaderIsPlannedIfTheOldLeaderAskedForIt(t *testing.T) {
	type won struct {
		line    int // from 0
		term    uint64
		planned bool
	}
	for name, c := range map[string]struct {
		says []string
		want []won
	}{
		"an asked member wins": {
			[]string{asked, starting, candidate, vote, leader5, elected}, []won{{4, 5, true}},
		},
		"a member wins after its election timeout": {
			[]string{starting, preCandidate, preVote, candidate, vote, leader5, elected}, []won{{5, 5, false}},
		},
		"an asked member loses": {
			[]string{asked, starting, candidate, lostTo, follower5, otherLeads}, nil,
		},
		"an asked member loses, and wins later after its election timeout": {
			[]string{asked, starting, candidate, follower5, starting, preCandidate, preVote, candidate6, vote, leader6},
			[]won{{9, 6, false}},
		},
		"an asked member gets no majority, and wins after its election timeout": {
			[]string{asked, starting, candidate, starting, preCandidate, preVote, candidate6, vote, leader6},
			[]won{{8, 6, false}},
		},
		"an asked member may not stand yet, and wins after its election timeout": {
			[]string{asked, cannot, starting, preCandidate, candidate, leader5}, []won{{5, 5, false}},
		},
		"an asked member loses, and without pre-vote wins later": {
			[]string{asked, starting, candidate, follower5, candidate6, leader6}, []won{{5, 6, false}},
		},
		"a leader asks another member": {
			[]string{asks, follower6}, nil,
		},
		"a member is asked when it stands already, and ignores it": {
			[]string{starting, preCandidate, candidate, ignored, leader5}, []won{{4, 5, false}},
		},
		"a member wins twice, asked the first time": {
			[]string{asked, candidate, leader5, asks, follower6, preCandidate, candidate7, leader7},
			[]won{{2, 5, true}, {7, 7, false}},
		},
		"a member that was asked wins twice in a row": {
			[]string{asked, candidate, leader5, candidate7, leader7}, []won{{2, 5, true}, {4, 7, false}},
		},
		"nothing happens": {nil, nil},
	} {
		for version, format := range map[string]string{"3.5": etcd35, "3.6": etcd36} {
			t.Run(name+" in etcd "+version, func(t *testing.T) {
				at := func(line int) time.Time {
					return time.Date(2026, 11, 21, 18, 42, 37, 490980*1000, time.UTC).
						Add(time.Duration(line) * time.Millisecond)
				}
				var log strings.Builder
				for i, message := range c.says {
					fmt.Fprintf(&log, format+"\n", at(i).Format("2006-01-02T15:04:05.000000Z"), message)
				}
				var want []election
				for _, w := range c.want {
					want = append(want, election{at: at(w.line), pod: "t1-0", term: w.term, planned: w.planned})
				}
				got, err := parsed(log.String())
				require.NoError(t, err)
				require.Equal(t, want, got)
			})
		}
	}
}

// whole is a piece of a log as etcd 3.5 wrote it.
const whole = `{"level":"info","ts":"2026-11-21T18:22:53.872733Z","logger":"raft",` +
	`"caller":"etcdserver/zap_raft.go:77","msg":"6f32e33bf6a71320 became follower at term 2"}` + "\n" +
	`{"level":"info","ts":"2026-11-21T18:22:53.918219Z","caller":"rafthttp/peer_status.go:53",` +
	`"msg":"peer became active","peer-id":"dd5d7e1567b44fa7"}` + "\n" +
	`{"level":"info","ts":"2026-11-21T18:22:54.881677Z","logger":"raft","caller":"etcdserver/zap_raft.go:77",` +
	`"msg":"6f32e33bf6a71320 [term 2] received MsgTimeoutNow from dd5d7e1567b44fa7 ` +
	`and starts an election to get leadership."}` + "\n" +
	`{"level":"info","ts":"2026-11-21T18:22:54.881717Z","logger":"raft","caller":"etcdserver/zap_raft.go:77",` +
	`"msg":"6f32e33bf6a71320 is starting a new election at term 2"}` + "\n" +
	`{"level":"info","ts":"2026-11-21T18:22:54.881729Z","logger":"raft","caller":"etcdserver/zap_raft.go:77",` +
	`"msg":"6f32e33bf6a71320 became candidate at term 3"}` + "\n" +
	`{"level":"info","ts":"2026-11-21T18:22:54.881770Z","logger":"raft","caller":"etcdserver/zap_raft.go:77",` +
	`"msg":"raft.node: 6f32e33bf6a71320 lost leader dd5d7e1567b44fa7 at term 3"}` + "\n" +
	`{"level":"info","ts":"2026-11-21T18:22:54.883077Z","logger":"raft","caller":"etcdserver/zap_raft.go:77",` +
	`"msg":"6f32e33bf6a71320 became leader at term 3"}` + "\n"

func TestOnlyWholeLinesOfRaftTellOfElections(t *testing.T) {
	won := []election{{at: time.Date(2026, 11, 21, 18, 22, 54, 883077*1000, time.UTC), pod: "t1-0",
		term: 3, planned: true}}
	cut := func(from string) string { return whole[:strings.LastIndex(whole, from)] }
	for name, c := range map[string]struct {
		log  string
		want []election
	}{
		"the whole log":                               {whole, won},
		"the last line has no end of line":            {strings.TrimSuffix(whole, "\n"), won},
		"the process was killed within the last line": {cut(` at term 3"}`), nil},
		"the process was killed within the number":    {cut(`"}`), nil},
		"a line was cut off before": {whole + `{"level":"info","ts":"2026-11-21T18:23:04.76`,
			won},
		"another logger says it": {
			strings.ReplaceAll(whole, `"logger":"raft"`, `"logger":"etcd"`), nil},
		"no logger says it": {strings.ReplaceAll(whole, `"logger":"raft",`, ""), nil},
		"etcd writes something else than JSON in between": {"raft2026/11/21 INFO: \"raft\" became leader at term 9\n" +
			whole, won},
		"the log is empty": {"", nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parsed(c.log)
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}

func TestALogThatCannotBeReadIsAnError(t *testing.T) {
	_, err := parsed(strings.Replace(whole, "became leader at term 3", "became leader at term three", 1))
	require.ErrorContains(t, err, `"6f32e33bf6a71320 became leader at term three"`)
	_, err = parsed(strings.Repeat("x", 2<<20) + "\n" + whole)
	require.ErrorIs(t, err, bufio.ErrTooLong)
}
