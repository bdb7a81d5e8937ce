package kubelet

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/quorate/quorate/test/harness/node"
	"github.com/quorate/quorate/test/harness/rootfs"
)

// pauseImage is that of the container that holds a pod's namespaces.
const pauseImage = "pause:1"

// users are those of the distroless images.
const users = "root:x:0:0:root:/root:/bin/sh\nnonroot:x:65532:65532:nonroot:/home/nonroot:/bin/sh\n" +
	"nobody:x:65534:65534:nobody:/nonexistent:/bin/sh\n"

// tools are what an image has beside its program, as names of one program.
var tools = strings.Fields("sh sleep cat ls cp mv rm mkdir chmod chown ln echo env true false touch date kill ps " +
	"tail head grep sed find wget stat tar test wc hostname")

// writeImages writes all images as one archive in the layout of the Open Container Initiative. Each has two layers: the
// shell and the users, which all share, and its program.
func writeImages(path, busybox string, images map[string]node.Image) (err error) {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() {
		if e := file.Close(); err == nil {
			err = e
		}
	}()
	a := &archive{tar: tar.NewWriter(file), written: map[string]bool{}}
	if err := a.file("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)); err != nil {
		return err
	}
	shell, err := os.ReadFile(busybox)
	if err != nil {
		return err
	}
	base, err := a.blob("layer.v1.tar", baseLayer(shell))
	if err != nil {
		return err
	}
	var manifests []descriptor
	for _, name := range slices.Sorted(maps.Keys(images)) {
		if images[name].Archive != "" {
			m, err := a.copy(images[name].Archive)
			if err != nil {
				return fmt.Errorf("image %s: %w", name, err)
			}
			manifests = append(manifests, named(m, name))
			continue
		}
		layers := []descriptor{base}
		config := imageConfig{Env: []string{"PATH=/:/bin"}, User: fmt.Sprintf("%d:%[1]d", images[name].User)}
		if program := images[name].Program; program != "" {
			layer, err := a.program(program)
			if err != nil {
				return err
			}
			layers, config.Entrypoint = append(layers, layer), []string{rootfs.ProgramPath(program)}
		}
		m, err := a.image(layers, config)
		if err != nil {
			return err
		}
		manifests = append(manifests, named(m, name))
	}
	pause, err := a.image([]descriptor{base}, imageConfig{Entrypoint: []string{"/bin/sleep", "2147483647"}})
	if err != nil {
		return err
	}
	manifests = append(manifests, named(pause, pauseImage))
	index, err := json.Marshal(map[string]any{"schemaVersion": 2, "manifests": manifests})
	if err != nil {
		return err
	}
	if err := a.file("index.json", index); err != nil {
		return err
	}
	return a.tar.Close()
}

// fullName is an image's name as the runtime has it.
func fullName(image string) string {
	if first, _, found := strings.Cut(image, "/"); found && strings.ContainsAny(first, ".:") {
		return image
	}
	return "docker.io/library/" + image
}

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type imageConfig struct {
	User       string   `json:",omitempty"`
	Entrypoint []string `json:",omitempty"`
	Env        []string `json:",omitempty"`
}

func named(m descriptor, image string) descriptor {
	m.Annotations = map[string]string{"io.containerd.image.name": fullName(image)}
	return m
}

// archive is a layout that is being written.
type archive struct {
	tar     *tar.Writer
	written map[string]bool
}

func (a *archive) file(name string, content []byte) error {
	return addFile(a.tar, name, 0o644, content)
}

// blob adds a blob, once.
func (a *archive) blob(kind string, content []byte) (descriptor, error) {
	sum := sha256.Sum256(content)
	d := descriptor{MediaType: "application/vnd.oci.image." + kind, Digest: "sha256:" + hex.EncodeToString(sum[:]),
		Size: int64(len(content))}
	if a.written[d.Digest] {
		return d, nil
	}
	a.written[d.Digest] = true
	return d, a.file("blobs/"+strings.Replace(d.Digest, ":", "/", 1), content)
}

// copy adds what another archive holds, which has to be one image.
func (a *archive) copy(path string) (descriptor, error) {
	file, err := os.Open(path)
	if err != nil {
		return descriptor{}, err
	}
	defer file.Close()
	var index struct{ Manifests []descriptor }
	for r := tar.NewReader(file); ; {
		switch header, err := r.Next(); {
		case errors.Is(err, io.EOF) && len(index.Manifests) != 1:
			return descriptor{}, fmt.Errorf("%s has %d images, want one", path, len(index.Manifests))
		case errors.Is(err, io.EOF):
			return index.Manifests[0], nil
		case err != nil:
			return descriptor{}, fmt.Errorf("%s: %w", path, err)
		case header.Name == "index.json":
			if err := json.NewDecoder(r).Decode(&index); err != nil {
				return descriptor{}, fmt.Errorf("%s: index.json: %w", path, err)
			}
		case strings.HasPrefix(header.Name, "blobs/sha256/") && header.Typeflag == tar.TypeReg:
			digest := "sha256:" + filepath.Base(header.Name)
			if a.written[digest] {
				continue
			}
			a.written[digest] = true
			content, err := io.ReadAll(r)
			if err != nil {
				return descriptor{}, fmt.Errorf("%s: %s: %w", path, header.Name, err)
			}
			if err := a.file(header.Name, content); err != nil {
				return descriptor{}, err
			}
		}
	}
}

// program adds the layer of a program.
func (a *archive) program(path string) (descriptor, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return descriptor{}, err
	}
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	if err := addFile(w, filepath.Base(path), 0o755, content); err != nil {
		return descriptor{}, err
	}
	if err := w.Close(); err != nil {
		return descriptor{}, err
	}
	return a.blob("layer.v1.tar", layer.Bytes())
}

// image adds the configuration and the manifest of an image.
func (a *archive) image(layers []descriptor, config imageConfig) (descriptor, error) {
	digests := make([]string, len(layers))
	for i := range layers {
		digests[i] = layers[i].Digest // The layers are not compressed, so this is the digest of their content too.
	}
	text, err := json.Marshal(map[string]any{"architecture": runtime.GOARCH, "os": "linux", "config": config,
		"rootfs": map[string]any{"type": "layers", "diff_ids": digests}})
	if err != nil {
		return descriptor{}, err
	}
	c, err := a.blob("config.v1+json", text)
	if err != nil {
		return descriptor{}, err
	}
	if text, err = json.Marshal(map[string]any{"schemaVersion": 2, "config": c, "layers": layers,
		"mediaType": "application/vnd.oci.image.manifest.v1+json"}); err != nil {
		return descriptor{}, err
	}
	return a.blob("manifest.v1+json", text)
}

// baseLayer is the layer that all images share.
func baseLayer(shell []byte) []byte {
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	add := func(h *tar.Header, content []byte) {
		h.Size = int64(len(content))
		if err := w.WriteHeader(h); err != nil {
			panic(err) // It is written to memory, and the headers are ours.
		}
		_, _ = w.Write(content)
	}
	add(&tar.Header{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777}, nil)
	add(&tar.Header{Name: "root/", Typeflag: tar.TypeDir, Mode: 0o700}, nil)
	add(&tar.Header{Name: "home/nonroot/", Typeflag: tar.TypeDir, Mode: 0o700, Uid: 65532, Gid: 65532}, nil)
	add(&tar.Header{Name: "etc/passwd", Mode: 0o644}, []byte(users))
	add(&tar.Header{Name: "bin/busybox", Mode: 0o755}, shell)
	for _, tool := range tools {
		add(&tar.Header{Name: "bin/" + tool, Typeflag: tar.TypeSymlink, Linkname: "busybox", Mode: 0o777}, nil)
	}
	_ = w.Close()
	return layer.Bytes()
}

func addFile(w *tar.Writer, name string, mode int64, content []byte) error {
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(content))}); err != nil {
		return err
	}
	_, err := io.Copy(w, bytes.NewReader(content))
	return err
}
