// Mutants takes away every guard of Quorate, one at a time, and says which test notices. It prints one table: the
// guard, the room that it is in, and what catches its removal. It fails where nothing does.
//
// There are two kinds. Some mutants are written by hand beside what catches them, in tests that are called EveryMutant:
// those of the decision and those of the explorer. The others are found here: whatever leaves a function early on a
// condition, each case of a switch without a tag, and each part of what a function returns as a condition. They are
// made in a copy that go test -overlay compiles in place of a file, so there is no switch in any code that ships. All
// of a package are compiled at once, and an environment variable says which one is without its guard.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// line is a row of the table.
type line struct{ guard, room, caught string }

func main() {
	root := flag.String("root", ".", "the checkout")
	source := flag.Bool("source-only", false, "leave out the mutants that are written by hand")
	only := flag.String("rooms", "", "the rooms to look at, comma-separated (default: all)")
	names := flag.String("guards", "", "with -source-only: only guards whose name has this in it, such as a file's")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	missing, err := run(ctx, *root, *only, *names, *source, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(2)
	}
	if missing > 0 {
		os.Exit(1)
	}
}

// run prints the table, and returns how many guards nothing catches.
func run(ctx context.Context, root, only, names string, source bool, out io.Writer) (missing int, err error) {
	root, err = filepath.Abs(root)
	if err != nil {
		return 0, err
	}
	wanted := func(room string) bool { return only == "" || slices.Contains(strings.Split(only, ","), room) }
	fmt.Fprintln(out, "| guard | room | what catches its removal |\n|---|---|---|")
	used := map[string]bool{}
	total, excused := 0, 0
	tell := func(l line) {
		total++
		key := l.guard
		why, known := survivors[key]
		switch {
		case l.caught == "" && known:
			used[key] = true
			excused++
			l.caught = "no test: " + why
		case l.caught == "":
			missing++
			l.caught = "**NOTHING**"
		case known:
			used[key] = true
			missing++
			l.caught += " (**take it off the list of those that nothing catches**)"
		}
		cell := strings.NewReplacer("|", `\|`, "\n", " ", "\t", "")
		fmt.Fprintf(out, "| %s | %s | %s |\n", cell.Replace(l.guard), l.room, cell.Replace(l.caught))
	}
	for _, w := range written {
		if source {
			break
		}
		if err := w.play(ctx, root, wanted, tell); err != nil {
			return missing, fmt.Errorf("%s: %w", w.dir, err)
		}
	}
	for _, t := range targets {
		if !wanted(t.room) {
			continue
		}
		if err := t.play(ctx, root, names, tell); err != nil {
			return missing, fmt.Errorf("%s: %w", t.dir, err)
		}
	}
	if only == "" && !source {
		for _, key := range slices.Sorted(maps.Keys(survivors)) {
			if !used[key] {
				missing++
				fmt.Fprintf(out, "| %s | | **this is no guard any more: take it off the list** |\n", key)
			}
		}
	}
	fmt.Fprintf(out, "\n%d guards: %d are caught, %d make no difference that a test could see, %d are missing\n", total,
		total-excused-missing, excused, missing)
	return missing, nil
}

// hand is a package with tests that are called EveryMutant and have a subtest for each.
type hand struct {
	// dir is the module's folder, pkg the package in it.
	dir, pkg string
	// rooms are those of its mutants. The name of a mutant's test ends with its room, if that is not the first.
	rooms []string
	// args are further arguments of the tests.
	args []string
}

var written = []hand{
	{".", "./pkg/rollout", []string{"decision"}, nil},
	{"test", "./explorer", []string{"protocol", "decision", "view"}, nil},
	{"test", "./scenarios", []string{"policy"}, []string{"-everything"}}, // CI leaves them out.
	{"test", "./guard", []string{"policy"}, nil},
}

// place splits the name of a mutant's test into what the mutant lacks and the room of that.
func (h hand) place(test string) (guard, room string) {
	guard = strings.ReplaceAll(test[strings.LastIndex(test, "/")+1:], "_", " ")
	for _, room := range h.rooms {
		if name, ends := strings.CutSuffix(guard, " ("+room+")"); ends {
			return name, room
		}
	}
	return guard, h.rooms[0]
}

// event is a line of go test -json.
type event struct{ Action, Test, Output string }

// play runs the tests, and tells what each of their mutants is caught by.
func (h hand) play(ctx context.Context, root string, wanted func(string) bool, tell func(line)) error {
	if !slices.ContainsFunc(h.rooms, wanted) {
		return nil
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-json", "-count=1", "-timeout=40m", "-run", "Mutant",
		h.pkg)
	cmd.Args = append(cmd.Args, h.args...)
	cmd.Dir = filepath.Join(root, h.dir)
	text, failed := cmd.Output()
	said := map[string]string{}
	result := map[string]string{}
	var order []string
	for _, l := range strings.Split(string(text), "\n") {
		var e event
		if json.Unmarshal([]byte(l), &e) != nil || !strings.Contains(e.Test, "/") {
			continue
		}
		switch e.Action {
		case "run":
			order = append(order, e.Test)
		case "output":
			if _, words, logged := strings.Cut(strings.TrimSpace(e.Output), "_test.go:"); logged && said[e.Test] == "" {
				_, words, _ = strings.Cut(words, ": ")
				said[e.Test] = words
			}
		case "pass", "fail":
			result[e.Test] = e.Action
		}
	}
	if len(order) == 0 {
		return errors.Join(fmt.Errorf("no mutant was tried: %s", tail(text)), failed)
	}
	for _, test := range order {
		if slices.ContainsFunc(order, func(o string) bool { return strings.HasPrefix(o, test+"/") }) {
			continue // It has mutants of its own.
		}
		guard, room := h.place(test)
		if !wanted(room) {
			continue
		}
		l := line{guard: guard, room: room}
		if result[test] == "pass" {
			top, _, _ := strings.Cut(test, "/")
			l.caught = fmt.Sprintf("`%s`, %s", top, said[test])
		}
		tell(l)
	}
	return nil
}

// tail is the end of an output.
func tail(text []byte) string {
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-10):], "\n")
}

// target is a package whose guards are found in its source.
type target struct {
	room string
	// dir is the package's, and files are the files in it, all if there are none.
	dir   string
	files []string
	// rows is true where the guards are the functions that the rows of a table name as their judge.
	rows bool
	// judges are the tests that judge, those of the package itself if there are none. A guard that the first ones do
	// not miss is left to the next ones.
	judges []judge
}

// judge are tests of one package, which do not depend on what else there is.
type judge struct {
	// dir is the package's folder. Only tests that match run, and none that match skip, where these are not empty.
	dir, run, skip string
	// limit bounds one run. A mutant that never ends is caught by it.
	limit time.Duration
}

// What goes through every combination of members is asked by the mutants that are written by hand.
const combinations = "^Test(NoCombination|EveryMutant|NoRuleTells|ABrokenRevisionCosts|WithoutRevisionSuspect)"

// The coordinator's tests run for minutes, so these are the ones that are about its views and the election.
const (
	aboutViews = "^Test(NothingIsDoneOnAStaleView|WhatLasted|AMemberThatFailsIsNoticed|NoRolloutEnds|WhatAnotherWas|" +
		"ARolloutWhoseEvent|ARestored|NobodyIsUnfit|WhoDoesNotSee|ALiveLook|ABurst|OurOwnWrite|AWatchThatWorks|" +
		"ABudget|ALook|TheNextPod|AnEviction|TheMoment|ARefus|AGate|Ghosts|TheWatchOnTheLease|NodesAre|ANodeThat|" +
		"ThatNodesMayNot|OnlyTheOwnerOfTheLockWatches|ACordon|TheLeaseSaysWhatQuorum|ADenialOfTheQuorumGuard)"
	aboutElections = "^Test(TheElection|TheQueue|TheHandover|TheEnd|WhoAbstains|TheFallback|ASidecar|WhatCameBack|" +
		"TheOwnerOfTheLock|WhatTheOwnPod|ASession|TheLogSays|WhoRemovesItsOwnPod|ALockKey|OnlyWhoHasCoordinated)"
)

var targets = []target{
	{room: "decision", dir: "pkg/rollout", files: []string{"table.go"}, rows: true,
		judges: []judge{{dir: "pkg/rollout", skip: combinations, limit: 5 * time.Minute}}},
	{room: "decision", dir: "pkg/rollout", files: []string{"needed.go"},
		judges: []judge{{dir: "pkg/rollout", run: "QuorumRestsOn", limit: time.Minute}}},
	{room: "protocol", dir: "internal/record"},
	{room: "election", dir: "coordinator/election", judges: []judge{{dir: "coordinator/election", limit: time.Minute},
		{dir: "coordinator", run: aboutElections, limit: 5 * time.Minute}}},
	{room: "view", dir: "internal/workload",
		files: []string{"guarded.go", "mirror.go", "view.go", "view_budget.go", "view_lease.go", "view_nodes.go"},
		judges: []judge{{dir: "internal/workload", limit: time.Minute}, {dir: "coordinator", run: aboutViews,
			limit: 5 * time.Minute}}},
	{room: "view", dir: "coordinator", files: []string{"view.go", "observe.go", "decide.go", "decision.go"},
		judges: []judge{{dir: "coordinator", run: aboutViews, limit: 5 * time.Minute}}},
}
