// Command host is a program like etcd-backup-restore, as far as embedding goes: it has its
// own logger, registry, HTTP server, etcd client factory and Kubernetes client, and work of
// its own, and Quorate is one part of it behind one switch. Its only argument is a [spec] in
// JSON.
//
// It ends in an orderly way on SIGTERM, and then looks for goroutines that somebody left
// behind.
package main

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
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/sirupsen/logrus"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/quorate/quorate/coordinator"
)

// Exit codes.
const (
	failed = 4
	leaks  = 5
)

// spec is what the program is told.
type spec struct {
	// Listen is where its own HTTP server serves its metrics.
	Listen string
	// Embed is the switch.
	Embed bool
	// Namespace is that of all clusters.
	Namespace string
	// Clusters are those that it is for, by the name of their StatefulSet: etcd-backup-restore
	// has one.
	Clusters map[string]access
	// LockTTL and RecordDuration are the library's defaults if they are zero.
	LockTTL, RecordDuration time.Duration
	// Promote sets status.currentRevision in the end.
	Promote bool
}

// access is how a cluster is reached, in the words of the harness: harness.Access, without the
// harness and all that it links.
type access struct {
	Kubeconfig    string
	Endpoints     []string
	CA, Cert, Key string
}

func main() { os.Exit(run()) }

func run() int {
	log := logrus.New()
	log.SetFormatter(&logrus.JSONFormatter{})
	var s spec
	if len(os.Args) != 2 {
		log.Error("usage: host SPEC")
		return failed
	}
	if err := json.Unmarshal([]byte(os.Args[1]), &s); err != nil {
		log.Error(err)
		return failed
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	healthy := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "host_healthy",
		Help: "Whether etcd and Kubernetes answered."}, []string{"cluster"})
	registry.MustRegister(healthy)
	server := &http.Server{Addr: s.Listen, Handler: promhttp.HandlerFor(registry, promhttp.HandlerOpts{}),
		ReadHeaderTimeout: time.Second}

	var parts sync.WaitGroup
	var broken atomic.Bool
	part := func(run func() error) {
		parts.Go(func() {
			if err := run(); err != nil {
				log.Error(err)
				broken.Store(true)
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
	for name, a := range s.Clusters {
		clientset, err := kubernetesClient(a)
		if err != nil {
			log.Error(err)
			return failed
		}
		part(func() error { return s.ownWork(ctx, name, a, clientset, healthy.WithLabelValues(name)) })
		if s.Embed {
			part(func() error { return s.embedded(ctx, name, a, clientset, registry, log.WithField("host", "backup")) })
		}
	}
	<-ctx.Done()
	_ = server.Close()
	parts.Wait()
	stop()
	// The connections to the API server are the host's own, and shared by all its parts.
	connections := goleak.IgnoreAnyFunction("golang.org/x/net/http2.(*clientConnReadLoop).run")
	if err := goleak.Find(connections, goleak.IgnoreTopFunction("os/signal.signal_recv"),
		goleak.IgnoreTopFunction("os/signal.loop")); err != nil {
		_, _ = io.WriteString(os.Stderr, err.Error())
		return leaks
	}
	if broken.Load() {
		return failed
	}
	return 0
}

func kubernetesClient(a access) (*kubernetes.Clientset, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", a.Kubeconfig)
	if err != nil {
		return nil, err
	}
	cfg.QPS = -1
	return kubernetes.NewForConfig(cfg)
}

// embedded is all that a host has to write.
func (s *spec) embedded(ctx context.Context, name string, a access, clientset kubernetes.Interface,
	registry prometheus.Registerer, log *logrus.Entry) error {
	c, err := coordinator.New(coordinator.Config{
		Namespace: s.Namespace, StatefulSet: name,
		Dial:         func(endpoints []string) (*clientv3.Client, error) { return a.dial(endpoints, nil) },
		Endpoints:    a.Endpoints,
		StatefulSets: clientset.AppsV1().StatefulSets(s.Namespace), Pods: clientset.CoreV1().Pods(s.Namespace),
		Leases: clientset.CoordinationV1().Leases(s.Namespace), Events: clientset.CoreV1().Events(s.Namespace),
		Gates: []coordinator.Gate{{Name: coordinator.BackupReady, Ask: backups}}, LockTTL: s.LockTTL,
		RecordDuration:         s.RecordDuration,
		PromoteCurrentRevision: s.Promote,
		Metrics:                registry, Log: log,
	})
	if err != nil {
		return err
	}
	return c.Run(ctx)
}

// ownEvery is how often the host does its own work, and ownTimeout how long that may take.
const (
	ownEvery   = 5 * time.Second
	ownTimeout = 2 * time.Second
)

// ownWork is what the host does without Quorate: it asks now and then whether its etcd is well,
// and reads an object of the API server, over clients that it keeps.
func (s *spec) ownWork(ctx context.Context, name string, a access, clientset kubernetes.Interface,
	healthy prometheus.Gauge) error {
	client, err := a.dial(a.Endpoints, zap.NewNop()) // Whatever is logged about etcd comes from the library.
	if err != nil {
		return err
	}
	defer client.Close()
	ticker := time.NewTicker(ownEvery)
	defer ticker.Stop()
	for ctx.Err() == nil {
		asking, cancel := context.WithTimeout(ctx, ownTimeout)
		_, eerr := client.Get(asking, "host")
		_, kerr := clientset.AppsV1().StatefulSets(s.Namespace).Get(asking, name, metav1.GetOptions{})
		cancel()
		healthy.Set(0)
		if eerr == nil && kerr == nil {
			healthy.Set(1)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
	return nil
}

// dial is the host's own factory. Certificates are read for every client. Without a logger it sets as little
// as that of etcd-backup-restore does, and then the client logs to stderr.
func (a access) dial(endpoints []string, log *zap.Logger) (*clientv3.Client, error) {
	cfg := clientv3.Config{Endpoints: endpoints, Logger: log}
	if a.CA != "" {
		tls, err := transport.TLSInfo{TrustedCAFile: a.CA, CertFile: a.Cert, KeyFile: a.Key}.ClientConfig()
		if err != nil {
			return nil, fmt.Errorf("certificates of the host: %w", err)
		}
		cfg.TLS = tls
	}
	return clientv3.New(cfg)
}

// backups is the host's gate.
func backups(context.Context) (pass bool, detail string) { return true, "the last upload succeeded" }
