// Package apiproxy stands between the sidecars of the harness and the API server: it
// writes down what each of them asks and is answered, and lets a test get in the way of
// a single request, at any of the moments at which a sidecar can be killed, stopped or
// cut off:
//
//	held := proxy.Hold(ctx, func(r *apiproxy.Request) bool { return r.Removes() && r.Pod == "main-1" })
//	r, err := held.Reached(ctx)      // the sidecar waits for its answer
//	status, err := held.Forward(ctx) // the API server has answered, the sidecar does not know
//	held.Answer()                    // now it knows; or Drop: it never will
//
// A held request outlives the client that sent it, as a packet does that is under way
// when its sender is killed: it can be forwarded at any time later.
//
// The proxy has no rights of its own. It passes on the bearer token of the client, so that
// RBAC decides as it does without a proxy, and it knows the client by the same token:
// the token of a pod's ServiceAccount names the pod and its UID.
package apiproxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/quorate/quorate/test/harness/pki"
)

const (
	// maxBody bounds what is kept of a request; nothing that a sidecar sends is near.
	maxBody = 1 << 20
	// headerTimeout gets rid of clients that connect and say nothing.
	headerTimeout = 10 * time.Second
)

// Config says where to listen and where to.
type Config struct {
	// BindAddress is the IP address at which the sidecars reach the proxy. Required.
	BindAddress string
	// Port is a free one if it is 0.
	Port int
	// Upstream is the URL of the API server and UpstreamCA its authority (PEM). Required.
	Upstream   string
	UpstreamCA []byte
	// CA issues the proxy's certificate. Optional: without it the proxy makes one of its own.
	CA *pki.CA
	// OnAnswer is told of every request that has been answered, or given up; of a watch
	// when it ends. It must return soon. Optional.
	OnAnswer func(Record)
}

// Proxy is a running proxy. Its methods may be called from any goroutine.
type Proxy struct {
	config    Config
	upstream  *url.URL
	transport *http.Transport
	server    *http.Server
	url       string
	caPEM     []byte
	// serving counts what runs, closing ends what is held.
	serving sync.WaitGroup
	closing chan struct{}

	mu      sync.Mutex
	closed  bool
	records []*Record
	held    []*Held
	rules   []*rule
}

// Match chooses requests. It must not change the request.
type Match func(*Request) bool

// rule gets in the way of every request that matches: it delays it, or refuses it.
type rule struct {
	match  Match
	delay  time.Duration // 0: it is refused
	status int
}

// Start starts a proxy. The error names the field of Config that is wrong.
func Start(config Config) (*Proxy, error) {
	e, err := config.open()
	if err != nil {
		return nil, fmt.Errorf("start API proxy: %w", err)
	}
	p := &Proxy{
		config: config, upstream: e.upstream, caPEM: e.caPEM, closing: make(chan struct{}), url: e.url(),
		transport: &http.Transport{
			TLSClientConfig: e.client,
			// As the sidecars themselves would; encodings are theirs to choose.
			ForceAttemptHTTP2: true, DisableCompression: true,
		},
	}
	p.server = &http.Server{
		Handler: http.HandlerFunc(p.serve), ReadHeaderTimeout: headerTimeout,
		TLSConfig: e.server,
		// Clients that are killed are this proxy's daily bread.
		ErrorLog: log.New(io.Discard, "", 0),
	}
	p.serving.Go(func() { _ = p.server.ServeTLS(e.listener, "", "") })
	return p, nil
}

// ends are where a proxy listens and where it sends to.
type ends struct {
	upstream       *url.URL
	client, server *tls.Config
	listener       net.Listener
	caPEM          []byte
}

func (e ends) url() string { return "https://" + e.listener.Addr().String() }

// open listens.
func (c Config) open() (e ends, err error) {
	if e.upstream, err = url.Parse(c.Upstream); err != nil || e.upstream.Scheme != "https" {
		return e, fmt.Errorf("Config.Upstream %q is not an https URL", c.Upstream)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(c.UpstreamCA) {
		return e, errors.New("Config.UpstreamCA holds no certificate in PEM")
	}
	e.client = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	address := net.ParseIP(c.BindAddress)
	if address == nil {
		return e, fmt.Errorf("Config.BindAddress %q is not an IP address", c.BindAddress)
	}
	ca := c.CA
	if ca == nil {
		if ca, err = pki.NewCA("api-proxy"); err != nil {
			return e, err
		}
	}
	e.caPEM = ca.CertPEM()
	cert, key, err := ca.Issue(pki.Request{CommonName: "api-proxy", IPs: []net.IP{address}, Server: true})
	if err != nil {
		return e, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return e, err
	}
	e.server = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	if e.listener, err = net.Listen("tcp", net.JoinHostPort(c.BindAddress, strconv.Itoa(c.Port))); err != nil {
		return e, fmt.Errorf("Config.BindAddress: %w", err)
	}
	return e, nil
}

// URL is where the proxy listens.
func (p *Proxy) URL() string { return p.url }

// CAPEM is the authority of the proxy's certificate, PEM-encoded.
func (p *Proxy) CAPEM() []byte { return slices.Clone(p.caPEM) }

// Close ends the proxy: open requests are dropped, those that are held too. Closing
// twice does nothing.
func (p *Proxy) Close(ctx context.Context) error {
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		close(p.closing)
	}
	p.mu.Unlock()
	err := p.server.Close()
	done := make(chan struct{})
	go func() {
		p.serving.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		return fmt.Errorf("close API proxy: some requests have not ended: %w", ctx.Err())
	}
	p.transport.CloseIdleConnections()
	return err
}

// Refuse answers every request that matches with an error, without forwarding it, until
// stop is called. The status is an HTTP status code; 0 breaks the connection instead, as
// an API server does that is gone.
func (p *Proxy) Refuse(match Match, status int) (stop func()) {
	return p.rule(&rule{match: match, status: status})
}

// Delay keeps every request that matches for a while before it is forwarded, until stop is
// called. As on a slow network, a request goes on its way even if its client has given up
// meanwhile.
func (p *Proxy) Delay(match Match, delay time.Duration) (stop func()) {
	return p.rule(&rule{match: match, delay: delay})
}

func (p *Proxy) rule(r *rule) (stop func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append(p.rules, r)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.rules = slices.DeleteFunc(p.rules, func(other *rule) bool { return other == r })
	}
}

// enter counts a request in, because a server does not wait for its handlers when it
// closes. It returns false when the proxy is closed.
func (p *Proxy) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.serving.Add(1)
	return true
}

func (p *Proxy) serve(w http.ResponseWriter, r *http.Request) {
	if !p.enter() {
		panic(http.ErrAbortHandler)
	}
	defer p.serving.Done()
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		panic(http.ErrAbortHandler) // The client is gone; nothing has happened.
	}
	request := newRequest(r, body)
	record := p.begin(request)
	defer p.end(record)

	held, rule := p.route(request)
	ctx := r.Context()
	if rule != nil && rule.delay > 0 {
		p.keep(rule.delay)
		ctx = context.WithoutCancel(ctx)
	}
	switch {
	case held != nil:
		held.serve(w, r, request, record)
	case rule != nil && rule.delay == 0:
		p.write(w, record, refusal(rule.status))
	case request.Verb == "watch":
		p.stream(w, r, record)
	default:
		a, err := p.forward(ctx, r, record)
		if err != nil {
			panic(http.ErrAbortHandler) // As if the client had asked the API server itself.
		}
		p.write(w, record, a)
	}
}

// keep waits, and gives up the request when the proxy closes.
func (p *Proxy) keep(delay time.Duration) {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.closing:
		panic(http.ErrAbortHandler)
	}
}

// route finds out what is to be done with a request. A hold takes one request and is
// then used up.
func (p *Proxy) route(request *Request) (*Held, *rule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, h := range p.held {
		if h.match(request) {
			p.held = slices.Delete(p.held, i, i+1)
			return h, nil
		}
	}
	for _, r := range p.rules {
		if r.match(request) {
			return nil, r
		}
	}
	return nil, nil
}

// answer is a whole response.
type answer struct {
	status int // 0: none, the connection breaks
	header http.Header
	body   []byte
}

// refusal is an answer of the proxy's own, in the words of an API server.
func refusal(status int) answer {
	a := answer{status: status, header: http.Header{"Content-Type": {"application/json"}}}
	if status != 0 {
		a.body = fmt.Appendf(nil,
			`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"refused by the harness","code":%d}`,
			status)
	}
	return a
}

// outgoing is the client's request as it goes to the API server, bearer token included.
func (p *Proxy) outgoing(ctx context.Context, r *http.Request, body []byte) *http.Request {
	out := r.Clone(ctx)
	out.URL.Scheme, out.URL.Host = p.upstream.Scheme, p.upstream.Host
	out.Host, out.RequestURI = "", ""
	out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	for _, hop := range []string{"Connection", "Keep-Alive", "Te", "Transfer-Encoding", "Upgrade"} {
		out.Header.Del(hop)
	}
	return out
}

// forward asks the API server and reads its whole answer.
func (p *Proxy) forward(ctx context.Context, r *http.Request, record *Record) (answer, error) {
	p.passing(record)
	response, err := p.transport.RoundTrip(p.outgoing(ctx, r, record.Body))
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	p.judged(record, response.StatusCode)
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return answer{}, err
	}
	return answer{status: response.StatusCode, header: response.Header, body: content}, nil
}

// write gives the client its answer.
func (p *Proxy) write(w http.ResponseWriter, record *Record, a answer) {
	if a.status == 0 {
		panic(http.ErrAbortHandler)
	}
	p.answered(record, a.status)
	for name, values := range a.header {
		w.Header()[name] = values
	}
	w.WriteHeader(a.status)
	p.sent(record, len(a.body))
	_, _ = w.Write(a.body) // A client that is gone misses it.
}

// stream passes a watch on, event by event.
func (p *Proxy) stream(w http.ResponseWriter, r *http.Request, record *Record) {
	p.passing(record)
	response, err := p.transport.RoundTrip(p.outgoing(r.Context(), r, nil))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer response.Body.Close()
	p.judged(record, response.StatusCode)
	p.answered(record, response.StatusCode)
	for name, values := range response.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(response.StatusCode)
	flush := http.NewResponseController(w)
	buffer := make([]byte, 32<<10)
	for {
		_ = flush.Flush() // Fails only when the client is gone, which the next write tells.
		n, err := response.Body.Read(buffer)
		if n > 0 {
			p.sent(record, n)
			if _, err := w.Write(buffer[:n]); err != nil {
				return
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return
		case err != nil:
			panic(http.ErrAbortHandler)
		}
	}
}
