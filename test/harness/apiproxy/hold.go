package apiproxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
)

// Held is one request that a test has in its hands, or waits for.
type Held struct {
	proxy *Proxy
	match Match

	// reached is closed when a request has been caught; the four are set before.
	reached  chan struct{}
	request  *Request
	record   *Record
	incoming *http.Request
	// gone is closed when the client has given up.
	gone <-chan struct{}

	once    sync.Once
	verdict chan answer // what the client gets

	mu        sync.Mutex
	forwarded *answer
}

// Hold catches the next request that matches. It stays where it is, neither forwarded
// nor answered, until the test decides; when the context ends it is dropped.
//
// One hold catches one request. Of several holds that match, the oldest catches it.
func (p *Proxy) Hold(ctx context.Context, match Match) *Held {
	h := &Held{proxy: p, match: match, reached: make(chan struct{}), verdict: make(chan answer, 1)}
	p.mu.Lock()
	p.held = append(p.held, h)
	p.mu.Unlock()
	context.AfterFunc(ctx, h.Drop)
	return h
}

// serve keeps the request until there is a verdict. It goes on when the client has gone.
func (h *Held) serve(w http.ResponseWriter, r *http.Request, request *Request, record *Record) {
	h.request, h.record, h.incoming, h.gone = request, record, r, r.Context().Done()
	close(h.reached)
	select {
	case a := <-h.verdict:
		h.proxy.write(w, record, a)
	case <-h.proxy.closing:
		panic(http.ErrAbortHandler)
	}
}

// Reached waits until a request has been caught, and returns it.
func (h *Held) Reached(ctx context.Context) (*Request, error) {
	select {
	case <-h.reached:
		return h.request, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for a request to hold: %w", context.Cause(ctx))
	}
}

// Gone waits until the client has given up: its deadline has passed, or it is dead. (The
// kernel speaks for a client that is stopped, so that one does not seem to be gone.)
func (h *Held) Gone(ctx context.Context) error {
	if _, err := h.Reached(ctx); err != nil {
		return err
	}
	select {
	case <-h.gone:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait until the client has given up: %w", context.Cause(ctx))
	}
}

// Forward sends the request to the API server, whether or not its client still waits, and
// returns the status code of the answer. The client does not get it yet.
func (h *Held) Forward(ctx context.Context) (int, error) {
	request, err := h.Reached(ctx)
	if err != nil {
		return 0, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.forwarded != nil {
		return 0, errors.New("the request has been forwarded already")
	}
	a, err := h.proxy.forward(ctx, h.incoming, h.record)
	if err != nil {
		return 0, fmt.Errorf("forward the request that was held (%s): %w", request, err)
	}
	h.forwarded = &a
	return a.status, nil
}

// Answer gives the client the answer that Forward got. Before Forward it is the same as
// Drop.
func (h *Held) Answer() {
	h.mu.Lock()
	var a answer
	if h.forwarded != nil {
		a = *h.forwarded
	}
	h.mu.Unlock()
	h.decide(a)
}

// Release is Forward and Answer.
func (h *Held) Release(ctx context.Context) (int, error) {
	status, err := h.Forward(ctx)
	h.Answer()
	return status, err
}

// Refuse answers with an error of the status code, whatever the API server has said.
func (h *Held) Refuse(status int) { h.decide(refusal(status)) }

// Drop breaks the client's connection instead of answering. Dropping what has been
// decided already does nothing; a hold that has caught nothing catches nothing any more.
func (h *Held) Drop() { h.decide(answer{}) }

func (h *Held) decide(a answer) {
	h.proxy.mu.Lock()
	h.proxy.held = slices.DeleteFunc(h.proxy.held, func(other *Held) bool { return other == h })
	h.proxy.mu.Unlock()
	h.once.Do(func() { h.verdict <- a })
}
