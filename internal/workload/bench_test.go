package workload_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate/quorate/internal/workload"
	"github.com/quorate/quorate/pkg/rollout"
)

// facts are those of a StatefulSet and its pods, as every cycle reads them.
func facts(members int) func() (rollout.Set, []rollout.Pod) {
	set := statefulSet()
	var pods []*corev1.Pod
	for i := range members {
		pods = append(pods, pod(func(p *corev1.Pod) { p.Name = fmt.Sprint("etcd-main-", i) }))
	}
	names := workload.DefaultNames()
	return func() (rollout.Set, []rollout.Pod) {
		s := workload.SetFacts(set, names)
		all := make([]rollout.Pod, 0, len(pods))
		for _, p := range pods {
			all = append(all, workload.PodFacts(p, s, names))
		}
		return s, all
	}
}

// BenchmarkFacts is what Kubernetes says made into facts, without the requests.
func BenchmarkFacts(b *testing.B) {
	for _, members := range []int{3, 5, 7} {
		b.Run(fmt.Sprintf("members=%d", members), func(b *testing.B) {
			read := facts(members)
			b.ReportAllocs()
			for b.Loop() {
				if _, pods := read(); len(pods) != members || !pods[0].Ready {
					b.Fatalf("%+v", pods)
				}
			}
		})
	}
}

// Nothing of a pod is copied but its header.
func TestTheFactsOfSevenPodsTakeFewAllocations(t *testing.T) {
	read := facts(7)
	if n := testing.AllocsPerRun(100, func() { read() }); n >= 10 {
		t.Errorf("%v allocations", n)
	}
}
