package controlplane

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
)

const (
	// Ports are taken from below the range from which the kernel serves outgoing
	// connections (32768 and up), so that a port does not get lost while its server is
	// stopped.
	lowestPort, highestPort = 10000, 29999
	portAttempts            = 200

	// tailLines and tailBytes bound what an error quotes of a log.
	tailLines = 20
	tailBytes = 16 << 10
)

// probeHTTP returns a probe that is content with status 200 of a GET and the words in its answer.
func probeHTTP(url string, client *http.Client, words string) func(context.Context) error {
	if client == nil {
		// Without keep-alive no idle connection outlives the probe.
		client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	}
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(io.LimitReader(response.Body, tailBytes))
		if err != nil {
			return err
		}
		if response.StatusCode != http.StatusOK || !strings.Contains(string(body), words) {
			return fmt.Errorf("GET %s: %s: %s", url, response.Status, strings.TrimSpace(string(body)))
		}
		return nil
	}
}

// freePorts returns distinct ports that are free at the address.
func freePorts(address string, count int) ([]string, error) {
	var ports []string
	var last error
	for range portAttempts {
		port := strconv.Itoa(lowestPort + rand.IntN(highestPort-lowestPort+1))
		listener, err := net.Listen("tcp", net.JoinHostPort(address, port))
		if err != nil {
			last = err
			continue
		}
		// Held until all are found, so that none is found twice.
		defer listener.Close()
		if ports = append(ports, port); len(ports) == count {
			return ports, nil
		}
	}
	return nil, fmt.Errorf("find %d free ports at Config.BindAddress %s: %w; give an address of this machine",
		count, address, last)
}

// logTail returns the last lines of a log, to be appended to an error.
func logTail(path string) string {
	file, err := os.Open(path)
	if err != nil {
		return "; no log: " + err.Error()
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.Size() > tailBytes {
		if _, err := file.Seek(-tailBytes, io.SeekEnd); err != nil {
			return "; no log: " + err.Error()
		}
	}
	content, err := io.ReadAll(io.LimitReader(file, tailBytes))
	if err != nil {
		return "; no log: " + err.Error()
	}
	lines := strings.Split(strings.TrimRight(string(content), "\n"), "\n")
	lines = lines[max(0, len(lines)-tailLines):]
	return fmt.Sprintf("; the end of %s:\n  %s", path, strings.Join(lines, "\n  "))
}
