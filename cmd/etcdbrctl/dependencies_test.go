package main

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
)

// module is what go list says of one.
type module struct {
	Path, Version, GoMod, GoVersion string
	Replace                         *module
}

func (m module) String() string {
	if m.Replace != nil {
		return m.Replace.Path + " " + m.Replace.Version
	}
	return m.Path + " " + m.Version
}

// hosts is the host's module.
const hosts = "github.com/gardener/etcd-backup-restore"

// Whoever ships the host with Quorate inside ships the same versions of everything else.
func TestEmbeddingRaisesNoDependencyOfTheHost(t *testing.T) {
	var host module
	if err := list(t, "list", "-m", "-json", hosts).Decode(&host); err != nil {
		t.Fatal(err)
	}
	var mod struct {
		Go      string
		Require []module
		Replace []struct{ Old, New module }
	}
	if err := list(t, "mod", "edit", "-json", host.GoMod).Decode(&mod); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for _, m := range mod.Require {
		for _, r := range mod.Replace {
			if r.Old.Path == m.Path && (r.Old.Version == "" || r.Old.Version == m.Version) {
				m.Replace = &r.New
			}
		}
		want[m.Path] = m.String()
	}
	want[hosts] = host.String()

	linked := map[string]string{}
	for packages := list(t, "list", "-deps", "-json=Module", "."); packages.More(); {
		var p struct{ Module *module }
		if err := packages.Decode(&p); err != nil {
			t.Fatal(err)
		}
		m := p.Module
		if m == nil {
			continue // It belongs to Go itself.
		}
		linked[m.Path] = m.String()
		if m.Path == ours && m.GoVersion != mod.Go {
			t.Errorf("we need Go %s, and the host %s", m.GoVersion, mod.Go)
		}
	}
	for path, version := range linked {
		if !strings.HasPrefix(path, "github.com/quorate/") && version != want[path] {
			t.Errorf("linked with %s, the host alone with %q", version, want[path])
		}
	}
	if len(linked) < 50 || linked[hosts] == "" || linked[ours] == "" {
		t.Errorf("only %d modules are linked: %v", len(linked), linked)
	}
}

// ours is this module.
const ours = "github.com/quorate/quorate/cmd/etcdbrctl"

// list returns what the go command says.
func list(t *testing.T, args ...string) *json.Decoder {
	t.Helper()
	var said, complained bytes.Buffer
	cmd := exec.Command("go", args...)
	cmd.Stdout, cmd.Stderr = &said, &complained
	if err := cmd.Run(); err != nil {
		t.Fatalf("go %s: %v: %s", strings.Join(args, " "), err, &complained)
	}
	return json.NewDecoder(&said)
}
