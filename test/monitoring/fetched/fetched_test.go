package fetched

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatIsNotThereIsMissingForTheReasonThatTheToolsGive(t *testing.T) {
	folder, path := t.TempDir(), filepath.Join("prometheus", "promtool")
	_, err := find(folder, "prometheus", path)
	require.ErrorContains(t, err, "run test/monitoring/tools .build/monitoring prometheus", "nobody has tried")

	require.NoError(t, os.WriteFile(filepath.Join(folder, "prometheus.missing"),
		[]byte("there is no apt-get\n"), 0o600))
	_, err = find(folder, "prometheus", path)
	require.EqualError(t, err, "there is no apt-get")

	require.NoError(t, os.Mkdir(filepath.Join(folder, "prometheus"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(folder, path), nil, 0o700))
	found, err := find(folder, "prometheus", path)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(folder, path), found)
}

// tools runs the script where only these programs are on PATH; a name with a text is a shell
// script of that text.
func tools(t *testing.T, folder string, programs map[string]string, env []string, names ...string) (string, error) {
	t.Helper()
	bin := t.TempDir()
	for _, name := range []string{"bash", "dirname", "mkdir", "rm", "mv", "cp", "cat", "ln", "chmod"} {
		path, err := exec.LookPath(name)
		require.NoError(t, err)
		require.NoError(t, os.Symlink(path, filepath.Join(bin, name)))
	}
	for name, text := range programs {
		require.NoError(t, os.WriteFile(filepath.Join(bin, name),
			[]byte("#!"+filepath.Join(bin, "bash")+"\n"+text), 0o700))
	}
	cmd := exec.CommandContext(t.Context(), "bash", append([]string{filepath.Join("..", "tools"), folder}, names...)...)
	cmd.Env = append([]string{"PATH=" + bin}, env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestTheToolsGetWhatCanBeHadAndSayWhatCannot(t *testing.T) {
	const unpack = "mkdir -p $3/usr/bin; for p in promtool prometheus; do echo >$3/usr/bin/$p; chmod +x " +
		"$3/usr/bin/$p; done\n"
	for _, tc := range []struct {
		name     string
		programs map[string]string
		names    []string
		// says has a part of each line, and there what is in the folder then.
		says, there []string
	}{
		{"nothing but a shell", nil, nil,
			[]string{"there is no apt-get to fetch them with: the alerts' tests",
				"there is no npm to fetch them with: the dashboard"},
			[]string{"grafana.missing", "prometheus.missing"}},
		{"only Prometheus is wanted, and it is on PATH", map[string]string{"promtool": "", "prometheus": ""},
			[]string{"prometheus"}, nil, []string{"prometheus"}},
		{"only Prometheus is wanted, and there is apt-get", map[string]string{"apt-get": "", "dpkg": unpack},
			[]string{"prometheus"}, nil, []string{"prometheus"}},
		{"apt-get has no lists and may not update them",
			map[string]string{"apt-get": "echo 'E: no lists'; echo 'E: not allowed' >&2; exit 100\n", "dpkg": unpack},
			[]string{"prometheus"}, []string{"and E: not allowed: the alerts' tests"}, []string{"prometheus.missing"}},
		{"npm works", map[string]string{"npm": "", "node": ""}, []string{"grafana"}, nil, []string{"schema"}},
		{"npm does not",
			map[string]string{"npm": "echo 'npm error code ENOTFOUND' >&2; echo 'npm error more'; exit 1\n",
				"node": ""}, []string{"grafana"},
			[]string{"and npm error code ENOTFOUND: the dashboard"}, []string{"grafana.missing"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			folder := t.TempDir()
			out, err := tools(t, folder, tc.programs, nil, tc.names...)
			require.NoError(t, err, "%s", out)
			lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
			if tc.says == nil {
				require.Empty(t, out)
			} else {
				require.Len(t, lines, len(tc.says), "%s", out)
			}
			for i, part := range tc.says {
				require.Contains(t, lines[i], part)
			}
			entries, err := os.ReadDir(folder)
			require.NoError(t, err)
			var there []string
			for _, e := range entries {
				there = append(there, e.Name())
			}
			require.Equal(t, tc.there, there)

			out, err = tools(t, folder, tc.programs, []string{RequireVariable + "=1"}, tc.names...)
			if tc.says == nil {
				require.NoError(t, err, "%s", out)
			} else {
				require.Error(t, err, "required, but missing: %s", out)
			}
		})
	}
	t.Run("what is got at last is not missing any more", func(t *testing.T) {
		folder := t.TempDir()
		_, err := tools(t, folder, nil, nil, "prometheus")
		require.NoError(t, err)
		_, err = tools(t, folder, map[string]string{"promtool": "", "prometheus": ""}, nil, "prometheus")
		require.NoError(t, err)
		require.NoFileExists(t, filepath.Join(folder, "prometheus.missing"))
	})
	t.Run("a wrong name is refused", func(t *testing.T) {
		out, err := tools(t, t.TempDir(), nil, nil, "loki")
		require.Error(t, err)
		require.Contains(t, out, "no such thing: loki")
	})
}
