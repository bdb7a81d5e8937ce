// Package fetched finds what test/monitoring/tools has put into .build/monitoring, and skips
// the tests that need what it could not get.
package fetched

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quorate/quorate/test/harness/build"
)

// RequireVariable is the environment variable that turns a skip into a failure, for CI.
const RequireVariable = "QUORATE_REQUIRE_MONITORING"

// Prometheus returns the path of one of Prometheus' programs.
func Prometheus(t testing.TB, program string) string {
	t.Helper()
	return must(t, "prometheus", filepath.Join("prometheus", "usr", "bin", program))
}

// Grafana returns the path of a file or folder below that into which npm has installed
// Grafana's types and the TypeScript compiler.
func Grafana(t testing.TB, path ...string) string {
	t.Helper()
	return must(t, "grafana", filepath.Join(append([]string{"schema"}, path...)...))
}

func must(t testing.TB, name, path string) string {
	t.Helper()
	root, err := build.Root()
	if err != nil {
		t.Fatal(err)
	}
	path, err = find(filepath.Join(root, ".build", "monitoring"), name, path)
	if err != nil {
		if os.Getenv(RequireVariable) != "" {
			t.Fatalf("%s is set, but: %v", RequireVariable, err)
		}
		t.Skip(err)
	}
	return path
}

// find returns a path in the folder, or why what was to be there is not.
func find(folder, name, path string) (string, error) {
	path = filepath.Join(folder, path)
	_, err := os.Stat(path)
	if err == nil {
		return path, nil
	}
	if why, err := os.ReadFile(filepath.Join(folder, name+".missing")); err == nil {
		return "", errors.New(strings.TrimSpace(string(why)))
	}
	return "", fmt.Errorf("%w; run test/monitoring/tools .build/monitoring %s", err, name)
}
