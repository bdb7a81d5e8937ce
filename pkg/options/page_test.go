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

A setting has one name wherever it appears:

- as a flag of ` + "`quorate sidecar`" + `, such as ` + "`--settle-timeout=5m`" + `;
- as a key of the YAML file that ` + "`--config`" + ` names, such as ` + "`settle-timeout: 5m`" + `. A flag wins over
  the file, and an unknown key is an error;
- in the texts of ` + "`status`, `plan`" + ` and [the reference](reference.md).

A host such as etcdbrctl has those with a *key in a host*: that is the name in the host's configuration file (see
[embedding](embedding.md)), and the flag has a prefix (` + "`--pod-update-settle-timeout`" + `). The host's help shows
only those of which the page says what the right value depends on. The others work all the same.

` + "`plan` and `status`" + ` take those marked so. Without them, they decide with the coordinator's policy.
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
	fmt.Fprintf(b, "\n### %s\n\n%s%s.\n", f.Name, strings.ToUpper(help[:1]), help[1:])
	switch {
	case row == nil && byDefault == "":
		return
	case row == nil:
		fmt.Fprintf(b, "\n- **Default:** %s\n", byDefault)
		return
	case byDefault == "" || byDefault == "[]" || strings.HasPrefix(row.Why, byDefault):
		fmt.Fprintf(b, "\n- **Default:** %s.", row.Why)
	default:
		fmt.Fprintf(b, "\n- **Default:** %s (%s).", byDefault, row.Why)
	}
	if row.Host != "" {
		fmt.Fprintf(b, " The right value depends on %s.", row.Host)
	}
	fmt.Fprintf(b, "\n- **Value:** %s. Key in a host: `%s`.", kind, row.Camel())
	if row.Scope != settings.Runs {
		b.WriteString(" Also for `plan` and `status`.")
	}
	b.WriteString("\n")
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
