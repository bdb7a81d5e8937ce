// Package options turns flags, a configuration file and the environment into the configuration of a
// coordinator. When a value is bad, it names it as its user wrote it. The flags are named like those of
// etcd-backup-restore. Call AddFlags before the command line is parsed.
//
//   - [Sidecar] is for a process of its own, quorate sidecar. Call Complete, then Validate.
//   - [Hosted] is for a host that embeds package coordinator. It has the flags about rollouts under a
//     prefix, with a toggle, and a section for the host's configuration file. How etcd is reached is the
//     host's own business. Call Validate.
//   - [Client] is for commands that look at a cluster from a person's machine. It takes kubectl's
//     flags.
//
// All three share one [Rollout], so that a flag means the same everywhere. Its settings are rows of one table
// ([coordinator.Config.Settings]). The flags, the keys of both files, the help, the errors and docs/settings.md follow
// from the rows.
//
// [PodFromEnv] and [StatefulSetOf] say which pod this is, and what it belongs to.
//
// A value comes from the command line, else from the file, else from the environment, else it is the
// default. The row gives the reason for it, and so does the help.
package options
