// Package cost measures what a sidecar costs, on a running harness:
//
//   - [Idle]: requests, watches, processor time and memory while there is nothing to do.
//   - [Failover]: how long a rollout is without a coordinator when that one ends.
//   - [Embedded]: how much memory the library adds to a host program.
//   - [Hosts]: what etcd-backup-restore costs without Quorate and with it, beside a sidecar of Quorate's own.
//
// Each makes clusters of its own names and so can be called once for a harness, and returns what
// it has measured even when it fails half-way. A [Sampler] follows the sidecars of a cluster
// through whatever else is measured.
package cost
