package kubelet

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate/quorate/test/harness/node"
)

// logs copies the logs of all containers to where the harness looks for them, without what the runtime puts before each
// line. They stay there when their pods are gone.
type logs struct {
	// from are the folders of the nodes, to is that of the copies.
	to   string
	open map[string]*logCopy
}

// logCopy is the log of one run of a container.
type logCopy struct {
	file *os.File
	in   *bufio.Reader
	out  *os.File
	// rest is the beginning of a line whose end has not been written yet.
	rest []byte
}

// look copies what is new in the logs of some nodes.
func (l *logs) look(nodes []string) error {
	var errs []error
	seen := map[string]bool{}
	for _, node := range nodes {
		paths, _ := filepath.Glob(filepath.Join(node, logDir, "pods/*/*/*.log")) // The pattern is ours.
		for _, path := range paths {
			seen[path] = true
			if l.open[path] != nil {
				continue
			}
			c, err := l.begin(path)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			l.open[path] = c
		}
	}
	for path, c := range l.open {
		errs = append(errs, c.copy())
		if !seen[path] { // It was removed, and has been read to its end.
			errs = append(errs, c.close())
			delete(l.open, path)
		}
	}
	return errors.Join(errs...)
}

// begin opens a log, <namespace>_<pod>_<uid>/<container>/<run>.log, and its copy.
func (l *logs) begin(path string) (*logCopy, error) {
	parts := strings.Split(path, "/")
	names := strings.Split(parts[len(parts)-3], "_")
	if len(names) != 3 {
		return nil, fmt.Errorf("%s is not where logs are expected", path)
	}
	to := filepath.Join(l.to, names[1],
		node.ShortUID(types.UID(names[2]))+"-"+parts[len(parts)-2]+"-"+parts[len(parts)-1])
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return nil, err
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &logCopy{file: file, in: bufio.NewReader(file), out: out}, nil
}

// copy copies all complete lines.
func (c *logCopy) copy() error {
	for {
		part, err := c.in.ReadBytes('\n')
		c.rest = append(c.rest, part...)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		// A line is: time, stream, F or P for one that goes on in the next, text.
		fields := bytes.SplitN(c.rest, []byte(" "), 4)
		if len(fields) == 4 {
			text := fields[3]
			if string(fields[2]) == "P" {
				text = bytes.TrimSuffix(text, []byte("\n"))
			}
			if _, err := c.out.Write(text); err != nil {
				return err
			}
		}
		c.rest = c.rest[:0]
	}
}

func (c *logCopy) close() error { return errors.Join(c.file.Close(), c.out.Close()) }
