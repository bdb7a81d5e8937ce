package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Dumps of real clusters, as kubectl and etcdctl have printed them: a real API server's objects
// of a StatefulSet like etcd-druid's, and a real etcd's answers, by the programs of test/kubectl
// and test/etcd/v36. They were recorded with
//
//	cd test && go test ./scenarios -run DumpsAreRecorded -record ../cmd/quorate/testdata/recorded
//
// as root. Beside each is the plan that is made of it, by the clock of its recording.
func TestPlanOfRecordedDumps(t *testing.T) {
	base := filepath.Join("testdata", "recorded")
	for name, want := range map[string]string{
		// While nobody rolls, a follower crashes at every start, and then a second one.
		"a-member-that-crashes": "Remove etcd-main-2 - NotServingFirst",
		"quorum-lost":           "Remove etcd-main-2 - NotServingFirst",
		// A coordinator tells of a revision whose first pod crashes at every start, and of
		// the end of the rollout to the one that mends it.
		"a-revision-that-does-not-come-up": "Hold - UpdatedFailing UpdatedSettle",
		"complete":                         "Complete - - Complete",
	} {
		t.Run(name, func(t *testing.T) {
			dir, files := t.TempDir(), unpacked(t, filepath.Join(base, name+".txtar"))
			at := strings.TrimSpace(string(files["now"]))
			delete(files, "now")
			writeFiles(t, dir, files)
			args := append([]string{"--now", at}, dumpArgs(dir, files)...)
			text, _ := runPlan(t, append(args, "-o", "json")...)
			if got := summaryOf(t, text); got != want {
				t.Errorf("decides\n%q, want\n%q", got, want)
			}
			table, _ := runPlan(t, args...)
			expect(t, filepath.Join(base, name+".txt"), steady(table))
		})
	}
}

// unpacked reads the files of a txtar archive.
func unpacked(t testing.TB, path string) map[string][]byte {
	t.Helper()
	archive, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	marks := regexp.MustCompile(`(?m)^-- (\S+) --\n`).FindAllSubmatchIndex(archive, -1)
	for i, m := range marks {
		end := len(archive)
		if i+1 < len(marks) {
			end = marks[i+1][0]
		}
		files[string(archive[m[2]:m[3]])] = archive[m[1]:end]
	}
	return files
}
