package adoption

import (
	"os"
	"regexp"
	"strconv"
	"testing"
)

// What a check calls tried is what README.md says was run.
func TestWhatWasTriedIsWhatTheFrontPageSays(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for what, want := range map[string][2]int{"Kubernetes": triedKubernetes, "etcd servers": triedEtcd} {
		row := regexp.MustCompile(`(?m)^\| ` + what + ` \| ([^|]*) \|`).FindSubmatch(readme)
		if row == nil {
			t.Fatalf("README.md has no row about %s", what)
		}
		var got [2]int
		for _, v := range regexp.MustCompile(`\d+\.(\d+)\.\d+`).FindAllSubmatch(row[1], -1) {
			minor, err := strconv.Atoi(string(v[1]))
			if err != nil {
				t.Fatal(err)
			}
			if got[0] == 0 || minor < got[0] {
				got[0] = minor
			}
			got[1] = max(got[1], minor)
		}
		if got != want {
			t.Errorf("%s: README.md says %v, and the check %v", what, got, want)
		}
	}
}
