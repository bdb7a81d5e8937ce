package options_test

import (
	"fmt"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/quorate/quorate/pkg/options"
)

// A host adds the flags to its own, and fills in what only it has: its etcd client factory, its
// logger, its registry.
func ExampleHosted() {
	o := options.NewHosted()
	fs := pflag.NewFlagSet("etcdbrctl server", pflag.ContinueOnError)
	o.AddFlags(fs)
	err := fs.Parse([]string{"--enable-quorum-aware-pod-updates", "--pod-update-lock-ttl=20s"})
	if err == nil {
		err = o.Validate()
	}
	if err != nil || !o.Enabled {
		fmt.Println("not enabled:", err)
		return
	}

	getenv := func(key string) string { // os.Getenv, in a pod of etcd-druid.
		return map[string]string{"POD_NAMESPACE": "garden", "POD_NAME": "etcd-main-0"}[key]
	}
	rc := &rest.Config{Host: "https://10.0.0.1"} // rest.InClusterConfig.
	cfg, err := o.Config(getenv, rc)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(cfg.Namespace, cfg.StatefulSet, cfg.PodName, cfg.LockTTL, cfg.Policy.MaxUnavailable)
	// Output: garden etcd-main etcd-main-0 20s 1
}
