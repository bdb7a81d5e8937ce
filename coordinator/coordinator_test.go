package coordinator

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/quorate/quorate/internal/etcdtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func config(k *kube, changes ...func(*Config)) Config {
	cfg := Config{
		Namespace: "ns", StatefulSet: "etcd", Dial: k.etcd.Dial, Endpoints: []string{k.etcd.URL(0)},
		StatefulSets: k, Pods: kubePods{k},
	}
	for _, change := range changes {
		change(&cfg)
	}
	return cfg
}

// run starts a coordinator; the function that it returns ends it and waits.
func run(t *testing.T, cfg Config) (stop func()) {
	t.Helper()
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	return func() {
		t.Helper()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
}

func TestTmp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
		k.update("rev-2")
		b := time.Now()
		stop := run(t, config(k))
		for i := 0; i < 300 && !k.settled("rev-2"); i++ {
			<-time.After(time.Second)
		}
		t.Log(k.story(), time.Since(b))
		stop()
	})
}
