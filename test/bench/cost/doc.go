// Package cost measures what a sidecar costs, on a running harness:
//
//   - [Idle]: requests, watches, processor time and memory while there is nothing to do.
//   - [Failover]: how long a rollout is without a coordinator when that one ends.
//   - [Embedded]: how much memory the library adds to a host program.
//
// Each makes a cluster of its own name and so can be called once for a harness, and returns what
// it has measured even when it fails half-way. A [Sampler] follows the sidecars of a cluster
// through whatever else is measured.
package cost
