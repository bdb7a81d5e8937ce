// Command prepare builds the demo, and shows how far that is. It imports next to nothing, so that it is there in
// seconds. While the demo is compiled, it downloads the modules that every scenario needs next.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/quorate/quorate/test/harness/build"
)

func main() { os.Exit(prepare()) }

func prepare() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	line := build.NewLine(os.Stdout, build.Width(os.Stdout))
	show := build.NewShow(line, "demo")
	_, err := build.Watch(ctx, show, []build.Target{build.Demo}, build.Quorate, build.Etcd36, build.Kube)
	show.End()
	switch {
	case ctx.Err() != nil:
		fmt.Println("Interrupted. What has been downloaded and compiled is kept.")
		return 128 + int(syscall.SIGINT)
	case err != nil:
		fmt.Fprintln(os.Stderr, "demo:", err)
		return 1
	}
	return 0
}
