// Package soak keeps what sidecars occupy while chaos goes on around them for hours, and says whether any of it grows.
//
// What grows is not seen in a sidecar that a rollout replaces after a minute. So a [Run] has sidecars that live through
// all of it, and looks at everything every few seconds.
package soak

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// Run is what was seen in a run.
type Run struct {
	// Seed is that of the chaos, and Began is when it did.
	Seed  uint64
	Began time.Time
	// Cluster says what kind of cluster it was.
	Cluster string
	Looks   []Look
	// Chaos is what else the run has to tell. It is empty if the run did not come to its end.
	Chaos json.RawMessage
}

// Look is what was seen at one moment.
type Look struct {
	// Seconds have passed since the run began.
	Seconds float64
	// Sidecars are those that answered. One that is halted or cut off does not.
	Sidecars []Sidecar
	// Leases are those in etcd, nil if it did not answer.
	Leases *Leases `json:",omitempty"`
}

// Sidecar is what one process occupied.
type Sidecar struct {
	// Pod and PID say which process this is.
	Pod string
	PID int
	// Lasts is true for one that no rollout and no fault ends.
	Lasts bool `json:",omitempty"`
	// Role is what it did.
	Role Role
	// Anonymous is the resident memory that it allocated itself, and Heap what Go's heap holds, garbage included.
	// Both are MiB.
	Anonymous, Heap float64
	// Connections are its open sockets, those that it listens on included.
	Goroutines, Connections int
}

// Leases are those in etcd, whoever they belong to.
type Leases struct {
	// Running is how many sidecars ran at that moment. Each may have a lease.
	Running int
	// All are the leases, and Bare those that no key hangs on.
	All, Bare int
}

// line is a line of a file: one of its fields is set.
type line struct {
	Run   *Run            `json:",omitempty"`
	Look  *Look           `json:",omitempty"`
	Chaos json.RawMessage `json:",omitempty"`
}

// File takes a run while it goes on, so that nothing is lost when it is interrupted.
type File struct {
	file *os.File
	json *json.Encoder
}

// Create begins the file of a run, of which only the head counts. It makes the folder, too.
func Create(path string, head Run) (*File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	f := &File{file: file, json: json.NewEncoder(file)}
	if err := f.json.Encode(line{Run: &head}); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return f, nil
}

// Add adds a look.
func (f *File) Add(l Look) error { return f.json.Encode(line{Look: &l}) }

// Close ends the file with what else the run has to tell.
func (f *File) Close(chaos any) error {
	text, err := json.Marshal(chaos)
	if err == nil {
		err = f.json.Encode(line{Chaos: text})
	}
	return errors.Join(err, f.file.Close())
}

// Read reads a run from its file, which may have been compressed (.gz). The last line of one that was interrupted may
// be cut off.
func Read(path string) (*Run, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var content io.Reader = file
	if filepath.Ext(path) == ".gz" {
		if content, err = gzip.NewReader(file); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	var run *Run
	lines := bufio.NewScanner(content)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		var l line
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			if !lines.Scan() && run != nil {
				break
			}
			return nil, fmt.Errorf("%s, line %d: %w", path, n, err)
		}
		switch {
		case l.Run != nil:
			run = l.Run
		case run == nil:
			return nil, fmt.Errorf("%s does not begin with the head of a run", path)
		case l.Look != nil:
			run.Looks = append(run.Looks, *l.Look)
		default:
			run.Chaos = l.Chaos
		}
	}
	if run == nil {
		return nil, fmt.Errorf("%s is empty", path)
	}
	return run, lines.Err()
}

// Hours is how long the run was.
func (r *Run) Hours() float64 {
	if len(r.Looks) == 0 {
		return 0
	}
	return r.Looks[len(r.Looks)-1].Seconds / time.Hour.Seconds()
}
