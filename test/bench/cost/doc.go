// Package cost measures what a sidecar costs: a [Sampler] follows the sidecars of a cluster
// through whatever goes on.
package cost
