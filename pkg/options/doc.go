// Package options turns flags, a configuration file and the environment into the
// configuration of a coordinator, and says of every bad value under which name its user
// wrote it. The structs are used as etcd-backup-restore uses its own, and the flags are
// named as it names them: AddFlags before the command line is read, then Complete, then
// Validate.
//
//   - [Sidecar] is for a process of its own, quorate sidecar.
//   - [Hosted] is for a host that embeds package coordinator: the flags about rollouts
//     under a prefix, with a toggle. What reaches etcd and Kubernetes is the host's own.
//   - [Client] is for commands that look at a cluster from wherever a person sits; it
//     takes kubectl's flags.
//
// All three share one [Rollout], so that a flag means the same everywhere.
//
// A value is taken from the command line, else from the file, else from the environment,
// else it is the default. The reasons of the defaults stand with the constants of package
// coordinator and with [coordinator.DefaultPolicy], in short also in the help.
package options
