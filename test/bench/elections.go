package bench

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/quorate/quorate/test/harness"
)

// election is a change of leader, taken from the winner's own log.
type election struct {
	at  time.Time
	pod string
	// term is raft's.
	term uint64
	// planned is true when the old leader had asked the winner to take over, false when the
	// winner's election timeout had passed.
	planned bool
}

// electionsOf reads the logs of every etcd that the pods have run.
func electionsOf(env *harness.Env, pods []string) ([]election, error) {
	var all []election
	for _, pod := range pods {
		files, err := filepath.Glob(filepath.Join(env.Nodes.LogDir(pod), "*-etcd-*.log"))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			f, err := os.Open(file)
			if err != nil {
				return nil, err
			}
			won, err := parseElections(bufio.NewScanner(f), pod)
			_ = f.Close()
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			all = append(all, won...)
		}
	}
	slices.SortFunc(all, func(a, b election) int { return a.at.Compare(b.at) })
	return all, nil
}

// parseElections reads the elections that one member won. Raft logs "8e9e [term 2] received
// MsgTimeoutNow from 1a2b and starts an election to get leadership." where it was asked to take
// over, and "8e9e became leader at term 3" where it won. An election by timeout begins as a
// pre-candidate (etcd's pre-vote).
func parseElections(lines *bufio.Scanner, pod string) ([]election, error) {
	lines.Buffer(nil, 1<<20)
	var won []election
	asked := false
	for lines.Scan() {
		if !strings.Contains(lines.Text(), `"raft"`) {
			continue
		}
		var line struct {
			TS  time.Time
			Msg string
		}
		if json.Unmarshal(lines.Bytes(), &line) != nil {
			continue // A line that was cut off when the process was killed.
		}
		_, term, becameLeader := strings.Cut(line.Msg, " became leader at term ")
		switch {
		case strings.Contains(line.Msg, "received MsgTimeoutNow"):
			asked = true
		case strings.Contains(line.Msg, "became pre-candidate"), strings.Contains(line.Msg, "became follower"):
			asked = false
		case becameLeader:
			e := election{at: line.TS, pod: pod, planned: asked}
			if _, err := fmt.Sscan(term, &e.term); err != nil {
				return nil, fmt.Errorf("%q: %w", line.Msg, err)
			}
			won, asked = append(won, e), false
		}
	}
	return won, lines.Err()
}
