// Package workload reads a StatefulSet and its pods from Kubernetes, as facts for a decision, and
// removes pods.
//
// Every read is live. A GET and a LIST without a resource version are consistent reads that no cache
// answers. A watch only says that something happened, never what. A coordinator that decides on a stale
// cache takes down a second member (opensearch-k8s-operator#1471, kubernetes#59848).
package workload
