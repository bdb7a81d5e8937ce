package kubelet

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/test/harness/node"
)

func TestAnImageThatIsAnArchiveAlreadyIsTakenAsItIs(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "quorate")
	require.NoError(t, os.WriteFile(program, []byte("a program"), 0o600))
	given := filepath.Join(dir, "given.tar")
	image := writeOne(t, given, program)

	all := filepath.Join(dir, "all.tar")
	require.NoError(t, writeImages(all, program, map[string]node.Image{
		"quorate:current": {Archive: given}, "quorate:next": {Archive: given}}))
	files := filesOf(t, all)
	var index struct{ Manifests []descriptor }
	require.NoError(t, json.Unmarshal(files["index.json"], &index))
	require.Len(t, index.Manifests, 3, "both names, and the container of a pod's namespaces")
	for i, name := range []string{"docker.io/library/quorate:current", "docker.io/library/quorate:next"} {
		require.Equal(t, image.Digest, index.Manifests[i].Digest)
		require.Equal(t, name, index.Manifests[i].Annotations["io.containerd.image.name"])
	}
	for name, content := range filesOf(t, given) {
		if filepath.Dir(name) == "blobs/sha256" {
			require.Equal(t, content, files[name])
		}
	}

	require.ErrorContains(t, writeImages(filepath.Join(dir, "more.tar"), program,
		map[string]node.Image{"quorate:current": {Archive: all}}), "all.tar has 3 images, want one")
}

// writeOne writes an archive of one image with this program.
func writeOne(t *testing.T, path, program string) descriptor {
	file, err := os.Create(path)
	require.NoError(t, err)
	defer file.Close()
	a := &archive{tar: tar.NewWriter(file), written: map[string]bool{}}
	layer, err := a.program(program)
	require.NoError(t, err)
	image, err := a.image([]descriptor{layer}, imageConfig{Entrypoint: []string{"/quorate"}})
	require.NoError(t, err)
	index, err := json.Marshal(map[string]any{"schemaVersion": 2, "manifests": []descriptor{image}})
	require.NoError(t, err)
	require.NoError(t, a.file("index.json", index))
	require.NoError(t, a.tar.Close())
	return image
}

func filesOf(t *testing.T, path string) map[string][]byte {
	file, err := os.Open(path)
	require.NoError(t, err)
	defer file.Close()
	files := map[string][]byte{}
	for r := tar.NewReader(file); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		require.NoError(t, err)
		require.NotContains(t, files, header.Name, "no file is there twice")
		files[header.Name], err = io.ReadAll(r)
		require.NoError(t, err)
	}
}
