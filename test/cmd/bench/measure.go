package main

import (
	"context"
	"errors"
	"slices"

	"github.com/quorate/quorate/test/bench"
	"github.com/quorate/quorate/test/harness/build"
)

// targets are the binaries that are needed beside the harness's.
var targets []build.Target

// root is the checkout's.
func root() (string, error) { return build.Root() }

// measure measures all parts. One that fails does not keep the others from being measured.
func measure(ctx context.Context, o options) error {
	var errs []error
	part := func(name string, do func() error) {
		if slices.Contains(o.parts, name) && ctx.Err() == nil {
			errs = append(errs, do())
		}
	}
	part("trials", func() error { return bench.Trials(ctx, o.Options) })
	return errors.Join(errs...)
}
