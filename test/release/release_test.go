// Package release makes a release twice, of two clones at different paths, and tries what came out. The real kubectl
// and Helm's own library take it as they would take a downloaded one. RELEASE_ARCHS are the architectures that are
// built, as tools/release says. What is not committed is not tested.
package release

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"helm.sh/helm/v4/pkg/chart/v2/loader"

	"github.com/quorate/quorate/test/harness/build"
)

const version = "v0.0.1-test.1"

// archs are those that are built.
func archs() []string {
	if given := strings.Fields(os.Getenv("RELEASE_ARCHS")); len(given) > 0 {
		return given
	}
	return []string{"amd64", "arm64"}
}

func TestARelease(t *testing.T) {
	dir, noImage := t.TempDir(), imageUnavailable(t)
	if noImage != nil {
		t.Setenv("RELEASE_IMAGE", "no")
	}
	first := release(t, filepath.Join(dir, "one"))
	// A second machine has other settings, and the path of its clone is longer.
	second := release(t, filepath.Join(dir, "two", "with", "a", "longer", "path"), "TZ=Asia/Tokyo", "LANG=C.UTF-8",
		"GOAMD64=v3", "GOFLAGS=-race")
	names := list(t, first)

	t.Run("has everything that it promises", func(t *testing.T) {
		want := []string{"notes.md", "quorate-0.0.1-test.1.tgz", "sha256sums"}
		if noImage == nil {
			want = append(want, "quorate-"+version+"-image.tar")
		}
		for _, arch := range archs() {
			want = append(want, named(arch)+".spdx.json", named(arch)+".tar.gz")
		}
		require.ElementsMatch(t, want, names)
	})
	t.Run("has the same bytes wherever it is made", func(t *testing.T) {
		require.Equal(t, names, list(t, second))
		for _, name := range names {
			a, err := os.ReadFile(filepath.Join(first, name))
			require.NoError(t, err)
			b, err := os.ReadFile(filepath.Join(second, name))
			require.NoError(t, err)
			require.True(t, slices.Equal(a, b), "%s differs", name)
		}
	})
	t.Run("has checksums of all files", func(t *testing.T) {
		told := run(t, first, nil, "sha256sum", "-c", "sha256sums")
		require.Equal(t, len(names)-1, strings.Count(told, ": OK\n"), told)
	})
	t.Run("can be signed and verified, as CONTRIBUTING.md says", func(t *testing.T) {
		signed := t.TempDir()
		run(t, signed, nil, "cp", "-r", first+"/.", ".")
		run(t, signed, nil, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "key")
		run(t, signed, nil, "ssh-keygen", "-Y", "sign", "-f", "key", "-n", "quorate-release", "sha256sums")
		verify := `ssh-keygen -Y verify -f allowed_signers -I release@quorate -n quorate-release ` +
			`-s sha256sums.sig < sha256sums`
		require.Contains(t, read(t, "../../CONTRIBUTING.md"), verify)
		signers := `release@quorate namespaces="quorate-release" ` + read(t, filepath.Join(signed, "key.pub"))
		require.NoError(t, os.WriteFile(filepath.Join(signed, "allowed_signers"), []byte(signers), 0o600))
		require.Contains(t, run(t, signed, nil, "sh", "-c", verify), "Good")
		changed := strings.ReplaceAll(verify, "< sha256sums", "< notes.md")
		require.Error(t, exec.CommandContext(t.Context(), "sh", "-c", "cd "+signed+" && "+changed).Run())
	})
	t.Run("has notes of what changed", func(t *testing.T) {
		notes := read(t, filepath.Join(first, "notes.md"))
		require.Contains(t, notes, "# Quorate "+version+"\n")
		require.Contains(t, notes, "\n- ")
		require.NotContains(t, notes, "\n## ")
	})
	unpacked := filepath.Join(dir, "unpacked")
	for _, arch := range archs() {
		t.Run("has a bill of materials that agrees with go version -m, for "+arch, func(t *testing.T) {
			run(t, dir, nil, "sh", "-c", "mkdir -p unpacked && tar xzf "+filepath.Join(first, named(arch)+".tar.gz")+
				" -C unpacked")
			require.Equal(t, linked(t, filepath.Join(unpacked, named(arch), "quorate")),
				billed(t, filepath.Join(first, named(arch)+".spdx.json")))
		})
	}
	for _, arch := range archs() {
		t.Run("has a binary that runs, for "+arch, func(t *testing.T) {
			command := []string{filepath.Join(unpacked, named(arch), "quorate"), "version"}
			if arch != runtime.GOARCH {
				command = append([]string{emulator(t, arch)}, command...)
			}
			told := run(t, dir, nil, command[0], command[1:]...)
			require.Contains(t, told, "quorate "+version+" (")
			require.Contains(t, told, "linux/"+arch)
		})
	}
	t.Run("has the licence of every module in the binary", func(t *testing.T) {
		files := filepath.Join(unpacked, named(runtime.GOARCH))
		require.Equal(t, read(t, "../../LICENSE"), read(t, filepath.Join(files, "LICENSE")))
		for _, module := range linked(t, filepath.Join(files, "quorate"))[2:] {
			name, _, _ := strings.Cut(module, " ")
			found, err := os.ReadDir(filepath.Join(files, "licences", name))
			require.NoError(t, err)
			require.NotEmpty(t, found, name)
		}
		require.FileExists(t, filepath.Join(files, "licences", "go", "LICENSE"))
	})
	t.Run("has a binary that is a plugin of kubectl", func(t *testing.T) {
		binaries, err := build.Some(t.Context(), func(line string) { t.Log(line) }, build.Kubectl)
		require.NoError(t, err)
		files := filepath.Join(unpacked, named(runtime.GOARCH))
		plugin := filepath.Join(dir, "bin", "kubectl-quorate")
		run(t, dir, nil, "install", "-D", filepath.Join(files, "quorate"), plugin)
		run(t, dir, nil, "install", filepath.Join(files, "kubectl_complete-quorate"), filepath.Dir(plugin))
		path := []string{"PATH=" + strings.Join([]string{filepath.Dir(plugin), filepath.Dir(binaries.Kubectl),
			os.Getenv("PATH")}, ":")}
		told := run(t, dir, path, "kubectl", "quorate", "version", "-o", "json")
		commit := strings.TrimSpace(run(t, ".", nil, "git", "rev-parse", "HEAD"))
		var is struct {
			Version, Revision string
			Modified          bool
		}
		require.NoError(t, json.Unmarshal([]byte(told), &is))
		require.Equal(t, version, is.Version)
		require.Equal(t, commit, is.Revision)
		require.False(t, is.Modified)
		require.Contains(t, run(t, dir, path, "kubectl", "__complete", "quorate", "over"), "override")
	})
	t.Run("has a chart of that version", func(t *testing.T) {
		c, err := loader.Load(filepath.Join(first, "quorate-0.0.1-test.1.tgz"))
		require.NoError(t, err)
		require.NoError(t, c.Validate())
		require.Equal(t, "0.0.1-test.1", c.Metadata.Version)
		require.Equal(t, "0.0.1-test.1", c.Metadata.AppVersion)
		of, err := loader.Load("../../deploy/chart")
		require.NoError(t, err)
		require.Len(t, c.Templates, len(of.Templates))
		require.Len(t, c.Files, len(of.Files))
	})
	t.Run("has an image with the same binaries", func(t *testing.T) {
		if noImage != nil {
			t.Skipf("THERE IS NO IMAGE: %v", noImage)
		}
		blobs := untar(t, filepath.Join(first, "quorate-"+version+"-image.tar"), false)
		images := manifests(t, blobs)
		require.Len(t, images, len(archs()))
		digest := regexp.MustCompile(`"sha256:[0-9a-f]{64}"`).FindString(string(blobs["index.json"]))
		require.Contains(t, read(t, filepath.Join(first, "notes.md")),
			"The digest of the image is "+strings.Trim(digest, `"`)+".\n")
		for arch, image := range images {
			require.Equal(t, "65532:65532", image.Config.User)
			require.Equal(t, []string{"/quorate"}, image.Config.Entrypoint)
			require.Equal(t, map[string]string{
				"org.opencontainers.image.title":    "quorate",
				"org.opencontainers.image.licenses": "Apache-2.0",
				"org.opencontainers.image.source":   "https://github.com/quorate/quorate",
				"org.opencontainers.image.version":  version,
				"org.opencontainers.image.revision": strings.TrimSpace(run(t, ".", nil, "git", "rev-parse", "HEAD")),
				"org.opencontainers.image.created":  image.Created,
			}, image.Config.Labels)
			binary := untar(t, filepath.Join(first, named(arch)+".tar.gz"), true)[named(arch)+"/quorate"]
			require.NotEmpty(t, binary)
			require.True(t, slices.Equal(binary, image.files["quorate"]), "the image of %s has another binary", arch)
		}
	})
}

func TestARefusalSaysWhatToDo(t *testing.T) {
	clone := filepath.Join(t.TempDir(), "clone")
	run(t, ".", nil, "git", "clone", "-q", "--no-tags", root(t), clone)
	for _, tc := range []struct {
		name, before, version, says string
	}{
		{"no version", "true", "", `VERSION: "": tag the commit, or say which version this is`},
		{"a version without v", "true", "0.1.0", `VERSION: "0.1.0": tag the commit`},
		{"a tag of another commit", "git tag v0.0.2-rc.1 HEAD~1", "v0.0.2-rc.1",
			"VERSION: v0.0.2-rc.1 is the tag of another commit"},
		{"a version without a section in the changelog", "true", "v9.9.9",
			`CHANGELOG.md has no section "## v9.9.9": give "## Unreleased" that name`},
		{"a buildah that does not work", "true", "v0.0.3-rc.1", "buildah cannot build the image here"},
		{"changes that are not committed", "touch new", "v0.0.3-rc.1", "there are changes that are not committed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			run(t, clone, nil, "sh", "-c", tc.before)
			cmd := exec.CommandContext(t.Context(), "tools/release", tc.version)
			cmd.Dir, cmd.Env = clone, append(os.Environ(), "BUILDAH=false", "RELEASE_ARCHS="+runtime.GOARCH)
			out, err := cmd.CombinedOutput()
			require.Error(t, err, string(out))
			require.Contains(t, string(out), tc.says)
		})
	}
}

// requireEmulator is the environment variable with which it is a failure that another architecture cannot be run.
const requireEmulator = "QUORATE_REQUIRE_EMULATOR"

// emulator is what runs programs of another architecture.
func emulator(t *testing.T, arch string) string {
	t.Helper()
	path, err := build.Emulator(t.Context(), func(line string) { t.Log(line) }, arch)
	if errors.Is(err, build.ErrNoEmulator) && os.Getenv(requireEmulator) == "" {
		t.Skipf("THE BINARY FOR %s IS NOT RUN: %v", arch, err)
	}
	require.NoError(t, err)
	return path
}

// imageUnavailable says why buildah does not work here, as it does not everywhere.
func imageUnavailable(t *testing.T) error {
	t.Helper()
	dir := t.TempDir()
	out, err := exec.CommandContext(t.Context(), "buildah", "--storage-driver", "vfs",
		"--root", filepath.Join(dir, "root"), "--runroot", filepath.Join(dir, "run"),
		"manifest", "create", "tried").CombinedOutput()
	if err != nil {
		return fmt.Errorf("buildah does not work: %w: %s", err, out)
	}
	return nil
}

// release makes a release of a clone at this path, and returns the folder with it.
func release(t *testing.T, clone string, env ...string) string {
	t.Helper()
	run(t, ".", nil, "git", "clone", "-q", "--no-tags", root(t), clone)
	run(t, clone, env, "tools/release", version)
	return filepath.Join(clone, ".build", "release", version)
}

func named(arch string) string { return "quorate-" + version + "-linux-" + arch }

// root is the folder of this checkout.
func root(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", "rev-parse", "--verify", "HEAD").CombinedOutput()
	if err != nil {
		t.Skipf("a release is made of a commit, and git reads none here: %v: %s", err, out)
	}
	return strings.TrimSpace(run(t, ".", nil, "git", "rev-parse", "--show-toplevel"))
}

// run returns what a command says.
func run(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, variable := range env { // So that a program is found by the PATH that it gets.
		if path, is := strings.CutPrefix(variable, "PATH="); is {
			found := exec.CommandContext(ctx, "sh", "-c", `command -v "$0"`, name)
			found.Env = append(os.Environ(), "PATH="+path)
			out, err := found.Output()
			require.NoError(t, err)
			name = strings.TrimSpace(string(out))
		}
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var failed strings.Builder
	cmd.Stderr = &failed
	out, err := cmd.Output()
	require.NoError(t, err, "%s %q: %s%s", name, args, out, failed.String())
	return string(out)
}

func list(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

// linked are the modules that Go says are in a binary, the main one first, and Go itself.
func linked(t *testing.T, binary string) []string {
	t.Helper()
	told := run(t, ".", nil, "go", "version", "-m", binary)
	first, rest, _ := strings.Cut(told, "\n")
	modules := []string{"", "stdlib " + strings.TrimPrefix(first[strings.LastIndex(first, " ")+1:], "go")}
	for line := range strings.Lines(rest) {
		switch f := strings.Fields(line); f[0] {
		case "mod":
			modules[0] = f[1] + " " + f[2]
		case "dep":
			modules = append(modules, strings.Join(f[1:], " "))
		}
	}
	require.Greater(t, len(modules), 20)
	return modules
}

// billed are the packages of a bill of materials, in the same words.
func billed(t *testing.T, path string) []string {
	t.Helper()
	var document struct {
		SPDXVersion string `json:"spdxVersion"`
		Packages    []struct {
			Name, VersionInfo, SourceInfo string
		}
	}
	require.NoError(t, json.Unmarshal([]byte(read(t, path)), &document))
	require.Equal(t, "SPDX-2.3", document.SPDXVersion)
	var modules []string
	for _, p := range document.Packages {
		modules = append(modules, strings.TrimSpace(fmt.Sprintf("%s %s %s", p.Name, p.VersionInfo,
			strings.TrimPrefix(p.SourceInfo, "go.sum: "))))
	}
	return modules
}

type image struct {
	Created string `json:"created"`
	Config  struct {
		User       string
		Entrypoint []string
		Labels     map[string]string
	} `json:"config"`
	files map[string][]byte
}

type descriptor struct {
	Digest   string
	Platform struct{ Architecture string }
}

// manifests are the images of an archive by their architecture.
func manifests(t *testing.T, blobs map[string][]byte) map[string]image {
	t.Helper()
	decode := func(name string, into any) {
		require.NoError(t, json.Unmarshal(blobs[name], into), "%s: %s", name, blobs[name])
	}
	blob := func(d descriptor) string { return "blobs/" + strings.Replace(d.Digest, ":", "/", 1) }
	var top, index struct{ Manifests []descriptor }
	decode("index.json", &top)
	require.Len(t, top.Manifests, 1)
	decode(blob(top.Manifests[0]), &index)
	images := map[string]image{}
	for _, d := range index.Manifests {
		var manifest struct {
			Config descriptor
			Layers []descriptor
		}
		decode(blob(d), &manifest)
		var i image
		decode(blob(manifest.Config), &i)
		require.Len(t, manifest.Layers, 1)
		file := filepath.Join(t.TempDir(), "layer")
		require.NoError(t, os.WriteFile(file, blobs[blob(manifest.Layers[0])], 0o600))
		i.files = untar(t, file, true)
		images[d.Platform.Architecture] = i
	}
	return images
}

// untar reads the files of an archive.
func untar(t *testing.T, path string, zipped bool) map[string][]byte {
	t.Helper()
	file, err := os.Open(path)
	require.NoError(t, err)
	defer file.Close()
	var source io.Reader = file
	if zipped {
		source, err = gzip.NewReader(file)
		require.NoError(t, err)
	}
	files := map[string][]byte{}
	for r := tar.NewReader(source); ; {
		header, err := r.Next()
		if err == io.EOF {
			return files
		}
		require.NoError(t, err)
		require.True(t, header.Uid == 0 && header.Gid == 0, "%s: %s is not root's", path, header.Name)
		files[header.Name], err = io.ReadAll(r)
		require.NoError(t, err)
	}
}
