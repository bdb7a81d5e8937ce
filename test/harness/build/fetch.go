package build

import (
	"context"
	"os"
	"path/filepath"
)

// fetchAll downloads the modules of one target after the other, while the first ones are compiled: a download waits
// for the network, and a compiler has the processors. The function that it returns ends this.
func fetchAll(ctx context.Context, all []*builder) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for _, b := range all {
			b.fetched <- b.fetch(ctx)
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// fetch brings the modules that the target needs into the module cache. If it has been built before, they are there,
// but for what has changed since; the build itself fetches that.
func (b *builder) fetch(ctx context.Context) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if b.recipe.host != "" {
		if _, err := b.fetchHost(ctx); err != nil {
			return err
		}
	}
	_, err := os.Stat(filepath.Join(binDir(b.root), string(b.target)))
	if err == nil || b.otherKubernetes() != "" {
		return nil
	}
	// To know the packages of a program, the go command needs the modules that they are in, and no others.
	output := b.meter.downloading(b.target)
	err = b.run(ctx, output, "list", "0", "list", "-deps", b.recipe.pkg)
	b.meter.downloaded(b.target, output)
	return err
}
