package bench

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/quorate/quorate/test/harness"
)

// stillEvery is the pause between two writes that show whether the machine stands still.
const stillEvery = 100 * time.Millisecond

// watchMachine notes for how long the machine stands still. It writes again and again, which should take some
// milliseconds each time. If a write takes longer, the processors have done nothing for us, or the disk, if the write
// goes to one. It returns a function that ends this and tells the longest time in seconds. That may be called more than
// once.
func watchMachine(ctx context.Context, write func() error) (stop func() (float64, error)) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	var longest time.Duration
	var err error
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			begun := time.Now()
			if err = write(); err != nil {
				return
			}
			_ = harness.Pass(ctx, stillEvery) // It may end sooner, with ctx.
			longest = max(longest, time.Since(begun)-stillEvery)
		}
	}()
	return func() (float64, error) {
		cancel()
		<-done
		return longest.Seconds(), err
	}
}

// synced returns a write to a file in a directory, which is done once it has been synced.
func synced(dir string) (write func() error, end func() error, err error) {
	f, err := os.CreateTemp(dir, "still-")
	if err != nil {
		return nil, nil, err
	}
	write = func() error {
		_, err := f.WriteAt([]byte(time.Now().Format(time.RFC3339Nano)), 0)
		return errors.Join(err, f.Sync())
	}
	return write, func() error { return errors.Join(f.Close(), os.Remove(f.Name())) }, nil
}
