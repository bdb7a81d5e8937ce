// Command sbom writes the software bill of materials of a Go binary, as SPDX 2.3 in JSON.
//
//	sbom -name quorate-v0.1.0-linux-amd64 -created 2026-11-29T08:00:00Z FILE
//
// It tells what the binary itself tells ("go version -m FILE"): the main module, every module that is linked into it
// with its line of go.sum, and Go's standard library. Nothing else is asked, so that the same binary always has the
// same bill.
package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx"
	"github.com/spdx/tools-golang/spdx/v2/common"
	"github.com/spdx/tools-golang/spdx/v2/v2_3"
)

const repository = "https://github.com/quorate/quorate"

func main() {
	name := flag.String("name", "", "name of the document, one for each binary of each release")
	created := flag.String("created", "", "when the binary was made, as 2026-11-29T08:00:00Z")
	flag.Parse()
	if err := run(os.Stdout, *name, *created, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(w io.Writer, name, created string, args []string) error {
	switch _, err := time.Parse(time.RFC3339, created); {
	case name == "":
		return errors.New("-name is empty: name the document")
	case err != nil:
		return fmt.Errorf("-created: %w", err)
	case len(args) != 1:
		return fmt.Errorf("want one binary, not %d", len(args))
	}
	info, err := buildinfo.ReadFile(args[0])
	if err != nil {
		return err
	}
	content, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	document := bill(name, created, info, filepath.Base(args[0]), sha256.Sum256(content))
	return json.Write(document, w, json.Indent("  "))
}

// bill is the document about a binary with this content.
func bill(name, created string, info *debug.BuildInfo, file string, sum [sha256.Size]byte) *spdx.Document {
	digest := hex.EncodeToString(sum[:])
	d := &spdx.Document{
		SPDXVersion: spdx.Version, DataLicense: spdx.DataLicense, SPDXIdentifier: "DOCUMENT", DocumentName: name,
		DocumentNamespace: repository + "/spdx/" + name + "-" + digest,
		CreationInfo: &v2_3.CreationInfo{Created: created,
			Creators: []common.Creator{{CreatorType: "Organization", Creator: "quorate"}, {CreatorType: "Tool",
				Creator: "quorate-sbom"}}},
	}
	root := module(info.Main)
	root.PackageFileName = file
	root.PackageChecksums = []common.Checksum{{Algorithm: common.SHA256, Value: digest}}
	root.PrimaryPackagePurpose = "APPLICATION"
	root.PackageLicenseDeclared = "Apache-2.0"
	d.Packages = []*v2_3.Package{root, module(debug.Module{Path: "stdlib",
		Version: strings.TrimPrefix(info.GoVersion, "go")})}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		d.Packages = append(d.Packages, module(*m))
	}
	relate := func(a common.ElementID, kind string, b common.ElementID) {
		d.Relationships = append(d.Relationships, &v2_3.Relationship{RefA: common.DocElementID{ElementRefID: a},
			Relationship: kind, RefB: common.DocElementID{ElementRefID: b}})
	}
	relate("DOCUMENT", "DESCRIBES", root.PackageSPDXIdentifier)
	for _, p := range d.Packages[1:] {
		relate(root.PackageSPDXIdentifier, "DEPENDS_ON", p.PackageSPDXIdentifier)
	}
	return d
}

// unfit is what an identifier of SPDX may not have.
var unfit = regexp.MustCompile(`[^A-Za-z0-9.-]+`)

func module(m debug.Module) *v2_3.Package {
	// The type golang of package URLs is in lower case, and a plus sign would be a space.
	purl := "pkg:golang/" + strings.ToLower(m.Path) + "@" + strings.ReplaceAll(m.Version, "+", "%2B")
	p := &v2_3.Package{
		PackageName: m.Path, PackageVersion: m.Version,
		PackageSPDXIdentifier:   common.ElementID("Package-" + unfit.ReplaceAllString(m.Path, "-")),
		PackageDownloadLocation: "NOASSERTION", PackageLicenseConcluded: "NOASSERTION",
		PackageLicenseDeclared: "NOASSERTION", PackageCopyrightText: "NOASSERTION",
		PackageExternalReferences: []*v2_3.PackageExternalReference{{Category: common.CategoryPackageManager,
			RefType: common.TypePackageManagerPURL, Locator: purl}},
	}
	if m.Sum != "" {
		p.PackageSourceInfo = "go.sum: " + m.Sum
	}
	return p
}
