package apiproxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func startCounter(t *testing.T, s *apiServer, certificate *tls.Certificate) *Counter {
	t.Helper()
	c, err := StartCounter(Config{BindAddress: "127.0.0.1", Upstream: s.URL,
		UpstreamCA: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})}, certificate,
		(*Request).Kind)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// clientOf has one connection to the counter.
func clientOf(t *testing.T, c *Counter) *http.Client {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: trusting(t, c.CAPEM()), ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func ask(t *testing.T, ctx context.Context, client *http.Client, method, url, body string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	require.NoError(t, err)
	answer, err := client.Do(r)
	require.NoError(t, err)
	return answer
}

func TestACounterCountsRequestsByKindAndTheBytesOfBothBodies(t *testing.T) {
	s := newAPIServer(t)
	c := startCounter(t, s, nil)
	client := clientOf(t, c)
	want := int64(0)
	for _, r := range [][3]string{
		{"GET", "/api/v1/namespaces/n/pods?labelSelector=a", ""}, {"DELETE", "/api/v1/namespaces/n/pods/etcd-0", "{}"},
		{"PATCH", "/apis/apps/v1/namespaces/n/statefulsets/etcd/status", `{"status":{}}`}, {"GET", "/version", ""},
	} {
		answer := ask(t, t.Context(), client, r[0], c.URL()+r[1], r[2])
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Contains(t, string(body), "quorate-main", "the API server's own answer")
		want += int64(len(r[2]) + len(body))
	}
	require.Equal(t, Counts{Bytes: want, Requests: map[string]int{"list pods": 1, "delete pods": 1,
		"patch statefulsets/status": 1, "": 1}}, c.Read())
}

func TestACounterPassesAWatchOnEventByEventAndCountsItWhileItIsOpen(t *testing.T) {
	s := newAPIServer(t)
	c := startCounter(t, s, nil)
	client := clientOf(t, c)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	answer := ask(t, ctx, client, "GET", c.URL()+"/api/v1/namespaces/n/pods?watch=true", "")
	defer answer.Body.Close()
	s.events <- "an event\n"
	line, err := bufio.NewReader(answer.Body).ReadString('\n')
	require.NoError(t, err, "it does not wait for another event")
	require.Equal(t, Counts{Requests: map[string]int{"watch pods": 1}, Watches: 1, Bytes: int64(len(line))}, c.Read())
	cancel()
	require.Eventually(t, func() bool { return c.Read().Watches == 0 }, 30*time.Second, time.Millisecond)
}

// What many clients cost the API server must not look like what one costs.
func TestEachConnectionOfAClientHasOneOfItsOwnToTheAPIServerWhichEndsWithIt(t *testing.T) {
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	s := newAPIServer(t, func(server *httptest.Server) {
		server.Config.ConnState = func(conn net.Conn, state http.ConnState) {
			mu.Lock()
			defer mu.Unlock()
			if open[conn] = true; state == http.StateClosed {
				delete(open, conn)
			}
		}
	})
	connections := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(open)
	}
	c := startCounter(t, s, nil)
	var clients []*http.Client
	for range 3 {
		client := clientOf(t, c)
		clients = append(clients, client)
		for range 2 {
			require.NoError(t, ask(t, t.Context(), client, "GET", c.URL()+"/version", "").Body.Close())
		}
	}
	require.Equal(t, 3, connections())
	clients[0].CloseIdleConnections()
	require.Eventually(t, func() bool { return connections() == 2 }, 30*time.Second, time.Millisecond)
}

func trusting(t *testing.T, ca []byte) *tls.Config {
	t.Helper()
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(ca))
	return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
}
