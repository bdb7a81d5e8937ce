package scenarios

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/sirupsen/logrus"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/quorate/quorate/coordinator"
	"github.com/quorate/quorate/pkg/report"
	"github.com/quorate/quorate/pkg/rollout"
	"github.com/quorate/quorate/test/harness"
)

// hostConfig is the variable that makes the test binary a host program, and what it runs.
const hostConfig = "QUORATE_TEST_HOST"

// hostSpec is what the host program is told.
type hostSpec struct {
	// Listen is where its own HTTP server serves its own metrics.
	Listen   string
	Clusters map[string]harness.Access
}

// Exit codes of the host program.
const (
	hostFailed = 4
	hostLeaks  = 5
)

// host is a program like etcd-backup-restore, as far as embedding goes: it has its own
// logger, registry, HTTP server and etcd client factory, and Quorate is one part of it, here
// even for two clusters. It ends in an orderly way on SIGTERM, and then looks for goroutines
// that somebody left behind.
func host(config string) int {
	log := logrus.New()
	log.SetFormatter(&logrus.JSONFormatter{})
	var spec hostSpec
	if err := json.Unmarshal([]byte(config), &spec); err != nil {
		log.Error(err)
		return hostFailed
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	registry := prometheus.NewRegistry()
	server := &http.Server{Addr: spec.Listen, Handler: promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), ReadHeaderTimeout: time.Second}
	var parts sync.WaitGroup
	var failed atomic.Bool
	part := func(run func() error) {
		parts.Go(func() {
			if err := run(); err != nil {
				log.Error(err)
				failed.Store(true)
				stop()
			}
		})
	}
	part(func() error {
		if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	for name, access := range spec.Clusters {
		cfg, err := clientcmd.BuildConfigFromFlags("", access.Kubeconfig)
		if err != nil {
			log.Error(err)
			return hostFailed
		}
		clientset, err := kubernetes.NewForConfig(cfg)
		if err != nil {
			log.Error(err)
			return hostFailed
		}
		part(func() error { return embedded(ctx, name, access, clientset, registry, log.WithField("host", "backup")) })
	}
	<-ctx.Done()
	_ = server.Close()
	parts.Wait()
	stop()
	// The connections to the API server are the host's own, and shared by all its parts.
	connections := goleak.IgnoreAnyFunction("golang.org/x/net/http2.(*clientConnReadLoop).run")
	if err := goleak.Find(connections, goleak.IgnoreTopFunction("os/signal.signal_recv"), goleak.IgnoreTopFunction("os/signal.loop")); err != nil {
		_, _ = io.WriteString(os.Stderr, err.Error())
		return hostLeaks
	}
	if failed.Load() {
		return hostFailed
	}
	return 0
}

// embedded is all that a host has to write.
func embedded(ctx context.Context, name string, access harness.Access, clientset kubernetes.Interface, registry prometheus.Registerer, log *logrus.Entry) error {
	c, err := coordinator.New(coordinator.Config{
		Namespace: harness.Namespace, StatefulSet: name,
		Dial: dialer(access), Endpoints: access.Endpoints,
		StatefulSets: clientset.AppsV1().StatefulSets(harness.Namespace), Pods: clientset.CoreV1().Pods(harness.Namespace),
		Leases: clientset.CoordinationV1().Leases(harness.Namespace), Events: clientset.CoreV1().Events(harness.Namespace),
		Gates: backups, LockTTL: lockTTL, RecordDuration: recordDuration,
		PromoteCurrentRevision: true,
		Metrics:                registry, Log: log,
	})
	if err != nil {
		return err
	}
	return c.Run(ctx)
}

// dialer is the host's own factory: certificates are read for every client.
func dialer(access harness.Access) func([]string) (*clientv3.Client, error) {
	return func(endpoints []string) (*clientv3.Client, error) {
		cfg := clientv3.Config{Endpoints: endpoints, DialTimeout: 2 * time.Second, Logger: zap.NewNop()}
		if access.CA != "" {
			tls, err := transport.TLSInfo{TrustedCAFile: access.CA, CertFile: access.Cert, KeyFile: access.Key}.ClientConfig()
			if err != nil {
				return nil, fmt.Errorf("certificates of the host: %w", err)
			}
			cfg.TLS = tls
		}
		return clientv3.New(cfg)
	}
}

// backups is the host's gate.
func backups(context.Context) []rollout.Gate {
	return []rollout.Gate{{Name: report.GateBackup, Pass: true, Detail: "the last upload succeeded"}}
}
