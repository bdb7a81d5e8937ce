package options_test

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/quorate/quorate/coordinator"
	"github.com/quorate/quorate/pkg/options"
)

// A host adds the flags to its own, and fills in what only it has: its etcd client
// factory, its clientset, its logger.
func ExampleHosted() {
	o := options.NewHosted()
	fs := pflag.NewFlagSet("etcdbrctl server", pflag.ContinueOnError)
	o.AddFlags(fs)
	err := fs.Parse([]string{"--enable-quorum-aware-pod-updates", "--pod-update-lock-ttl=20s"})
	if err == nil {
		err = o.Complete()
	}
	if err == nil {
		err = o.Validate()
	}
	if err != nil || !o.Enabled {
		fmt.Println("not enabled:", err)
		return
	}

	cfg := coordinator.Config{Namespace: "garden", StatefulSet: "etcd-main"}
	o.ApplyTo(&cfg)
	fmt.Println(cfg.LockTTL, cfg.Policy.MaxUnavailable)
	// Output: 20s 1
}
