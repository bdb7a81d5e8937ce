package coordinator

import (
	"context"
	"net"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// FitClientConfig sets what a client for [Dial] should have, in a configuration that the host makes by
// itself: limits for signing in and for connections that went dead, which are the probe timeout
// ([Config.ProbeTimeout]), and a logger that discards everything. A host whose own factory makes such
// clients, and takes no configuration, can do without it: see [Dial].
func FitClientConfig(cfg *clientv3.Config, probeTimeout time.Duration) {
	cfg.DialTimeout, cfg.DialKeepAliveTime, cfg.DialKeepAliveTimeout = probeTimeout, probeTimeout, probeTimeout
	cfg.Logger = zap.NewNop() // Whatever matters comes back as an error.
}

// silenced makes the clients log nothing. By default each has a logger of its own, which writes a line to
// stderr for every request that fails. While members are replaced that is to be expected, and the
// coordinator says itself what matters. All those lines come from the client's own logger, so nothing
// global has to be touched.
//
// Such a logger takes 450 KiB of memory, for what it has to remember to drop lines that repeat. So no part
// of the client may keep it.
func silenced(dial Dial) Dial {
	return func(endpoints []string) (*clientv3.Client, error) {
		client, err := dial(endpoints)
		if err != nil {
			return nil, err
		}
		//nolint:staticcheck // What is said to replace it works only before the client is made.
		client = client.WithLogger(zap.NewNop())
		// These have copied the logger that the client was made with.
		client.Lease, client.Watcher = clientv3.NewLease(client), clientv3.NewWatcher(client)
		client.Maintenance = clientv3.NewMaintenance(client)
		return client, nil
	}
}

// connect opens a plain TCP connection, and closes it. What is refused is an answer as well.
func connect(ctx context.Context, address string) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err == nil {
		_ = conn.Close()
	}
	return err
}
