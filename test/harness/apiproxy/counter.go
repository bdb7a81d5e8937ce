package apiproxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Counter is a proxy that only counts, for as many clients as there are. It keeps no request, and it leaves what it
// measures as it is: each connection of a client has one of its own to the API server, which ends with it.
//
// Clients may have no tokens. The API server then knows them by the certificate of the proxy.
type Counter struct {
	kind    func(*Request) string
	server  *http.Server
	url     string
	caPEM   []byte
	serving sync.WaitGroup
	clients sync.Map // Their net.Conn leads to a *client.
	sent    atomic.Int64

	mu     sync.Mutex
	counts Counts
}

// Counts are what a [Counter] has counted since it was started.
type Counts struct {
	// Requests are by their kind, a watch when it is opened.
	Requests map[string]int
	// Watches is how many watches are open now.
	Watches int
	// Bytes are those of the bodies of requests and answers, of watches too, as they were sent.
	Bytes int64
}

// StartCounter starts a counter. The certificate may be nil. What kind says of a request is how it is counted.
// It is called for one request at a time.
func StartCounter(config Config, certificate *tls.Certificate, kind func(*Request) string) (*Counter, error) {
	e, err := config.open()
	if err != nil {
		return nil, err
	}
	if certificate != nil {
		e.client.Certificates = []tls.Certificate{*certificate}
	}
	c := &Counter{kind: kind, url: e.url(), caPEM: e.caPEM, counts: Counts{Requests: map[string]int{}}}
	pass := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(e.upstream) },
		Transport:     ofClient{},
		FlushInterval: -1, // A watch's event must not wait for the next one.
		ModifyResponse: func(r *http.Response) error {
			r.Body = counted{r.Body, &c.sent}
			return nil
		},
		// As if the client had asked the API server itself.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ErrorLog:     log.New(io.Discard, "", 0),
	}
	c.server = &http.Server{
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { c.serve(pass, w, r) }),
		ReadHeaderTimeout: headerTimeout, TLSConfig: e.server, ErrorLog: pass.ErrorLog,
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			c.serving.Add(1)
			own := newClient(e.client)
			c.clients.Store(conn, own)
			return context.WithValue(ctx, clientKey{}, own)
		},
		ConnState: func(conn net.Conn, state http.ConnState) {
			if state != http.StateClosed {
				return
			}
			if own, ok := c.clients.LoadAndDelete(conn); ok {
				own.(*client).end()
				c.serving.Done()
			}
		},
	}
	c.serving.Go(func() { _ = c.server.ServeTLS(e.listener, "", "") })
	return c, nil
}

// URL is where the counter listens.
func (c *Counter) URL() string { return c.url }

// CAPEM is the authority of the counter's certificate, PEM-encoded.
func (c *Counter) CAPEM() []byte { return slices.Clone(c.caPEM) }

// Read returns what has been counted so far.
func (c *Counter) Read() Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	counts := c.counts
	counts.Requests, counts.Bytes = maps.Clone(c.counts.Requests), c.sent.Load()
	return counts
}

// Close ends the counter and all its connections, and returns when nothing of it runs any more.
func (c *Counter) Close() error {
	err := c.server.Close()
	c.serving.Wait()
	return err
}

func (c *Counter) serve(pass http.Handler, w http.ResponseWriter, r *http.Request) {
	c.serving.Add(1) // Its connection is counted still, so that nobody has stopped waiting.
	defer c.serving.Done()
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		panic(http.ErrAbortHandler) // The client is gone; nothing has happened.
	}
	c.sent.Add(int64(len(body)))
	request := newRequest(r, body)
	c.count(request)
	if request.Verb == "watch" {
		defer c.unwatch()
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	pass.ServeHTTP(w, r)
}

func (c *Counter) count(request *Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts.Requests[c.kind(request)]++
	if request.Verb == "watch" {
		c.counts.Watches++
	}
}

func (c *Counter) unwatch() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts.Watches--
}

// counted is an answer's body that is counted as it is read.
type counted struct {
	io.ReadCloser
	bytes *atomic.Int64
}

func (b counted) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.bytes.Add(int64(n))
	return n, err
}

// client is the way to the API server of one connection.
type client struct {
	transport *http.Transport

	mu    sync.Mutex
	ended bool
	conns []net.Conn
}

// clientKey finds it in the context of a request.
type clientKey struct{}

// ofClient sends each request its client's way.
type ofClient struct{}

func (ofClient) RoundTrip(r *http.Request) (*http.Response, error) {
	return r.Context().Value(clientKey{}).(*client).transport.RoundTrip(r)
}

func newClient(config *tls.Config) *client {
	c := &client{}
	c.transport = &http.Transport{
		TLSClientConfig: config.Clone(), DialContext: c.dial, TLSHandshakeTimeout: headerTimeout,
		// Encodings are the clients' to choose.
		ForceAttemptHTTP2: true, DisableCompression: true,
	}
	return c
}

func (c *client) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{KeepAlive: 30 * time.Second}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		_ = conn.Close()
		return nil, net.ErrClosed
	}
	c.conns = append(c.conns, conn)
	return conn, nil
}

// end closes what the client has open. Whatever is asked still is given up.
func (c *client) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	for _, conn := range c.conns {
		_ = conn.Close()
	}
	c.conns = nil
}
