// Package report judges what the benchmarks measured, and turns it into what people read: results.md, with the targets
// and a table, and results.json.gz for programs. Every figure and every verdict is computed from the run; nothing is
// written here that could be wrong for another one.
package report

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/quorate/quorate/test/bench/result"
)

// The files that [Write] writes.
const (
	markdownFile = "results.md"
	dataFile     = "results.json.gz"
)

// Report is a run with the verdicts on it. It is results.json.gz.
type Report struct {
	// Targets comes first, because it is the answer.
	Targets []Target    `json:"targets"`
	Run     *result.Run `json:"run"`
}

// Read reads the report in a directory, as [Write] has written it.
func Read(dir string) (r *Report, err error) {
	file, err := os.Open(filepath.Join(dir, dataFile))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	z, err := gzip.NewReader(file)
	if err == nil {
		err = json.NewDecoder(z).Decode(&r)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file.Name(), err)
	}
	return r, nil
}

// Write writes the report of a run into a directory, which has to exist, and returns how many targets it reached and
// which ones it missed. The same run gives the same files, byte by byte.
func Write(run *result.Run, dir string) (verdicts string, err error) {
	r := &Report{targetsOf(run), run}
	data, err := packed(r)
	if err != nil {
		return "", err
	}
	return strings.Join(append([]string{tally(r.Targets)}, missed(r.Targets)...), "\n"), errors.Join(
		os.WriteFile(filepath.Join(dir, dataFile), data, 0o644),
		os.WriteFile(filepath.Join(dir, markdownFile), []byte(markdown(r)), 0o644))
}

// packed is compressed JSON. It has no name and no time in it, so that the same report gives the same bytes.
func packed(r *Report) ([]byte, error) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	encoder := json.NewEncoder(z)
	encoder.SetIndent("", " ")
	err = errors.Join(encoder.Encode(r), z.Close())
	return b.Bytes(), err
}
