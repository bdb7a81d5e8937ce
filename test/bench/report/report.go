// Package report turns what the benchmarks measured into what people read: results.md with
// tables, results.json.gz for programs, and pictures. Every figure and every verdict is computed
// from the run; nothing is written here that could be wrong for another one.
package report

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	"github.com/quorate/quorate/test/bench/result"
)

// The files that [Write] writes beside the pictures.
const (
	markdownFile = "results.md"
	dataFile     = "results.json.gz"
)

// Report is a run with all that was computed from it. It is results.json.gz.
type Report struct {
	// Targets comes first, because it is the answer; the run is last.
	Targets   []Target    `json:"targets"`
	Rows      []Row       `json:"rows"`
	Pairs     []Pair      `json:"pairs,omitempty"`
	Estimates []Estimate  `json:"estimates,omitempty"`
	Run       *result.Run `json:"run"`
}

// reportOf computes everything from a run, which it leaves as it is. The trials of the report have
// no series: those are in their own files.
func reportOf(run *result.Run) *Report {
	short := *run
	short.Trials = nil
	for _, t := range run.Trials {
		t.Series = nil
		short.Trials = append(short.Trials, t)
	}
	return &Report{
		Targets:   targetsOf(run),
		Rows:      rowsOf(run.Trials),
		Pairs:     pairsOf(run.Trials),
		Estimates: estimatesOf(run.Fleets, paperClusters),
		Run:       &short,
	}
}

// Write writes the report of a run into a directory, which has to exist: results.md,
// results.json.gz and a picture (SVG) for each case that is worth one and was run. The same run
// gives the same files, byte by byte. Pictures of another run that this one has not are left
// alone, and results.md does not show them.
func Write(run *result.Run, dir string) error {
	r := reportOf(run)
	data, err := packed(r)
	if err != nil {
		return err
	}
	pictures, err := picturesOf(run)
	if err != nil {
		return err
	}
	errs := []error{
		os.WriteFile(filepath.Join(dir, dataFile), data, 0o644),
		os.WriteFile(filepath.Join(dir, markdownFile), []byte(markdown(r, pictures)), 0o644),
	}
	for _, p := range pictures {
		errs = append(errs, os.WriteFile(filepath.Join(dir, p.file), p.svg, 0o644))
	}
	return errors.Join(errs...)
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
