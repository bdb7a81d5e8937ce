package coordinator

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	zapobserver "go.uber.org/zap/zaptest/observer"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/quorate/quorate/internal/etcdtest"
)

// The factory of etcd-backup-restore sets no logger, and then every client has one that writes to stderr.
// It is the whole rollout's noise that counts: members hang, refuse requests, and change their leader.
func TestAHostsClientsLogNothingDuringARollout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, lines := zapobserver.New(zapcore.DebugLevel)
		s := newStage(t, 3)
		s.etcd.Log = zap.New(core)
		stop := run(t, s.config(as("etcd-0")))
		s.update("rev-2")
		refused := status.Error(codes.Unavailable, "connection refused")
		s.next(t, "delete etcd-2")
		s.etcd.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) {
			ms[2].ReadErr, ms[2].StatusErr, ms[1].Hung = refused, refused, true
		})
		<-time.After(10 * time.Second)
		s.etcd.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) {
			ms[2].ReadErr, ms[2].StatusErr, ms[1].Hung = nil, nil, false
		})
		within(t, time.Hour, "the rollout", func() bool { return s.settled("rev-2") })
		stop()
		if n := lines.Len(); n > 0 {
			t.Errorf("%d lines, the first of them %v", n, lines.All()[0])
		}

		// The same client in the host's own hands does log. So there was something to hear.
		s.unreachable(1, true)
		client, err := s.etcd.Dial([]string{s.etcd.URL(1)})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := client.Get(ctx, "key"); err == nil || lines.FilterMessageSnippet("failed").Len() == 0 {
			t.Errorf("got %v, and %v", err, lines.All())
		}
	})
}

// A logger of clientv3's own making is large.
func TestNoPartOfAClientKeepsTheHostsLogger(t *testing.T) {
	gone := make(chan struct{})
	dial := silenced(func(endpoints []string) (*clientv3.Client, error) {
		client, err := clientv3.New(clientv3.Config{Endpoints: endpoints})
		if err == nil {
			runtime.AddCleanup(client.GetLogger(), func(struct{}) { close(gone) }, struct{}{})
		}
		return client, err
	})
	client, err := dial([]string{"http://127.0.0.1:2379"})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for range 100 {
		runtime.GC()
		select {
		case <-gone:
			return
		case <-time.After(time.Millisecond):
		}
	}
	t.Error("something keeps it")
}

func TestAConfigurationThatWasMadeFitHasLimitsAndLogsNothing(t *testing.T) {
	cfg := clientv3.Config{Endpoints: []string{"http://127.0.0.1:2379"}, Username: "quorate"}
	FitClientConfig(&cfg, 3*time.Second)
	for name, limit := range map[string]time.Duration{
		"dial": cfg.DialTimeout, "keep-alive": cfg.DialKeepAliveTime, "keep-alive's answer": cfg.DialKeepAliveTimeout,
	} {
		if limit != 3*time.Second {
			t.Errorf("%s: %v", name, limit)
		}
	}
	if cfg.Logger.Core().Enabled(zapcore.FatalLevel) || cfg.Username != "quorate" || len(cfg.Endpoints) != 1 {
		t.Errorf("got %+v", cfg)
	}
}
