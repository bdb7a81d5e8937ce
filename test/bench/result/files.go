package result

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The files of a run's directory. Every trial has a file of its own that is written when it
// ends, so that a run which is interrupted has lost nothing.
const (
	headerFile = "run.json"
	trialsDir  = "trials"
	trialsEnd  = ".json"
)

// Part is everything of a [Run] but its trials: each is one file of the directory.
type Part string

// The parts.
const (
	Failovers Part = "failovers.json"
	Idles     Part = "idle.json"
	Embeddeds Part = "embedded.json"
	Hosts     Part = "hosts.json"
	Fleets    Part = "fleets.json"
)

// Parts are those that are of one machine each, in the order of the report: all but the fleets.
var Parts = []Part{Failovers, Idles, Embeddeds, Hosts}

// Title is what a part is called in words.
func (p Part) Title() string {
	return map[Part]string{
		Failovers: "failovers", Idles: "idle sidecars", Embeddeds: "the embedded library",
		Hosts: "etcd-backup-restore", Fleets: "fleets",
	}[p]
}

// WriteHeader writes the header of the run in the directory.
func WriteHeader(dir string, h Header) error { return write(filepath.Join(dir, headerFile), h) }

// WritePart writes one part of a run: the slice of the same name in [Run].
func WritePart(dir string, p Part, value any) error {
	return write(filepath.Join(dir, string(p)), value)
}

// WriteTrial writes a trial.
func WriteTrial(dir string, t Trial) error {
	if err := os.MkdirAll(filepath.Join(dir, trialsDir), 0o755); err != nil {
		return err
	}
	return write(filepath.Join(dir, trialsDir, fmt.Sprintf("%03d-%s-%s%s", t.Position, t.Case, t.Arm, trialsEnd)), t)
}

// Read reads a run.
func Read(dir string) (*Run, error) {
	r := &Run{}
	for file, value := range map[string]any{
		headerFile: &r.Header, string(Failovers): &r.Failovers, string(Idles): &r.Idle,
		string(Embeddeds): &r.Embedded, string(Hosts): &r.Hosts, string(Fleets): &r.Fleets,
	} {
		err := read(filepath.Join(dir, file), value)
		switch {
		case errors.Is(err, fs.ErrNotExist) && file == headerFile:
			return nil, fmt.Errorf("%s holds no run of the benchmarks: %w", dir, err)
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
	}
	files, err := os.ReadDir(filepath.Join(dir, trialsDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), trialsEnd) {
			continue
		}
		var t Trial
		if err := read(filepath.Join(dir, trialsDir, f.Name()), &t); err != nil {
			return nil, err
		}
		r.Trials = append(r.Trials, t)
	}
	slices.SortFunc(r.Trials, func(a, b Trial) int { return a.Position - b.Position })
	return r, nil
}

func read(path string, into any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func write(path string, value any) error {
	data, err := json.MarshalIndent(value, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}
