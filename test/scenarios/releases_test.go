package scenarios

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/quorate/quorate/test/harness"
	"github.com/quorate/quorate/test/harness/build"
)

// Two releases share one Lease and one queue for the lock while Quorate itself is rolled, and nobody looks at which of
// them acts. The older one here may even be from before the record knew operations on members.
func TestQuorateItselfIsUpgradedAndRolledBack(t *testing.T) {
	if os.Getenv(harness.PreviousVariable) == "" && os.Getenv(harness.ImageVariable) == "" {
		t.Skip("needs another release: make test-skew or make test-release-nodes")
	}
	t.Parallel()
	ctx, s := newCluster(t, harness.Loopback, harness.Spec{Name: "releases", PlainText: true})
	older, newer := s.binary("at first"), ""
	rolled := func(s *scene, change func()) outcome {
		old := s.uids(ctx)
		o := s.during(ctx, func(*harness.Ledger) { change(); s.complete(ctx) })
		o.lostNothing(s.t)
		o.keptQuorum(s.t)
		o.oneAtATime(s.t)
		o.replacedOnce(s.t, s.Pods()...)
		o.ledByNewCode(s.t, old)
		return o
	}
	release := func(image string) func(*corev1.PodTemplateSpec) {
		return func(template *corev1.PodTemplateSpec) { container(template, "backup-restore").Image = image }
	}

	t.Run("the older release rolls its pods", func(t *testing.T) {
		s := s.in(t)
		rolled(s, func() { s.touch(ctx, "older") })
	})
	t.Run("it brings in the newer one, which goes on", func(t *testing.T) {
		s := s.in(t)
		rolled(s, func() { s.change(ctx, "the newer release", release(harness.SidecarNext)) })
		newer = s.binary("after the upgrade")
		require.NotEqual(t, older, newer, "another binary runs")
	})
	t.Run("the newer release rolls its pods", func(t *testing.T) {
		s := s.in(t)
		rolled(s, func() { s.touch(ctx, "newer") })
	})
	t.Run("it brings back the older one, which goes on", func(t *testing.T) {
		s := s.in(t)
		rolled(s, func() { s.change(ctx, "back to the older release", release(harness.Sidecar)) })
		require.Equal(t, older, s.binary("after the way back"), "the first binary runs again")
	})
	t.Run("an upgrade is taken back after its first pod", func(t *testing.T) {
		s := s.in(t)
		o := s.during(ctx, func(*harness.Ledger) {
			s.change(ctx, "the newer release", release(harness.SidecarNext))
			require.Eventually(t, func() bool {
				return slices.ContainsFunc(s.Pods(), func(pod string) bool {
					sum, _ := s.sumOf(pod) // An error says that it does not run yet.
					return sum == newer
				})
			}, time.Minute, 20*time.Millisecond, "a sidecar of the newer release")
			s.change(ctx, "no, the older one", release(harness.Sidecar))
			s.complete(ctx)
		})
		o.lostNothing(t)
		o.keptQuorum(t)
		o.oneAtATime(t)
		o.noneByItself(t)
		require.Contains(t, o.order[1:], o.order[0], "the first pod goes back as well")
		require.Equal(t, older, s.binary("in the end"))
	})
}

// binary is what runs as the sidecar in all pods.
func (s *scene) binary(when string) string {
	s.t.Helper()
	same := ""
	for _, pod := range s.Pods() {
		sum, err := s.sumOf(pod)
		require.NoError(s.t, err)
		if same == "" {
			same = sum
		}
		require.Equal(s.t, same, sum, "%s: %s runs another binary", when, pod)
	}
	return same
}

func (s *scene) sumOf(pod string) (string, error) {
	pid, running := s.env.Nodes.PID(pod, "backup-restore")
	if !running {
		return "", fmt.Errorf("the sidecar of %s does not run", pod)
	}
	file, err := os.Open(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return "", err
	}
	defer file.Close()
	sum := sha256.New()
	_, err = io.Copy(sum, file)
	return fmt.Sprintf("%x", sum.Sum(nil)), err
}

func TestThePolicyNamesOnlyTestsThatAreThere(t *testing.T) {
	t.Parallel()
	root, err := build.Root()
	require.NoError(t, err)
	page, err := os.ReadFile(filepath.Join(root, "docs", "policy.md"))
	require.NoError(t, err)
	names := regexp.MustCompile("`(Test[A-Z][A-Za-z0-9]+)`").FindAllStringSubmatch(string(page), -1)
	require.NotEmpty(t, names)
	var code strings.Builder
	for _, folder := range []string{"coordinator", "internal/record", "pkg/rollout", "test/scenarios"} {
		files, err := filepath.Glob(filepath.Join(root, folder, "*_test.go"))
		require.NoError(t, err)
		require.NotEmpty(t, files, folder)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			code.Write(text)
		}
	}
	for _, name := range names {
		require.True(t, strings.Contains(code.String(), "func "+name[1]+"(t *testing.T)"), "%s is not there", name[1])
	}
}
