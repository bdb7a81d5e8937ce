package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// interruptions turn signals, and an output without a reader, into the end of a context.
type interruptions struct {
	signals chan os.Signal
	mu      sync.Mutex
	taken   syscall.Signal
}

// takeSignals takes over the signals that would end the program at once.
func takeSignals() *interruptions {
	i := &interruptions{signals: make(chan os.Signal, 2)}
	signal.Notify(i.signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	// A pipe that broke must not end the program before it has cleaned up. The signal
	// says nothing: broken connections send it too, so watch looks at the writes.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	return i
}

// handle returns a context that ends at the first signal. At the second the program
// ends at once, after the last rites; the kernel then kills its processes.
func (i *interruptions) handle(out *console, lastRites func()) context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	go func() {
		sig := (<-i.signals).(syscall.Signal)
		i.mu.Lock()
		i.taken = sig
		i.mu.Unlock()
		cancel(fmt.Errorf("interrupted by %v", sig))
		out.Say(yellow, "interrupted: stopping everything (once more to end at once)")
		sig = (<-i.signals).(syscall.Signal)
		out.TakeBack()
		lastRites()
		os.Exit(exitSignal + int(sig))
	}()
	return ctx
}

// first is the signal that came first, 0 if none did.
func (i *interruptions) first() syscall.Signal {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.taken
}

// watch returns a writer that takes the first failed write for an interruption, because a demo
// that nobody sees any more should end.
func (i *interruptions) watch(w io.Writer) io.Writer {
	var once sync.Once
	return writerFunc(func(p []byte) (int, error) {
		n, err := w.Write(p)
		if err != nil {
			once.Do(func() { i.signals <- syscall.SIGPIPE })
		}
		return n, err
	})
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
