package report

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/quorate/quorate/test/chaos/soak"
)

// WriteSoak writes the page of soaks. Chaos is the table of what happened meanwhile. It returns what is wrong with
// them, which is also on the page.
func WriteSoak(path string, runs []*soak.Run, chaos string) (wrong []string, err error) {
	text, wrong := soakPage(runs, chaos)
	return wrong, os.WriteFile(path, []byte(text), 0o644)
}

// soakPage is the page, and what is wrong with the runs.
func soakPage(runs []*soak.Run, chaos string) (text string, wrong []string) {
	hours, first, last := 0.0, runs[0].Began, runs[0].Began
	var rows, grown [][]string
	for i, r := range runs {
		hours += r.Hours()
		if r.Began.Before(first) {
			first = r.Began
		}
		if r.Began.After(last) {
			last = r.Began
		}
		trends, bad := r.Judge()
		for _, w := range bad {
			wrong = append(wrong, fmt.Sprintf("run %d: %s", i+1, w))
		}
		rows = append(rows, []string{strconv.Itoa(i + 1), r.Began.UTC().Format(time.DateTime), figure(r.Hours()),
			strings.TrimSpace(r.Cluster)})
		for _, t := range trends {
			name := t.Name
			if t.Unit != "" {
				name += ", " + t.Unit
			}
			verdict := "no"
			if t.Grows() {
				verdict = "**yes**"
			}
			grown = append(grown, []string{strconv.Itoa(i + 1), name, t.Who(), figure(t.Hours), figure(t.Early),
				figure(t.Late), figure(t.Limit), figure(t.Most), verdict})
		}
	}
	p := &page{}
	p.line("# Soak: what sidecars occupy after hours of chaos\n")
	days := first.UTC().Format(time.DateOnly)
	if to := last.UTC().Format(time.DateOnly); to != days {
		days += " to " + to
	}
	p.line("Written by `make soak-page` from %s of `make soak`, on %s. Everything on this page is theirs.\n",
		plural(len(runs), "run"), days)
	p.line("%s\n", soakVerdict(hours, wrong))
	p.line("%s", soakText)
	p.head("Does anything grow?")
	p.line("%s", soakReading)
	p.table(3, []string{"run", "what", "whose", "hours", "second quarter", "last quarter", "at most", "highest",
		"grows"}, grown)
	p.head("The runs")
	p.table(4, []string{"run", "began (UTC)", "hours", "the first script"}, rows)
	if chaos != "" {
		p.head("What happened meanwhile")
		p.line("```text\n%s\n```", strings.TrimRight(chaos, "\n"))
	}
	return p.String(), wrong
}

// soakVerdict is the answer, in a sentence.
func soakVerdict(hours float64, wrong []string) string {
	if len(wrong) == 0 {
		return fmt.Sprintf("**Nothing grew in %.1f hours of chaos.**", hours)
	}
	return fmt.Sprintf("**In %.1f hours of chaos, this was wrong:**\n\n* %s", hours, strings.Join(wrong, "\n* "))
}

// soakText says what was done, and soakReading how it is judged.
const (
	soakText = `[Chaos](../safety.md#what-is-proved-and-how) is rollouts over and over while everything fails around
them, with every duty of the coordinator on. Here, in each run, all of it happens to one cluster. A rollout replaces the
members' sidecars about once a minute, which is too soon to see growth. So two more sidecars run in pods of their own,
take part in the election and in the faults, and are never ended.

Every five seconds, each sidecar's anonymous memory and open sockets are read from the kernel, its Go heap and its
goroutines from its metrics, and the number of leases from etcd.
`
	soakReading = `The median of the last quarter of a life is compared with that of the second; in the first one,
caches still fill. It grows if the last one is higher by more than a tenth and a small number: 2 MiB of memory, 1 MiB of
heap, 5 goroutines, 3 connections, 2 leases. Go's heap is the lowest value of two minutes. Each role is compared only
with itself, at the same number of members, because a coordinator needs more than a sidecar that waits. A run with
growth fails, and so does one in which a lasting sidecar ended, none was seen for twenty minutes, or etcd had more than
two leases for each sidecar at any time.
`
)

// figure writes a number with as many digits as anybody can use.
func figure(v float64) string {
	if v == math.Trunc(v) || math.Abs(v) >= 100 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'f', 1, 64)
}
