// Flags compares what Quorate knows of the arguments of etcd's command with etcd's own sources: those of the first and
// the last release of each minor version that the module proxy has, or of all with -all. It tells every difference, and
// fails if there is one.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/quorate/quorate/pkg/rollout"
)

func main() {
	all := flag.Bool("all", false, "compare every release, and not only the first and the last of a minor version")
	flag.Parse()
	differences, err := run(context.Background(), os.Stdout, *all)
	if err != nil {
		fmt.Fprintln(os.Stderr, "flags:", err)
		os.Exit(2)
	}
	if differences > 0 {
		os.Exit(1)
	}
}

// release is one whose sources are read.
type release struct {
	version        rollout.Version
	module, tagged string
	flags          map[string]bool
}

// server is the module that has the flags from 3.5 on. 3.4 was never released as a module.
const server = "go.etcd.io/etcd/server/v3"

var releases34 = []release{
	{version: rollout.Version{Major: 3, Minor: 4}, module: "go.etcd.io/etcd",
		tagged: "v0.0.0-20190830150955-898bd1351fcf"},
	{version: rollout.Version{Major: 3, Minor: 4, Patch: 34}, module: "go.etcd.io/etcd",
		tagged: "v0.0.0-20240911181550-c123b3ea3db3"},
}

func run(ctx context.Context, w io.Writer, all bool) (differences int, err error) {
	var proxy struct{ Versions []string }
	if err := ask(ctx, &proxy, "list", "-m", "-json", "-versions", server); err != nil {
		return 0, err
	}
	releases := slices.Concat(releases34, chosen(proxy.Versions, all))
	for i := range releases {
		r := &releases[i]
		var at struct{ Dir, Error string }
		if err := ask(ctx, &at, "mod", "download", "-json", r.module+"@"+r.tagged); err != nil {
			return 0, fmt.Errorf("etcd %s: %w: %s", r.version, err, at.Error)
		}
		if r.flags, err = flagsOf(at.Dir); err != nil {
			return 0, fmt.Errorf("etcd %s: %w", r.version, err)
		}
		fmt.Fprintf(w, "etcd %s: %d flags and values\n", r.version, len(r.flags))
	}
	found := compare(releases, rollout.Knows, listed())
	for _, difference := range found {
		fmt.Fprintln(w, difference)
	}
	fmt.Fprintf(w, "%d differences\n", len(found))
	return len(found), nil
}

// ask runs go, and reads its answer.
func ask(ctx context.Context, answer any, args ...string) error {
	command := exec.CommandContext(ctx, "go", args...)
	command.Stderr = os.Stderr
	out, err := command.Output()
	return errors.Join(err, json.Unmarshal(out, answer))
}

// chosen are the releases to compare of those that the proxy has, which it gives in order. What comes before a release
// is left out.
func chosen(versions []string, all bool) (releases []release) {
	for _, tagged := range versions {
		v, is := rollout.ParseVersion(tagged)
		if !is || strings.Contains(tagged, "-") {
			continue
		}
		r := release{version: v, module: server, tagged: tagged}
		last := len(releases) - 1
		if !all && last > 0 && sameMinor(releases[last].version, v) && sameMinor(releases[last-1].version, v) {
			releases[last] = r
			continue
		}
		releases = append(releases, r)
	}
	return releases
}

func sameMinor(a, b rollout.Version) bool { return a.Major == b.Major && a.Minor == b.Minor }

// listed are the arguments of the table.
func listed() (arguments []string) {
	for i := range rollout.Checks {
		arguments = append(arguments, rollout.Checks[i].Arguments()...)
	}
	return arguments
}

// refusedLater are values that etcd parses, and refuses later. The flags do not tell that; test/versions tries it on
// real servers.
var refusedLater = []string{"logger=capnslog", "discovery-fallback=proxy"}

// compare returns in words where the table and the sources differ. A value only counts where its flag is known.
func compare(
	releases []release, knows func(v rollout.Version, argument string) bool, listed []string,
) (differences []string) {
	arguments := map[string]bool{}
	for _, r := range releases {
		maps.Copy(arguments, r.flags)
	}
	for _, argument := range listed {
		if !arguments[argument] && !slices.Contains(refusedLater, argument) {
			differences = append(differences, "--"+argument+": no release knows it, and the table has it")
		}
	}
	for _, argument := range slices.Sorted(maps.Keys(arguments)) {
		name, _, _ := strings.Cut(argument, "=")
		for _, r := range releases {
			is := r.flags[argument]
			ofValue := name != argument && (!r.flags[name] || slices.Contains(refusedLater, argument))
			if ofValue || is == knows(r.version, argument) {
				continue
			}
			says := "knows it, and the table says that it does not"
			if !is {
				says = "does not know it, and the table says that it does"
			}
			differences = append(differences, fmt.Sprintf("--%s: etcd %s %s", argument, r.version, says))
		}
	}
	return differences
}
