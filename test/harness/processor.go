package harness

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// ProcessorTime is the time for which all threads of a process have run, those that have ended
// included. It is the kernel's clock of that process, in nanoseconds: what /proc/PID/stat has
// is the same in hundredths of a second, too coarse for a sidecar that has nothing to do.
func ProcessorTime(pid int) (time.Duration, error) {
	// The clock's number as clock_getcpuclockid(3) makes it: the kernel's macro
	// MAKE_PROCESS_CPUCLOCK with CPUCLOCK_SCHED.
	const sched = 2
	var spent unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|sched), &spent); err != nil {
		return 0, fmt.Errorf("processor time of process %d: %w", pid, err)
	}
	return time.Duration(spent.Nano()), nil
}
