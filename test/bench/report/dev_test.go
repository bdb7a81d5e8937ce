package report

import (
	"os"
	"testing"

	"github.com/quorate/quorate/test/bench/result"
)

func TestDev(t *testing.T) {
	dir := os.Getenv("DEV_DIR")
	if dir == "" {
		t.Skip()
	}
	var names []string
	for _, c := range result.Cases {
		names = append(names, c.Name)
	}
	run := synthetic(3, names...)
	run.Fleets = []result.Fleet{thousand, central}
	if err := Write(run, dir); err != nil {
		t.Fatal(err)
	}
}
