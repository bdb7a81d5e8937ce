package fleet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/quorate/quorate/test/harness"
	"github.com/quorate/quorate/test/harness/apiproxy"
)

// count starts a host whose every request goes through a counter of its own. Its log and its kubeconfig have this name.
func (f *fleet) count(ctx context.Context, name, program string) (*hostProcess, error) {
	admin := f.plane.AdminConfig()
	pair, err := tls.X509KeyPair(admin.CertData, admin.KeyData)
	if err != nil {
		return nil, fmt.Errorf("the administrator's certificate: %w", err)
	}
	config, err := clientcmd.LoadFromFile(f.plane.KubeconfigPath())
	if err != nil {
		return nil, err
	}
	var renewals harness.Renewals
	counter, err := apiproxy.StartCounter(apiproxy.Config{BindAddress: "127.0.0.1", Upstream: f.plane.URL(),
		UpstreamCA: f.plane.CAPEM(), CA: f.plane.CA()}, &pair, renewals.Kind)
	if err != nil {
		return nil, fmt.Errorf("start the counter before the API server: %w", err)
	}
	for _, cluster := range config.Clusters {
		cluster.Server = counter.URL()
	}
	kubeconfig := filepath.Join(f.Dir, name+".kubeconfig")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		return nil, errors.Join(err, counter.Close())
	}
	return startHost(ctx, program, filepath.Join(f.Dir, name+".log"), counter,
		hostConfig{Kubeconfig: kubeconfig, EtcdPort: f.members.port, Members: f.Members})
}
