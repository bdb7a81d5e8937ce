package main

import (
	"bytes"
	"crypto/sha256"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/v2_3"
)

func TestABillHasWhatTheBinaryTells(t *testing.T) {
	info := &debug.BuildInfo{
		GoVersion: "go1.26.8", Main: debug.Module{Path: "github.com/quorate/quorate", Version: "v0.1.0"},
		Deps: []*debug.Module{
			{Path: "github.com/NYTimes/gziphandler", Version: "v1.1.1", Sum: "h1:gz="},
			{Path: "github.com/docker/docker", Version: "v28.0.0+incompatible"},
			{Path: "example.com/old", Version: "v1.0.0",
				Replace: &debug.Module{Path: "example.com/new", Version: "v2.0.0"}},
		},
	}
	d := bill("quorate-v0.1.0-linux-amd64", "2026-11-29T08:00:00Z", info, "quorate", sha256.Sum256(nil))
	want := [][3]string{
		{"github.com/quorate/quorate", "pkg:golang/github.com/quorate/quorate@v0.1.0", ""},
		{"stdlib", "pkg:golang/stdlib@1.26.8", ""},
		{"github.com/NYTimes/gziphandler", "pkg:golang/github.com/nytimes/gziphandler@v1.1.1", "go.sum: h1:gz="},
		{"github.com/docker/docker", "pkg:golang/github.com/docker/docker@v28.0.0%2Bincompatible", ""},
		{"example.com/new", "pkg:golang/example.com/new@v2.0.0", ""},
	}
	if len(d.Packages) != len(want) || len(d.Relationships) != len(want) {
		t.Fatalf("%d packages and %d relationships, want %d of both", len(d.Packages), len(d.Relationships), len(want))
	}
	for i, p := range d.Packages {
		got := [3]string{p.PackageName, p.PackageExternalReferences[0].Locator, p.PackageSourceInfo}
		if got != want[i] {
			t.Errorf("package %d is\n%q, want\n%q", i, got, want[i])
		}
		if r := d.Relationships[i]; r.RefB.ElementRefID != p.PackageSPDXIdentifier {
			t.Errorf("relationship %d is with %s, want %s", i, r.RefB.ElementRefID, p.PackageSPDXIdentifier)
		}
	}
}

// SPDX's own library reads it, and finds what SPDX requires.
func TestABillOfARealBinaryIsValid(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := run(&out, "a-test", "2026-11-29T08:00:00Z", []string{self}); err != nil {
		t.Fatal(err)
	}
	d := &v2_3.Document{}
	if err := json.ReadInto(&out, d); err != nil {
		t.Fatal(err)
	}
	if d.SPDXVersion != "SPDX-2.3" || len(d.Packages) < 3 {
		t.Errorf("%s with %d packages", d.SPDXVersion, len(d.Packages))
	}
	ids := map[string]bool{}
	for _, p := range d.Packages {
		if p.PackageName == "" || p.PackageDownloadLocation == "" || ids[string(p.PackageSPDXIdentifier)] {
			t.Errorf("package %+v", p)
		}
		ids[string(p.PackageSPDXIdentifier)] = true
	}
}

func TestBadInputIsNamed(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("no binary"), 0o600); err != nil {
		t.Fatal(err)
	}
	const when = "2026-11-29T08:00:00Z"
	for _, tc := range []struct {
		name, created string
		args          []string
		says          string
	}{
		{"", when, []string{text}, "-name is empty"},
		{"a", "today", []string{text}, `-created: parsing time "today"`},
		{"a", when, nil, "want one binary, not 0"},
		{"a", when, []string{text}, text},
	} {
		err := run(&bytes.Buffer{}, tc.name, tc.created, tc.args)
		if err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%+v: %v", tc, err)
		}
	}
}
