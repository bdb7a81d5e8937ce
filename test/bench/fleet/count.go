package fleet

import (
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/sets"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"
)

// Figures are what a process has asked of the API server since it began.
type Figures struct {
	// Requests counts by verb and resource ("list pods"), a watch when it is opened.
	Requests map[string]int
	// Watches is how many watches are open now.
	Watches int
}

// counter counts the requests of all clients of a process.
type counter struct {
	mu      sync.Mutex
	figures Figures
}

func newCounter() *counter { return &counter{figures: Figures{Requests: map[string]int{}}} }

func (c *counter) read() Figures {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Figures{Requests: maps.Clone(c.figures.Requests), Watches: c.figures.Watches}
}

func (c *counter) watching(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.figures.Watches += n
}

var requestInfo = apirequest.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"),
	GrouplessAPIPrefixes: sets.NewString("api")}

// kind names a request as the figures do.
func kind(r *http.Request) string {
	info, err := requestInfo.NewRequestInfo(r)
	if err != nil || !info.IsResourceRequest {
		return strings.ToLower(r.Method) + " " + r.URL.Path
	}
	name := info.Verb + " " + info.Resource
	if info.Subresource != "" {
		name += "/" + info.Subresource
	}
	return name
}

// client is an HTTP client for the API server with a connection of its own, as every process
// has one, whose requests are counted. end closes what it keeps open.
func (c *counter) client(rc *rest.Config) (client *http.Client, end func(), err error) {
	tls, err := rest.TLSConfigFor(rc)
	if err != nil {
		return nil, nil, err
	}
	// client-go's own transport for this configuration would be one for all, and stay.
	transport := utilnet.SetTransportDefaults(&http.Transport{TLSClientConfig: tls, Proxy: rc.Proxy})
	wrapped, err := rest.HTTPWrappersForConfig(rc, &counting{c, transport})
	if err != nil {
		return nil, nil, err
	}
	return &http.Client{Transport: wrapped}, transport.CloseIdleConnections, nil
}

// counting counts what goes over a transport.
type counting struct {
	counter *counter
	next    http.RoundTripper
}

func (t *counting) RoundTrip(r *http.Request) (*http.Response, error) {
	name := kind(r)
	t.counter.mu.Lock()
	t.counter.figures.Requests[name]++
	t.counter.mu.Unlock()
	resp, err := t.next.RoundTrip(r)
	if err == nil && strings.HasPrefix(name, "watch ") && resp.StatusCode == http.StatusOK {
		t.counter.watching(1)
		resp.Body = &watchBody{ReadCloser: resp.Body, ended: sync.OnceFunc(func() { t.counter.watching(-1) })}
	}
	return resp, err
}

// watchBody is the answer to a watch, which is open until it is closed.
type watchBody struct {
	io.ReadCloser
	ended func()
}

func (b *watchBody) Close() error {
	b.ended()
	return b.ReadCloser.Close()
}
