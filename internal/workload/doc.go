// Package workload shows what Kubernetes says of a StatefulSet, of its pods and their nodes, of the
// PodDisruptionBudget and the Lease, as facts for a decision. One [View] reads and watches all of it, and removes
// pods.
//
// Every read is live. A GET and a LIST without a resource version are consistent reads that no cache
// answers. A coordinator that removes a pod on a stale cache takes down a second member
// (opensearch-k8s-operator#1471, kubernetes#59848). So what the watches tell may keep a rollout waiting, and
// never lets it go on: see [View.Cached] and [View.Confirm].
package workload
