// Package workload is what Kubernetes says of a StatefulSet and its pods, as facts
// for a decision, and the hand that removes a pod.
//
// Every read is live: a GET and a LIST without a resource version are consistent
// reads, never answered from a cache. A watch only says that something happened, never
// what: a coordinator that decides on a stale cache takes down a second member
// (opensearch-k8s-operator#1471, kubernetes#59848).
package workload
