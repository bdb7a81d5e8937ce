package harness

import (
	"context"
	"encoding/json"
	"time"

	"github.com/quorate/quorate/test/harness/build"
	"github.com/quorate/quorate/test/harness/process"
)

// Host is the argument of test/cmd/host, a program that embeds the library.
type Host struct {
	// Listen is where it serves its metrics.
	Listen string
	// Embed is its switch for the library. Without it, the program only does its own work.
	Embed bool
	// Clusters are the clusters that it is for, by the names of their StatefulSets.
	Clusters map[string]Access
	// LockTTL and RecordDuration are the library's defaults if they are zero.
	LockTTL, RecordDuration time.Duration
	// Promote makes it set status.currentRevision in the end.
	Promote bool
}

// HostLeaks is its exit code if goroutines were left behind.
const HostLeaks = 5

// StartHost builds and starts a host program outside any pod, with a file for its log. Stop it in the
// end.
func StartHost(ctx context.Context, h Host, log string, progress func(line string)) (*process.Process, error) {
	binaries, err := build.Some(ctx, progress, build.Host)
	if err != nil {
		return nil, err
	}
	spec, err := json.Marshal(struct {
		Host
		Namespace string
	}{h, Namespace})
	if err != nil {
		return nil, err
	}
	return process.Start(process.Spec{Name: "host program", Path: binaries.Host, Args: []string{string(spec)},
		Env: []string{}, LogPath: log})
}
