package workload

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// drainers are the taints with which those who take nodes away mark a node before they take its pods. Their effect is
// mostly NoSchedule, and most of them do not cordon.
//
// A toleration does not spare the pod, because the whole machine goes. Not even Karpenter's: it evicts no pod that
// tolerates its taint, and then ends the machine under it (https://karpenter.sh/docs/concepts/disruption, Termination
// Controller).
//
// Taints that merely prefer that pods go elsewhere announce nothing, such as the cluster autoscaler's
// DeletionCandidateOfClusterAutoscaler, kured's weave.works/kured-node-reboot and Cluster API's
// node.cluster.x-k8s.io/outdated-revision.
var drainers = []struct{ taint, does string }{
	// kubernetes-sigs/karpenter, pkg/apis/v1/taints.go.
	{"karpenter.sh/disrupted", "Karpenter is about to remove it"},
	// The same before Karpenter 1.0: its upgrade guide, https://karpenter.sh/v1.0/upgrading/v1-migration.
	{"karpenter.sh/disruption", "Karpenter is about to remove it"},
	// kubernetes/autoscaler, cluster-autoscaler/utils/taints/taints.go. It is NoSchedule (kubernetes/autoscaler#1136).
	{"ToBeDeletedByClusterAutoscaler", "the cluster autoscaler is about to delete it"},
	// kubernetes/autoscaler, cluster-autoscaler/cloudprovider/oci/nodepools/consts/annotations.go.
	{"ignore-taint.cluster-autoscaler.kubernetes.io/oke-impending-node-termination",
		"the cluster autoscaler is about to delete it"},
	// aws/aws-node-termination-handler, pkg/node/node.go. Its option taint-effect is NoSchedule unless set.
	{"aws-node-termination-handler/spot-itn", "AWS is about to take the spot instance"},
	{"aws-node-termination-handler/scheduled-maintenance", "AWS is about to maintain the instance"},
	{"aws-node-termination-handler/asg-lifecycle-termination", "AWS is about to terminate the instance"},
	{"aws-node-termination-handler/rebalance-recommendation", "AWS may soon take the spot instance"},
	// GoogleCloudPlatform/k8s-node-termination-handler, deploy/k8s.yaml.
	{"cloud.google.com/impending-node-termination", "GCE is about to terminate the machine"},
	// https://cloud.google.com/kubernetes-engine/distributed-cloud/bare-metal/docs/how-to/maintenance-mode.
	{"baremetal.cluster.gke.io/maintenance", "Google Distributed Cloud drains it for maintenance"},
	// maksim-paskal/aks-node-termination-handler, pkg/api/api.go: the types of Azure's scheduled events.
	{"aks-node-termination-handler/preempt", "Azure is about to take the spot machine"},
	{"aks-node-termination-handler/terminate", "Azure is about to delete the machine"},
	{"aks-node-termination-handler/reboot", "Azure is about to reboot the machine"},
	{"aks-node-termination-handler/redeploy", "Azure is about to move the machine"},
	// castai/spot-handler, handler.go.
	{"autoscaling.cast.ai/draining", "CAST AI drains it"},
}

// drainedFor says in words what a taint of its node announces to a pod, or nothing. The operator may know of more
// drainers, by the keys of their taints.
func drainedFor(t *corev1.Taint, more []string) string {
	if t.Effect == corev1.TaintEffectPreferNoSchedule {
		return ""
	}
	for _, d := range drainers {
		if d.taint == t.Key {
			return d.does
		}
	}
	if slices.Contains(more, t.Key) {
		return "a drainer named by drain-taints is about to take it"
	}
	return ""
}
