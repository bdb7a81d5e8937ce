package rollout

// flagSource is where they have been read: every release from 3.4.0 to 3.4.45, 3.5.35, 3.6.16 and 3.7.3, and for 3.8
// the change that the row names. `make versions-flags` reads the first and the last release of each minor version
// again, and compares.
const flagSource = "server/embed/config.go and server/etcdmain/config.go of each release"

// remove is what to do about an argument that has no other form.
const remove = "remove from the template"

// refusals are about the arguments that some releases know and others do not. A release outside of the ranges does not
// start with them.
var refusals = []Check{
	// Gone in 3.5.
	refused("use --log-level for --debug and --log-package-levels, and --log-outputs for --log-output",
		"etcd's CHANGELOG-3.5", []string{"debug", "log-output", "log-package-levels",
			"experimental-backend-bbolt-freelist-type"}, releases{below: Version{3, 5, 0}}),
	refused("remove from the template: 3.5 does not need it", flagSource, []string{"next-cluster-version-compatible"},
		releases{Version{3, 4, 31}, Version{3, 5, 0}}),
	lateRefused("use --logger=zap", "etcd's CHANGELOG-3.5", "logger=capnslog", Version{3, 5, 0}),

	// Gone in 3.6.
	refused("remove from the template, but first make sure that nothing is kept in the v2 store (--enable-v2)",
		"etcd's CHANGELOG-3.6", []string{"enable-v2", "experimental-enable-v2v3", "proxy", "proxy-dial-timeout",
			"proxy-failure-wait", "proxy-read-timeout", "proxy-refresh-interval", "proxy-write-timeout"},
		releases{below: Version{3, 6, 0}}),
	refused("remove from the template, but first make sure that nothing is kept in the v2 store",
		"etcd-io/etcd#18994", []string{"v2-deprecation=not-yet"}, releases{Version{3, 5, 0}, Version{3, 6, 0}}),
	lateRefused("remove from the template: there is no v2 proxy any more", "server/etcdmain/config.go of 3.6",
		"discovery-fallback=proxy", Version{3, 6, 0}),

	// Gone in 3.7.
	refused("remove from the template: only a new cluster uses it, and 3.6 has --discovery-endpoints instead",
		"etcd-io/etcd#20109", []string{"discovery", "discovery-proxy"}, releases{below: Version{3, 7, 0}}),
	refused("use --feature-gates: LeaseCheckpoint=true for experimental-enable-lease-checkpoint, and "+
		"InitialCorruptCheck=true for experimental-initial-corrupt-check; for the others, use the name without "+
		"experimental-",
		"etcd-io/etcd#19959",
		[]string{"experimental-compaction-batch-limit", "experimental-corrupt-check-time",
			"experimental-enable-lease-checkpoint", "experimental-initial-corrupt-check",
			"experimental-peer-skip-client-san-verification"}, releases{below: Version{3, 7, 0}}),
	refused("use the name without experimental-", "etcd-io/etcd#19959",
		[]string{"experimental-watch-progress-notify-interval"}, releases{Version{3, 4, 11}, Version{3, 7, 0}}),
	refused("use the name without experimental-", "etcd-io/etcd#19959",
		[]string{"experimental-warning-apply-duration"}, releases{Version{3, 4, 16}, Version{3, 7, 0}}),
	refused("use --feature-gates=LeaseCheckpointPersist=true", "etcd-io/etcd#19959",
		[]string{"experimental-enable-lease-checkpoint-persist"},
		releases{Version{3, 4, 20}, Version{3, 5, 0}}, releases{Version{3, 5, 2}, Version{3, 7, 0}}),
	refused("use --feature-gates=TxnModeWriteWithSharedBuffer=true for "+
		"experimental-txn-mode-write-with-shared-buffer; for the others, use the name without experimental-",
		"etcd-io/etcd#19959", []string{"experimental-bootstrap-defrag-threshold-megabytes",
			"experimental-distributed-tracing-address", "experimental-distributed-tracing-instance-id",
			"experimental-distributed-tracing-service-name", "experimental-downgrade-check-time",
			"experimental-enable-distributed-tracing", "experimental-memory-mlock",
			"experimental-txn-mode-write-with-shared-buffer"}, releases{Version{3, 5, 0}, Version{3, 7, 0}}),
	refused("use --feature-gates=CompactHashCheck=true for experimental-compact-hash-check-enabled; "+
		"for the others, use the name without experimental-",
		"etcd-io/etcd#19959",
		[]string{"experimental-compact-hash-check-enabled", "experimental-compact-hash-check-time"},
		releases{Version{3, 5, 5}, Version{3, 7, 0}}),
	refused("use the name without experimental-", "etcd-io/etcd#19959",
		[]string{"experimental-distributed-tracing-sampling-rate"}, releases{Version{3, 5, 11}, Version{3, 7, 0}}),
	refused("use --feature-gates=StopGRPCServiceOnDefrag=true for experimental-stop-grpc-service-on-defrag; "+
		"for the others, use the name without experimental-",
		"etcd-io/etcd#19959",
		[]string{"experimental-snapshot-catchup-entries", "experimental-stop-grpc-service-on-defrag"},
		releases{Version{3, 5, 14}, Version{3, 7, 0}}),
	refused("use the name without experimental-", "etcd-io/etcd#19959",
		[]string{"experimental-compaction-sleep-interval"}, releases{Version{3, 5, 16}, Version{3, 7, 0}}),
	refused("use the name without experimental-", "etcd-io/etcd#19959",
		[]string{"experimental-warning-unary-request-duration"}, releases{Version{3, 6, 0}, Version{3, 7, 0}}),

	// Gone in 3.8.
	refused(remove, "etcd-io/etcd#22306", []string{"max-snapshots"},
		releases{below: Version{3, 8, 0}}),
	refused(remove, "etcd-io/etcd#22306", []string{"v2-deprecation"},
		releases{Version{3, 5, 0}, Version{3, 8, 0}}),
	refused(remove, "etcd-io/etcd#21850", []string{"v2-deprecation=write-only-skip-check"},
		releases{Version{3, 5, 32}, Version{3, 6, 0}}, releases{Version{3, 6, 13}, Version{3, 8, 0}}),

	// What came in a release, and has stayed.
	refused(remove, flagSource, []string{"auth-token-ttl", "unsafe-no-fsync"},
		releases{from: Version{3, 4, 10}}),
	refused(remove, flagSource, []string{"max-concurrent-streams"},
		releases{Version{3, 4, 20}, Version{3, 5, 0}}, releases{from: Version{3, 5, 5}}),
	refused(remove, flagSource, []string{"listen-client-http-urls", "tls-max-version", "tls-min-version"},
		releases{Version{3, 4, 25}, Version{3, 5, 0}}, releases{from: Version{3, 5, 8}}),
	refused(remove, flagSource, []string{"backend-bbolt-freelist-type", "client-cert-file", "client-key-file",
		"enable-log-rotation", "log-rotation-config-json", "peer-client-cert-file", "peer-client-key-file",
		"raft-read-timeout", "raft-write-timeout", "self-signed-cert-validity", "socket-reuse-address",
		"socket-reuse-port"}, releases{from: Version{3, 5, 0}}),
	refused("remove from the template; some also have a name that begins with experimental-", flagSource, []string{
		"bootstrap-defrag-threshold-megabytes", "compact-hash-check-time", "compaction-batch-limit",
		"compaction-sleep-interval", "corrupt-check-time", "discovery-cacert", "discovery-cert",
		"discovery-dial-timeout", "discovery-endpoints", "discovery-insecure-skip-tls-verify",
		"discovery-insecure-transport", "discovery-keepalive-time", "discovery-keepalive-timeout", "discovery-key",
		"discovery-password", "discovery-request-timeout", "discovery-token", "discovery-user",
		"distributed-tracing-address", "distributed-tracing-instance-id", "distributed-tracing-sampling-rate",
		"distributed-tracing-service-name", "downgrade-check-time", "enable-distributed-tracing", "feature-gates",
		"log-format", "max-learners", "memory-mlock", "peer-skip-client-san-verification",
		"snapshot-catchup-entries", "warning-apply-duration", "warning-unary-request-duration",
		"watch-progress-notify-interval"}, releases{from: Version{3, 6, 0}}),
	refused(remove, flagSource, []string{"feature-gates=FastLeaseKeepAlive", "feature-gates=PriorityRequest"},
		releases{from: Version{3, 7, 0}}),
}
