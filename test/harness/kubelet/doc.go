// Package kubelet runs real nodes: for each a real kubelet of the Kubernetes that is tested, with a real container
// runtime (containerd, runc and the plugins for networks, from the packages of the system, unpacked and not installed).
// The scheduler and the controllers of nodes and volumes are real too, see controlplane.Config.RealNodes.
//
// # Two kinds of nodes, one interface
//
// The scenarios know harness.Nodes, harness.Network and harness.Links, which have two implementations: the node agent
// with network.Namespaces (package node), and this package's [Nodes] with its [Network]. QUORATE_NODES chooses.
//
//	the agent                           here
//	a process group gets a signal       all processes of a container's control group get it
//	Exec runs the program again         the same, by the API server and the kubelet, as kubectl exec does
//	a claim is a folder                 a local PersistentVolume on that folder, which all nodes have
//	logs/<pod>/<uid>-<container>-<run>  copies of the runtime's logs under these names
//	LoseNode kills processes, writes    the node's first process is killed, or its kubelet's link to the API server is
//	what the node controller says       cut, and the node controller notices
//	RestoreNode starts them again       the node boots from its disk, with new addresses for its pods
//	a pod of an ordinal has its node    the scheduler chooses, and members keep apart by their anti-affinity
//	an address belongs to a name        every pod has a new one, and DNS leads there
//	links are cut by pods' names        the same, in the pods' real network namespaces
//
// # What a node is
//
// A node is a process, the first one in PID, mount, network, IPC and UTS namespaces of its own, which is this program
// again ([MaybeRun]). It makes itself a root, and joins the network. It starts the container runtime, loads the images,
// and keeps a kubelet running. To kill it is to cut the node's power: nothing in the PID namespace survives. Its disk
// is a folder, so that it boots with the containers and images that it had.
//
//   - The root is an overlay: the machine's files below, and above a layer in memory, which takes all that a node or
//     a pod writes to the machine, as by hostPath. Only the node's disk, and what the harness shares, lie below it.
//   - The sysctls that a kubelet sets belong to the whole machine. Files are mounted over them.
//   - Every node has a bridge for its pods, which is a port of the one bridge of the harness. So all pods, nodes and
//     the harness are on one wire. The bridges have hardware addresses of their own, or they would change with their
//     ports, and nobody would reach a rebooted node for twenty seconds.
//   - Control groups belong to the whole machine as well. A node has one in each hierarchy, and all else of its is
//     below. They are removed before a boot, because a kubelet that found old ones would wait for their end. Behind a
//     harness that was killed, a process that waits for its end removes them.
//   - Kubelets renew their Leases each second, so that the node controller notices a loss after ten seconds. A
//     container that crashes waits for four seconds at most, unless Config.Patient is set.
//   - Images are layers with a static program, and with busybox as their shell.
//   - A node belongs to a pool, and pods select theirs by its label: that of one cluster, which may lose its nodes, or
//     the one without a name, which all others share. The nodes of a cluster that is deleted are free for the next one.
//   - The harness resolves the names of pods by one resolver for all networks that are there ([Resolver]).
//   - There is no kube-proxy. The name of a Service leads to the pods behind it. Only the API server's own Service
//     has its address, which is the harness's proxy.
//
// All addresses are in the namespaces of the harness (network.ReexecInNamespace), and it needs root, an overlay file
// system, and control groups. It has been run with those of version 1.
//
// # What the agent does not show
//
//   - A container's end is told with the kubelet's next look, a second later. Until then its pod may become Ready.
//   - The successor of a pod that is deleted by force starts before its predecessor has ended: two processes of a
//     member were there for two and a half seconds.
//   - After an outage of the API server, a kubelet may take 40 s to hear of its pods again. The scheduler may find
//     that its cache is wrong, and ends itself; it is started again.
package kubelet
