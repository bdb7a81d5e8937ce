package node

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	kubeprobe "k8s.io/kubernetes/pkg/probe"
	kubehttp "k8s.io/kubernetes/pkg/probe/http"

	"github.com/quorate/quorate/test/harness/process"
)

// probeOutput is how much of an exec probe's output is kept for messages, in bytes.
const probeOutput = 1 << 10

// execOutput is the same for [Agent.Exec]: more than anybody prints.
const execOutput = 1 << 20

// prober asks one running container whether it is ready.
type prober struct {
	container *corev1.Container
	podIP     string
	dial      func(ctx context.Context, network, address string) (net.Conn, error)
	exec      func(ctx context.Context) (exitCode int, output string, err error)
}

// probe asks once. An error means that the probe itself could not be made; a kubelet
// takes no notice of such a result.
func (p prober) probe(ctx context.Context) (ready bool, message string, err error) {
	spec := p.container.ReadinessProbe
	timeout := seconds(spec.TimeoutSeconds, 1)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	switch {
	case spec.HTTPGet != nil:
		return p.httpGet(ctx, spec.HTTPGet)
	case spec.Exec != nil:
		code, output, err := p.exec(ctx)
		switch {
		case err != nil:
			return false, "", err
		case ctx.Err() != nil:
			return false, fmt.Sprintf("command timed out after %s", timeout), nil
		case code != 0:
			return false, fmt.Sprintf("exit code %d: %s", code, output), nil
		default:
			return true, "", nil
		}
	default:
		return false, "", fmt.Errorf("readinessProbe of container %s has no handler", p.container.Name)
	}
}

func (p prober) httpGet(ctx context.Context, action *corev1.HTTPGetAction) (bool, string, error) {
	request, err := kubehttp.NewRequestForHTTPGetAction(action, p.container, p.podIP, "probe")
	if err != nil {
		return false, "", err
	}
	client := &http.Client{
		CheckRedirect: kubehttp.RedirectChecker(false),
		Transport: &http.Transport{
			// As a kubelet: no proxy, a connection for every probe, any certificate.
			DisableKeepAlives:  true,
			DisableCompression: true,
			DialContext:        p.dial,
			TLSClientConfig:    &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // It knows the pod by address.
		},
	}
	result, message, err := kubehttp.DoHTTPProbe(request.WithContext(ctx), client)
	if err != nil {
		return false, "", err
	}
	if result == kubeprobe.Success || result == kubeprobe.Warning {
		message = ""
	}
	return result == kubeprobe.Success || result == kubeprobe.Warning, message, nil
}

// threshold turns single results into a state: it takes a number of equal results in a
// row to change it.
type threshold struct {
	success, failure int
	ready            bool
	last             bool
	run              int
}

func newThreshold(spec *corev1.Probe) *threshold {
	return &threshold{success: max(1, int(spec.SuccessThreshold)), failure: atLeast(int(spec.FailureThreshold), 3)}
}

// add takes a result into account and reports whether the state has changed.
func (t *threshold) add(ok bool) (changed bool) {
	if ok != t.last {
		t.last, t.run = ok, 0
	}
	t.run++
	if ok == t.ready || ok && t.run < t.success || !ok && t.run < t.failure {
		return false
	}
	t.ready = ok
	return true
}

// watch probes until the context ends, and reports every change of the state.
func (p prober) watch(ctx context.Context, changed func(ready bool, message string)) {
	spec := p.container.ReadinessProbe
	state := newThreshold(spec)
	delay := time.NewTimer(seconds(spec.InitialDelaySeconds, 0))
	defer delay.Stop()
	select {
	case <-ctx.Done():
		return
	case <-delay.C:
	}
	ticker := time.NewTicker(seconds(spec.PeriodSeconds, 10))
	defer ticker.Stop()
	for {
		ready, message, err := p.probe(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil && state.add(ready) {
			changed(ready, message)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// seconds converts a field of a probe. The API server fills in the defaults; they are
// repeated here for objects that did not come from one.
func seconds(value int32, byDefault int) time.Duration {
	return time.Duration(atLeast(int(value), byDefault)) * time.Second
}

func atLeast(value, byDefault int) int {
	if value <= 0 {
		return byDefault
	}
	return value
}

// runInContainer runs one more program in a running container: with its environment, network and files,
// killed when the context ends.
func runInContainer(ctx context.Context, name string, line commandLine, argv []string, output *head) (int, error) {
	spec := line.spec(name, argv)
	spec.Log = output
	p, err := process.Start(spec)
	if err != nil {
		return 0, err
	}
	select {
	case <-p.Done():
	case <-ctx.Done():
		_ = p.Signal(syscall.SIGKILL)
		<-p.Done()
	}
	return p.ExitCode(), nil
}

// head keeps the first bytes that are written to it.
type head struct {
	limit  int
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (h *head) Write(data []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.buffer.Write(data[:min(len(data), h.limit-h.buffer.Len())])
	return len(data), nil
}

func (h *head) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.TrimSpace(h.buffer.String())
}
