package rollout

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// Version is a version of etcd.
type Version struct{ Major, Minor, Patch int }

// ParseVersion reads a version such as 3.5.27, v3.5.27 or 3.5.27-0, whatever follows the three numbers. It
// reports false for anything else: one that is only half there, such as 3.5, says too little.
func ParseVersion(s string) (Version, bool) {
	s = strings.TrimPrefix(s, "v")
	if end := strings.IndexAny(s, "-+_"); end >= 0 {
		s = s[:end]
	}
	var v Version
	for i, into := range [...]*int{&v.Major, &v.Minor, &v.Patch} {
		number, rest, more := strings.Cut(s, ".")
		n, err := strconv.ParseUint(number, 10, 16)
		if err != nil || more != (i < 2) {
			return Version{}, false
		}
		*into, s = int(n), rest
	}
	return v, true
}

// String returns what [ParseVersion] reads.
func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch) }

// minor is the version without its patch level, which is what etcd calls the version of a cluster.
func (v Version) minor() Version { return Version{v.Major, v.Minor, 0} }

func (v Version) less(other Version) bool { return v.compare(other) < 0 }

func (v Version) compare(other Version) int {
	return cmp.Or(cmp.Compare(v.Major, other.Major), cmp.Compare(v.Minor, other.Minor),
		cmp.Compare(v.Patch, other.Patch))
}

// InWords is a minor version as people write it.
func (v Version) InWords() string { return fmt.Sprintf("%d.%d", v.Major, v.Minor) }

// ImageVersion is what somebody says about an image: which version of etcd is in it.
type ImageVersion struct {
	// Image is the end of an image's name with its tag or digest, such as etcd-wrapper:v0.7.0.
	Image   string
	Version Version
}

// wrappers are the releases of etcd-wrapper, in which the version of etcd is not the image's: by their own
// go.mod. A release that is not among them is not guessed at, nor is v0.8.0: etcd-druid 0.37 renders it for its
// feature gate UpgradeEtcdVersion and says no more of it than etcd 3.5, and its go.mod was not to be had. The last
// one before it, of the branch that became v0.8.0, has 3.5.27.
var wrappers = []struct {
	image string
	etcd  Version
	tags  []string
}{
	{"etcd-wrapper", Version{3, 4, 26}, []string{"v0.1.0", "v0.1.1", "v0.2.0"}},
	{"etcd-wrapper", Version{3, 4, 34}, []string{"v0.3.0", "v0.4.0", "v0.4.1", "v0.4.2", "v0.4.3", "v0.4.4", "v0.5.0",
		"v0.5.1", "v0.5.2", "v0.6.0", "v0.6.1", "v0.6.2"}},
	{"etcd-wrapper", Version{3, 5, 27}, []string{"v0.7.0"}},
}

// versionIn returns the version of etcd in an image. What the operator says comes first. Otherwise the
// image has to be etcd's own by its name, with a tag that is a version, or a known release of etcd-wrapper.
// A tag of any other image is the version of something else.
func versionIn(image string, said []ImageVersion) (Version, bool) {
	for _, s := range said {
		if rest, is := strings.CutSuffix(image, s.Image); is && (rest == "" || strings.HasSuffix(rest, "/")) {
			return s.Version, true
		}
	}
	name, tag := nameAndTag(image)
	if name == "etcd" {
		return ParseVersion(tag)
	}
	for _, w := range wrappers {
		for _, known := range w.tags {
			if name == w.image && tag == known {
				return w.etcd, true
			}
		}
	}
	return Version{}, false
}

// nameAndTag returns the last part of an image's path, and its tag. A digest says the same as the tag
// beside it, and nothing by itself.
func nameAndTag(image string) (name, tag string) {
	image, _, _ = strings.Cut(image, "@")
	name, tag, _ = strings.Cut(image[strings.LastIndex(image, "/")+1:], ":")
	return name, tag
}
