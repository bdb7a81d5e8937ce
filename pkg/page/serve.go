package page

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
)

// Limits of the HTTP server.
const (
	readTimeout     = 5 * time.Second
	writeTimeout    = 30 * time.Second // It is longer than a read of the Lease may take.
	idleTimeout     = time.Minute
	maxHeaderBytes  = 16 << 10
	shutdownTimeout = time.Second // The lock is released by then, and the pod has seconds left.
)

// Serve answers on the listener until stop is called, for a host whose own server takes no handler. It is for a few
// readers inside the cluster, and none of them may keep it busy.
func Serve(l net.Listener, h http.Handler, logger *logrus.Entry) (stop func()) {
	server := &http.Server{
		Handler: h, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeaderBytes,
		ErrorLog:       log.New(io.Discard, "", 0), // Mistakes of clients are not logged.
	}
	logger.WithField("address", l.Addr().String()).Info("serving the status page")
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
