package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/sirupsen/logrus"
)

// Limits of the HTTP server. It is for a few readers inside the cluster, and none of them may keep it
// busy.
const (
	readTimeout     = 5 * time.Second
	writeTimeout    = 30 * time.Second // It is longer than a read of the Lease may take.
	idleTimeout     = time.Minute
	maxHeaderBytes  = 16 << 10
	shutdownTimeout = time.Second // The lock is released by then, and the pod has seconds left.
)

// newRegistry returns the process's own registry, which also has the metrics of the process.
func newRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return registry
}

// listen opens the port at once. If the port is taken, that is an error at the start, and not a
// surprise to whoever looks for the metrics.
func listen(address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--listen-address: %q: %w", address, err)
	}
	return l, nil
}

// serve answers on the listener until stop is called.
func serve(l net.Listener, h http.Handler, logger *logrus.Entry) (stop func()) {
	server := &http.Server{
		Handler: h, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeaderBytes,
		ErrorLog:       log.New(io.Discard, "", 0), // Mistakes of clients are not logged.
	}
	logger.WithField("address", l.Addr().String()).Info("serving /, /healthz and /metrics")
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			logger.WithError(err).Error("the HTTP server has stopped")
		}
	})
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			server.Close()
		}
		serving.Wait()
	}
}
