package report

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Place is a figure in a document.
type Place struct {
	// File is relative to the checkout.
	File string
	Line int
	Name string
	// Had is what stands there, and Has what the run says; it is empty where the run has no such figure.
	Had, Has string
}

func (p Place) String() string {
	if p.Has == "" {
		// Of several lines the first one tells.
		p.Had, _, _ = strings.Cut(p.Had, "\n")
		return fmt.Sprintf("%s:%d: %s: the published run has no such figure, so %q stays", p.File, p.Line, p.Name,
			p.Had)
	}
	return fmt.Sprintf("%s:%d: %s: %q, and the published run says %q", p.File, p.Line, p.Name, p.Had, p.Has)
}

// Documents are the documents of a checkout with the figures of the published run.
type Documents struct {
	// Changed are the figures that the run does not say, Absent those that it does not have. Absent ones are left as
	// they are.
	Changed, Absent []Place
	// files has the new text of each document that changes, by its path.
	files map[string]string
}

// Fill reads the published run of a checkout and computes what its documents, README.md and those in docs, say of it.
// It writes nothing. A mark that no run can fill, or that Markdown would not hide, is an error.
func Fill(root string) (*Documents, error) {
	r, err := published(filepath.Join(root, "docs", "benchmarks", dataFile))
	if err != nil {
		return nil, err
	}
	paths, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		return nil, err
	}
	d := &Documents{files: map[string]string{}}
	var errs []error
	for _, path := range append([]string{filepath.Join(root, "README.md")}, paths...) {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		file, err := filepath.Rel(root, path)
		if err != nil {
			return nil, err
		}
		filled, err := d.fill(r, file, string(text))
		if filled != string(text) {
			d.files[path] = filled
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return d, nil
}

// Write writes the documents that change.
func (d *Documents) Write() error {
	var errs []error
	for path, text := range d.files {
		errs = append(errs, os.WriteFile(path, []byte(text), 0o644))
	}
	return errors.Join(errs...)
}

// published reads the report of the published run. It was written by an older version of this package, perhaps.
func published(path string) (*Report, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	r := &Report{}
	z, err := gzip.NewReader(file)
	if err == nil {
		err = json.NewDecoder(z).Decode(r)
	}
	if err == nil && r.Run == nil {
		err = errors.New("no run is in it")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// A figure in a document stands between two comments, which readers do not see: <!--=NAME-->text<!--/-->. One of
// several lines has the comments on lines of their own.
var (
	mark = regexp.MustCompile(`(?s)<!--=(.*?)-->(.*?)<!--/-->`)
	// halfMark is what is left where only one of the comments is.
	halfMark = regexp.MustCompile(`<!--=|<!--/-->`)
	// code is what Markdown shows as it is.
	code = regexp.MustCompile("(?ms)^```.*?^```|`[^`]+`")
	// begins matches what stands before a mark that begins a line, or an item of a list.
	begins = regexp.MustCompile(`(^|\n)[ >]*([*+-] +|\d+[.)] +)?$`)
)

// placeholder is the name that an explanation of the marks may show in code.
const placeholder = "NAME"

// fill returns the text of a document with its figures, and notes which of them change or are absent.
func (d *Documents) fill(r *Report, file, text string) (string, error) {
	var filled strings.Builder
	var errs []error
	spans := code.FindAllStringIndex(text, -1)
	inCode := func(at int) bool {
		return slices.ContainsFunc(spans, func(span []int) bool { return span[0] < at && at < span[1] })
	}
	line := func(at int) int { return 1 + strings.Count(text[:at], "\n") }
	// whole checks what is between two marks, or behind the last one.
	whole := func(from, to int) string {
		for _, half := range halfMark.FindAllStringIndex(text[from:to], -1) {
			if at := from + half[0]; !inCode(at) {
				errs = append(errs, fmt.Errorf("%s:%d: %s without its other half", file, line(at),
					text[at:from+half[1]]))
			}
		}
		return text[from:to]
	}
	end := 0
	for _, m := range mark.FindAllStringSubmatchIndex(text, -1) {
		name, had := text[m[2]:m[3]], text[m[4]:m[5]]
		has, known := r.figure(name)
		first, block := begins.MatchString(text[:m[0]]), strings.HasPrefix(had, "\n")
		place := Place{File: file, Line: line(m[0]), Name: name, Had: strings.TrimSpace(had), Has: has}
		wrong := ""
		switch {
		case inCode(m[0]) && name == placeholder:
			has = had
		case inCode(m[0]):
			wrong = "a mark in code is shown to readers: put it outside of the backticks"
		case halfMark.MatchString(had):
			wrong = "no <!--/--> ends it"
		case !known:
			wrong = "no figure has this name (test/bench/report/figures.go has those that there are)"
		case first && !block:
			wrong = "Markdown takes a line that begins with a comment for HTML: put a word before it"
		case block && !first, !block && strings.Contains(has, "\n"):
			wrong = "a figure of several lines needs its two comments on lines of their own"
		case has == "":
			d.Absent = append(d.Absent, place)
			has = had
		default:
			if block {
				has = "\n" + has + "\n"
			}
			if has != had {
				d.Changed = append(d.Changed, place)
			}
		}
		if wrong != "" {
			errs = append(errs, fmt.Errorf("%s:%d: %s: %s", file, place.Line, name, wrong))
		}
		filled.WriteString(whole(end, m[0]) + text[m[0]:m[4]] + has + text[m[5]:m[1]])
		end = m[1]
	}
	filled.WriteString(whole(end, len(text)))
	return filled.String(), errors.Join(errs...)
}
