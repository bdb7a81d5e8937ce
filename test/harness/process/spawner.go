package process

import (
	"os/exec"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// SpawnerGoroutine is the name of the goroutine that forks all children and never
// ends, for goleak.IgnoreTopFunction.
const SpawnerGoroutine = "github.com/quorate/quorate/test/harness/process.spawn"

type startRequest struct {
	cmd    *exec.Cmd
	result chan<- error
}

var startRequests = sync.OnceValue(func() chan<- startRequest {
	requests := make(chan startRequest)
	go spawn(requests)
	return requests
})

// spawn starts commands on one thread for ever. The thread must not end before the
// program does: the kernel would take its end for the death of the parent and kill
// every child.
func spawn(requests <-chan startRequest) {
	runtime.LockOSThread()
	// Orphans of our children come to us instead of to init. The call cannot fail
	// on a Linux that has the option (3.4); without it, orphans would be collected
	// by init, which is only less exact.
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	for request := range requests {
		request.result <- request.cmd.Start()
	}
}

func startOnSpawner(cmd *exec.Cmd) error {
	result := make(chan error, 1)
	startRequests() <- startRequest{cmd: cmd, result: result}
	return <-result
}
