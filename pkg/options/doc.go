// Package options turns flags, a configuration file and the environment into the configuration of a
// coordinator. When a value is bad, it names it as its user wrote it. The structs are used like
// etcd-backup-restore's own, and the flags are named like its flags: call AddFlags before the command
// line is parsed, then Complete, then Validate.
//
//   - [Sidecar] is for a process of its own, quorate sidecar.
//   - [Hosted] is for a host that embeds package coordinator. It has the flags about rollouts under a
//     prefix, with a toggle. How etcd and Kubernetes are reached is the host's own business.
//   - [Client] is for commands that look at a cluster from a person's machine. It takes kubectl's
//     flags.
//
// All three share one [Rollout], so that a flag means the same everywhere.
//
// A value comes from the command line, else from the file, else from the environment, else it is the
// default. The constants of package coordinator and [coordinator.DefaultPolicy] give the reason for
// each default. So does the help, in short.
package options
