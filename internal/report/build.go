package report

import (
	"cmp"
	"runtime/debug"
	"strings"
)

// module is Quorate's own.
const module = "github.com/quorate/quorate"

// build is what a process was built from.
type build struct{ version, revision, goVersion string }

// buildOf says which Quorate is in a process. The linker knows its version, be it the program itself or a module that a
// host requires. Only where it does not, because the module was replaced by a folder, does the version count that the
// host tells. The commit is known where the program is ours; the linker has written down none but the program's.
func buildOf(info *debug.BuildInfo, told string) build {
	b := build{goVersion: info.GoVersion}
	for _, m := range append([]*debug.Module{&info.Main}, info.Deps...) {
		if m.Path == module && m.Replace == nil && m.Version != "(devel)" {
			b.version = m.Version
		}
	}
	b.version = cmp.Or(b.version, told, "(devel)")
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && strings.HasPrefix(info.Main.Path+"/", module+"/") {
			b.revision = s.Value
		}
	}
	return b
}
