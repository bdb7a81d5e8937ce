package options

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/quorate/quorate/internal/settings"
)

var update = flag.Bool("update", false, "write the expected files anew")

const pageBegin = `# Settings

<!-- Made from the tables in coordinator/settings.go and pkg/options; change them there and run
     go test ./pkg/options -run Page -update -->

Everything that can be chosen for a sidecar. A setting has one name wherever it appears:

- as a flag of ` + "`quorate sidecar`" + `, such as ` + "`--settle-timeout=5m`" + `;
- as a key of the YAML file that ` + "`--config`" + ` names, such as ` + "`settle-timeout: 5m`" + `. A flag wins over the file,
  and a key that nobody knows is an error;
- in the texts of ` + "`status`, `plan`" + ` and [the reference of the guards](reference.md).

Those about rollouts exist in a host such as etcdbrctl too: as a flag with a prefix
(` + "`--pod-update-settle-timeout`" + `), and as a key in its configuration file (` + "`settleTimeout`" + `, see
[embedding](embedding.md)). The host's help shows those whose right value depends on the cluster and is known to its
operator alone. The others work all the same.

The commands ` + "`plan` and `status`" + ` have the settings of the policy too. Without any of them, they decide with the
policy of the coordinator.
`

func page() string {
	o := NewSidecar()
	fs := pflag.NewFlagSet("sidecar", pflag.ContinueOnError)
	o.AddFlags(fs)
	rows := map[string]*settings.Setting{}
	for _, s := range o.table() {
		rows[s.Name] = &s
	}
	var b strings.Builder
	b.WriteString(pageBegin)
	for _, g := range Groups(fs) {
		title := strings.TrimSuffix(g.Title, " flags")
		if g.Title == titleGeneral {
			title = "General"
		}
		fmt.Fprintf(&b, "\n## %s\n", title)
		g.Flags.VisitAll(func(f *pflag.Flag) {
			if f.Deprecated == "" {
				entry(&b, f, rows[f.Name])
			}
		})
	}
	return b.String()
}

// entry tells of a flag, and of its row if it has one.
func entry(b *strings.Builder, f *pflag.Flag, row *settings.Setting) {
	kind, help := pflag.UnquoteUsage(f)
	byDefault := f.DefValue
	if kind == "" {
		kind, byDefault = "on or off", map[string]string{"true": "on", "false": "off"}[f.DefValue]
	}
	if row != nil && row.Unit != "" {
		kind = row.Unit
	}
	if row != nil {
		help = row.Help
	}
	fmt.Fprintf(b, "\n### %s\n\n%s%s.\n\n- **Value:** %s\n", f.Name, strings.ToUpper(help[:1]), help[1:], kind)
	switch {
	case row == nil && byDefault != "":
		fmt.Fprintf(b, "- **Default:** %s\n", byDefault)
	case row != nil && (byDefault == "" || byDefault == "[]" || strings.HasPrefix(row.Why, byDefault)):
		fmt.Fprintf(b, "- **Default:** %s\n", row.Why)
	case row != nil:
		fmt.Fprintf(b, "- **Default:** %s (%s)\n", byDefault, row.Why)
	}
	if row == nil {
		return
	}
	fmt.Fprintf(b, "- **In a host:** `--pod-update-%s`, and `%s` in its file.", row.Name, row.Camel())
	if row.Host != "" {
		fmt.Fprintf(b, " Its help shows the flag, because it depends on %s.", row.Host)
	}
	b.WriteString("\n")
	if row.Scope != settings.Runs {
		b.WriteString("- **Also in:** `plan` and `status`\n")
	}
}

func TestThePageOfSettingsIsWhatTheTablesSay(t *testing.T) {
	path := filepath.Join("..", "..", "docs", "settings.md")
	if *update {
		if err := os.WriteFile(path, []byte(page()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != page() {
		t.Errorf("%s is out of date; run go test ./pkg/options -run Page -update", path)
	}
}
