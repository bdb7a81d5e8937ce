package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// build is what this binary was built from.
type build struct {
	Version string `json:"version"`
	// Revision is the commit and Date is the commit's, if it was built from a repository. Modified says that something
	// was not committed.
	Revision string `json:"revision,omitempty"`
	Date     string `json:"date,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	// Dependencies are all modules that are linked into it.
	Dependencies []dependency `json:"dependencies,omitempty"`
}

type dependency struct {
	Module  string `json:"module"`
	Version string `json:"version"`
	// Sum is the module's line in go.sum.
	Sum string `json:"sum,omitempty"`
}

func newBuild() build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return buildOf(info)
}

func buildOf(info *debug.BuildInfo) build {
	b := build{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info.Main.Version != "" {
		b.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.time":
			b.Date = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		b.Dependencies = append(b.Dependencies, dependency{Module: m.Path, Version: m.Version, Sum: m.Sum})
	}
	return b
}

// version is the module's version, if it was built from one.
func version() string { return newBuild().Version }

// text is the first line as it always was, then the commit, and with wide also the dependencies.
func (b build) text(wide bool) string {
	var t strings.Builder
	fmt.Fprintf(&t, "quorate %s (%s, %s)\n", b.Version, b.Go, b.Platform)
	switch {
	case b.Revision == "":
		t.WriteString("commit not known: it was not built in a repository\n")
	case b.Modified:
		fmt.Fprintf(&t, "commit %s of %s, with changes that are not committed\n", b.Revision, b.Date)
	default:
		fmt.Fprintf(&t, "commit %s of %s\n", b.Revision, b.Date)
	}
	if wide {
		for _, d := range b.Dependencies {
			fmt.Fprintf(&t, "module %s %s\n", d.Module, d.Version)
		}
	}
	return t.String()
}

func versionCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show what this binary is",
		Long: "Show what this binary is: its version, the commit and the Go that it was built with. " +
			"-o wide, json and yaml also have every module that is linked into it.",
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output, "text", "wide", "json", "yaml"); err != nil {
				return err
			}
			b := newBuild()
			if output == "json" || output == "yaml" {
				return encode(cmd.OutOrStdout(), output, "Version", b)
			}
			_, err := io.WriteString(cmd.OutOrStdout(), b.text(output == "wide"))
			return err
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text, wide, json or yaml")
	completeOutput(cmd, "text", "wide", "json", "yaml")
	return cmd
}
