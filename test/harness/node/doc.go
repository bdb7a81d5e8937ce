// Package node is the node agent of the harness: it plays the scheduler, the kubelets of
// several nodes, and of the node controller just what happens when a node is lost. A
// pod's containers run as local processes.
//
// # It is frozen
//
// Real kubelets run the scenarios too (package kubelet). The agent stays for what needs its control, which is
// interleavings, and slow or lost things at chosen moments, and for machines without root. What is new and about nodes
// is proved on real kubelets. The agent changes only where those were seen to do something else that it plays.
//
// # What it does as a kubelet does
//
//   - It reports phases, container states and conditions with the kubelet's reasons:
//     ContainerCreating, PodInitializing, ErrImagePull and ImagePullBackOff for an image
//     that is not in [Config.Images], CreateContainerConfigError,
//     RunContainerError, CrashLoopBackOff; Completed and Error with exit codes; restart
//     counts; conditions whose transition time changes with their status only.
//   - Init containers run in order, then all containers start. They are restarted
//     by the pod's restart policy: the first time at once, then with a back-off that doubles up
//     to a cap and starts anew after a run of twice the cap. A kubelet waits 10 seconds to
//     5 minutes; the default here is 1 to 8 seconds, so that tests do not spend their time
//     waiting ([Config.BackoffBase], [Config.BackoffCap]).
//   - Environment: values with $(VAR) references, and fieldRef. Volumes:
//     persistentVolumeClaim, emptyDir, hostPath, secret, configMap, downwardAPI and projected,
//     with ServiceAccount tokens that are bound to the pod and renewed in time.
//     Secrets and config maps are updated in place. Volumes belong to the fsGroup.
//   - On [network.Namespaces] every container has a root file system of its own (package rootfs):
//     its volumes at their mountPaths, one below another, read-only where the spec says so or the
//     files are made from objects; nothing else of the machine that it could write to. It runs as
//     the user and the groups that the spec or the image says, under the pod's host name, and it
//     reaches the API server as its ServiceAccount by the configuration of programs in a cluster.
//     Probes and [Agent.Exec] share the root of the running container, and a restarted
//     container begins with a new one.
//   - On [network.Namespaces] a pod has a new address, and so has one whose node has booted.
//   - Readiness probes: httpGet, exec. A container is not ready before its
//     probe has succeeded, and never while it does not run.
//   - Deletion: preStop hooks (sleep) while the containers still work, SIGTERM to
//     all containers, SIGKILL after the grace period, which includes the hooks, a last status
//     in a terminal phase, and only when no process is left the API object is deleted,
//     with grace period 0 and the UID as precondition. Before all containers have ended,
//     those that have seem to run, and are ready for as long as their probes find them so.
//   - A pod that is deleted by force is stopped in the same way. Its successor does not wait
//     for that, and works on the same claim beside it. On [network.Loopback] it waits, because
//     it has the same address.
//   - It outlives an API server that is away: containers go on, are restarted and probed,
//     and their states are reported when it is back.
//
// # What is different
//
//   - On [network.Loopback], which needs no root, there is no isolation at all. Wherever the
//     mountPath of a volume occurs as a path in a container's command, arguments, environment or exec
//     probe, the local directory of the volume takes its place. Paths inside of files are left
//     alone. securityContext and readOnly have no effect. A container with its ServiceAccount's token
//     gets a kubeconfig in KUBECONFIG in place of the configuration of programs in a cluster,
//     because programs have the token's path built in, and it would be the machine's own.
//   - On [network.Namespaces] too, containers see all processes of the machine, as if
//     shareProcessNamespace were set for all pods at once, and there are no resource limits. Of
//     securityContext only users, groups, runAsNonRoot, allowPrivilegeEscalation and
//     readOnlyRootFilesystem have an effect: a container that runs as root has root's capabilities on
//     the machine. An image's shell and tools are the machine's, read-only.
//   - fsGroup acts as with fsGroupChangePolicy OnRootMismatch, whatever the policy is.
//   - A hostPath is a folder under [Config.Dir], of its node or of all nodes
//     ([Config.SharedPaths]), never the machine's path ([Agent.HostDir]). Sockets and devices are
//     not supported.
//   - An image is one program ([Image]), which runs instead of the entry point and under any name that
//     command[0] gives it. Beside it every image has a shell: sh or /bin/sh as command[0] is the
//     machine's own. An image without a program has all of the machine's tools.
//   - Pods are bound by ordinal: pod N to node N modulo the number of nodes, of a pool that
//     they may select ([Agent.AddPool]). Nothing else matters. The data of a claim is a
//     directory ([Agent.ClaimDir]) that every node has.
//   - Nodes have no heartbeat: run no node lifecycle controller beside this agent, or it
//     takes them all for lost. See [Agent.LoseNode] for a node that is.
//   - Of the service variables only those of the API server are set (KUBERNETES_SERVICE_HOST and
//     _PORT), and only on [network.Namespaces].
//   - activeDeadlineSeconds, priorityClassName, tolerations, affinity, topologySpreadConstraints, resources and
//     shareProcessNamespace are taken without complaint, and have no effect.
//   - What else is not supported makes a container wait with CreateContainerConfigError and a
//     message, rather than being ignored: readiness gates, liveness and startup
//     probes, readiness probes by TCP or gRPC, postStart hooks, other preStop hooks than sleep,
//     restartable init containers, envFrom, subPath, other sources of values, other volumes.
//
// # Why not virtual-kubelet
//
// github.com/virtual-kubelet/virtual-kubelet v1.11.0 (node.PodController) was considered.
// It deletes the API object of a terminating pod when the grace period is over, whether or
// not its processes have ended (it logs "Force deleting pod in running state"), and at once
// when the statuses in the API show no running container, as between two runs of one that
// crash-loops, although the next run may have begun. A kubelet deletes the object only when
// it knows that nothing runs any more, and that is what Quorate's users rely on: a pod that
// is still there may still write to its volume. The rest of what is needed (supervision,
// probes, volumes, back-off) it leaves to its providers.
package node
