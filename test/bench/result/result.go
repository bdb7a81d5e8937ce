// Package result is what the benchmarks measure: plain values that are written as JSON while
// they run and read again for the report. Times are seconds unless a name says otherwise,
// and counted from the change of the pod template.
package result

import "time"

// Renewal is the kind of a request that only keeps a record fresh, or tells news on it. Runs from before these were
// told apart have none.
const Renewal = "renew leases"

// RealNodes are nodes with kubelets and a container runtime. Otherwise an agent runs containers as processes.
const RealNodes = "kubelet"

// Run is everything that one call of the benchmarks has measured. Whatever was left out is
// empty.
type Run struct {
	Header    Header     `json:"header"`
	Trials    []Trial    `json:"trials,omitempty"`
	Failovers []Failover `json:"failovers,omitempty"`
	Idle      []Idle     `json:"idle,omitempty"`
	Embedded  []Embedded `json:"embedded,omitempty"`
	Hosts     []Host     `json:"hosts,omitempty"`
	Fleets    []Fleet    `json:"fleets,omitempty"`
	// Elsewhere are the parts that were measured on another machine than the header's, and which one that was; see
	// [Join]. A fleet names its own.
	Elsewhere map[Part]string `json:"elsewhere,omitempty"`
}

// Header says where and how it was measured.
type Header struct {
	Began   time.Time `json:"began"`
	Seconds float64   `json:"seconds"`
	// Sittings is in how many runs all of it was measured, where it was more than one; see [Join].
	Sittings int `json:"sittings,omitempty"`
	// Version is the commit of the checkout, with "-dirty" where it differs from it. Of a joined run it may be several.
	Version string `json:"version"`
	// CPU is the processor's model, Cores how many of it there are.
	CPU   string `json:"cpu"`
	Cores int    `json:"cores"`
	// MemoryMiB is the machine's memory.
	MemoryMiB int64 `json:"memoryMiB"`
	// Kernel, Go, Kubernetes and Etcd are versions; of etcd those before and after the update.
	Kernel     string   `json:"kernel"`
	Go         string   `json:"go"`
	Kubernetes string   `json:"kubernetes"`
	Etcd       []string `json:"etcd"`
	// Lanes is how many trials ran at a time, but for those that always run alone.
	Lanes int `json:"lanes"`
	// Network is the harness's network mode, Seed what the order was drawn from.
	Network string `json:"network"`
	Seed    uint64 `json:"seed"`
	// StartDelay is how long a pod takes before its containers start, ReadinessPeriod the time
	// between two readiness probes.
	StartDelay      float64 `json:"startDelay"`
	ReadinessPeriod float64 `json:"readinessPeriod"`
	// Short is true for a run that only shows that the benchmarks work.
	Short bool `json:"short,omitempty"`
}

// Trial is one update of one cluster by one arm in one case.
type Trial struct {
	// Case and Arm are their stable names, such as "healthy-3" and "quorate".
	Case string `json:"case"`
	Arm  string `json:"arm"`
	// Round counts the repetitions of the whole plan from 1, Position the trials of the run.
	Round    int `json:"round"`
	Position int `json:"position"`
	// Members is the number of replicas, Leader the ordinal that led when the template was
	// changed (-1: nobody did).
	Members int `json:"members"`
	Leader  int `json:"leader"`
	// Began is when the template was changed; all seconds below count from here.
	Began time.Time `json:"began"`

	// Completed is true if every pod was Ready at the new revision within Limit seconds.
	// Seconds is when the last one was; of a trial that did not complete, how long it was watched.
	Completed bool    `json:"completed"`
	Seconds   float64 `json:"seconds"`
	Limit     float64 `json:"limit"`
	// Downs are the times for which pods were down because they were replaced, in the order of
	// the removals.
	Downs []Down `json:"downs,omitempty"`
	// DownSeconds is the sum of those, which one at a time cannot be faster than; Ratio is
	// Seconds divided by it. Both are 0 where a pod did not come back.
	DownSeconds float64 `json:"downSeconds,omitempty"`
	Ratio       float64 `json:"ratio,omitempty"`
	// FirstAction is when the first pod was removed or the first planned change of leader was
	// made; -1 if nothing was done.
	FirstAction float64 `json:"firstAction"`
	// Gaps are the seconds from a replaced pod's being Ready, which etcd's own readiness only is
	// when its member serves, to the next removal, where one at a time is replaced.
	Gaps []float64 `json:"gaps,omitempty"`
	// BudgetWaits and OwnGaps are the two parts of each gap. First the PodDisruptionBudget does not allow the
	// next eviction yet (0 where it does already, or where pods are deleted, which no budget sees). From then
	// on nobody but whoever removes the pods takes time. Runs from before these were measured have neither.
	BudgetWaits []float64 `json:"budgetWaits,omitempty"`
	OwnGaps     []float64 `json:"ownGaps,omitempty"`

	// WithoutQuorum is for how many seconds no write and no linearizable read was possible,
	// QuorumBack when that ended for the last time (0: quorum was never lost; -1: never).
	WithoutQuorum float64 `json:"withoutQuorum"`
	QuorumBack    float64 `json:"quorumBack,omitempty"`
	// FewestServing and FewestReady are the fewest voters that served and pods that were Ready
	// at once, a member that the case itself takes down included.
	FewestServing int `json:"fewestServing"`
	FewestReady   int `json:"fewestReady"`
	// WriteStall is the longest time without an acknowledged write of one writer.
	WriteStall float64 `json:"writeStall"`
	// ReadStall is the longest time without an answer to a linearizable read of one reader. Runs from before it was
	// measured have none.
	ReadStall float64 `json:"readStall,omitempty"`
	// Writes counts the writes; Failed those that no member acknowledged, Retried those that
	// needed another member. Lost were acknowledged and are not there; Unverified is the number
	// of those that could not be checked.
	Writes     int `json:"writes"`
	Failed     int `json:"failed"`
	Retried    int `json:"retried"`
	Lost       int `json:"lost"`
	Unverified int `json:"unverified,omitempty"`
	// MedianLatency and P99Latency are those of acknowledged writes during the update, from
	// the first attempt on.
	MedianLatency float64 `json:"medianLatency"`
	P99Latency    float64 `json:"p99Latency"`
	// Planned changes of leader were handed over by the old leader, Unplanned ones won by a
	// member whose election timeout had passed. Both are read from etcd's own logs.
	Planned   int `json:"planned"`
	Unplanned int `json:"unplanned"`
	// Changes are these changes of leader, one by one, with what clients saw beside them. Runs from before that was
	// measured have none, nor have those without clients.
	Changes []Change `json:"changes,omitempty"`

	// Requests are what sidecars asked of the API server, by verb and resource ("list pods");
	// for a watch that is its beginning, and [Renewal] is told apart.
	Requests map[string]int `json:"requests,omitempty"`
	// Bytes are those of the bodies of these requests and their answers, those of watches too. Runs from before they
	// were counted have none.
	Bytes int64 `json:"bytes,omitempty"`
	// Audited is what kube-apiserver itself counted meanwhile. Runs from before that was measured have none.
	Audited *Audited `json:"audited,omitempty"`
	// Etcd is what all members received meanwhile, by service and method ("KV/Range"), where
	// the case has no clients. What a member received in the last tenth of a second before its
	// process ended is not counted.
	Etcd map[string]int `json:"etcd,omitempty"`
	// Usage is that of the sidecars of all pods together, while the update went on.
	Usage Usage `json:"usage"`

	// Nodes is what the pods ran on: [RealNodes], or nothing for those of the agent.
	Nodes string `json:"nodes,omitempty"`
	// Took is how long all of it took, from before its cluster was created until it was deleted. Runs from before it
	// was measured have none.
	Took float64 `json:"took,omitempty"`

	// Note is what the case did beside the change of the template, in words.
	Note string `json:"note,omitempty"`
	// StoodStill is the longest time for which the machine did nothing meanwhile: a small write beside the members'
	// data was not done, or no processor was free. Runs from before it was measured have none.
	StoodStill float64 `json:"stoodStill,omitempty"`
	// Trouble is why the trial could not be measured as it should; such a trial counts for
	// nothing and is reported.
	Trouble string `json:"trouble,omitempty"`
}

// Audited are the requests in the API server's audit log, by whose account it was, and by verb and resource. A watch
// counts when it is opened, and what keeps a record fresh is not told apart.
type Audited struct {
	Sidecars map[string]int `json:"sidecars"`
	// Controller is what the StatefulSet controller has asked.
	Controller map[string]int `json:"controller"`
}

// Down is one pod's absence because of its replacement.
type Down struct {
	Pod string `json:"pod"`
	// Removed is when it began to terminate, Ready when its successor was Ready, -1 if it never was.
	Removed float64 `json:"removed"`
	Ready   float64 `json:"ready"`
}

// Beside is how long before and after a change of leader clients are taken to have seen it, in seconds: as long as they
// wait for an answer.
const Beside = 1.0

// Change is one change of leader, and what clients saw within [Beside] of it.
type Change struct {
	// At is when the new leader won, Planned whether the old one had asked it to take over.
	At      float64 `json:"at"`
	Planned bool    `json:"planned"`
	// Failed and Retried are the writes that no member acknowledged, and those that needed another member.
	Failed  int `json:"failed"`
	Retried int `json:"retried"`
	// ReadStall and WriteStall are the longest times without an answer to one client, as in the [Trial].
	ReadStall  float64 `json:"readStall"`
	WriteStall float64 `json:"writeStall"`
}

// Usage is what processes needed.
type Usage struct {
	// Processes is of how many processes it is the sum or the highest.
	Processes int `json:"processes"`
	// CPUSeconds is the sum.
	CPUSeconds float64 `json:"cpuSeconds"`
	// Anonymous and Resident are the most that one process occupied, in MiB: what it allocated
	// itself, and with the pages of its binary.
	Anonymous float64 `json:"anonymousMiB"`
	Resident  float64 `json:"residentMiB"`
}

// Failover is one change of coordinator in the middle of a rollout.
type Failover struct {
	// How is "graceful" (SIGTERM) or "SIGKILL".
	How   string `json:"how"`
	Round int    `json:"round"`
	// LockTTL is the sidecars' --lock-ttl.
	LockTTL float64 `json:"lockTTL"`
	// Seconds is the time from the signal until another sidecar holds the record and has
	// decided.
	Seconds float64 `json:"seconds"`
}

// Idle is one sidecar while there is nothing to do.
type Idle struct {
	// Role is "holder" (of the lock) or "waiter".
	Role    string  `json:"role"`
	Members int     `json:"members"`
	Seconds float64 `json:"seconds"`
	// Kubernetes and Etcd are requests a minute, by kind; an open watch is none.
	Kubernetes map[string]float64 `json:"kubernetes,omitempty"`
	// Etcd is what members received from all sidecars together.
	Etcd map[string]float64 `json:"etcd,omitempty"`
	// Watches is how many watches of the API server were open.
	Watches int `json:"watches"`
	// CPUPercent is that of one core.
	CPUPercent float64 `json:"cpuPercent"`
	Usage      Usage   `json:"usage"`
}

// Embedded is the host program with and without the library.
type Embedded struct {
	// When is "idle" or "rollout".
	When string `json:"when"`
	// Without and With are the host's anonymous resident memory in MiB.
	Without float64 `json:"withoutMiB"`
	With    float64 `json:"withMiB"`
	Round   int     `json:"round"`
}

// NoResource is the kind of a request for no resource of Kubernetes', such as for the list of those that there are.
const NoResource = "no resource"

// The programs of a [Host].
const (
	HostAlone      = "etcd-backup-restore"
	HostQuorate    = "etcd-backup-restore with Quorate"
	HostStandalone = "Quorate's own sidecar"
)

// Host is what the sidecars of one cluster need, idle or in a rollout.
type Host struct {
	// Program runs in the sidecars.
	Program string `json:"program"`
	// When is "idle" or "rollout".
	When    string `json:"when"`
	Members int    `json:"members"`
	// Seconds is for how long they were watched: in a rollout until all pods were updated and its coordinator was done.
	Seconds float64 `json:"seconds"`
	// Kubernetes is what all sidecars asked of the API server in that time, by verb and resource, [Renewal] told apart,
	// and Bytes are those of the bodies of requests and answers, of watches too.
	Kubernetes map[string]int `json:"kubernetes,omitempty"`
	Bytes      int64          `json:"bytes"`
	// Etcd is what all members received, by service and method. Etcd-wrapper's own requests are among it.
	Etcd map[string]int `json:"etcd,omitempty"`
	// Usage is the sum of the sidecars' processor time, and the most memory that one of them occupied.
	Usage Usage `json:"usage"`
}

// Fleet is many StatefulSets under one way to roll them.
type Fleet struct {
	// Arm is "quorate" or "central".
	Arm string `json:"arm"`
	// Workers is how many StatefulSets the central controller rolls at a time.
	Workers int `json:"workers,omitempty"`
	// Release names the program of another release whose coordinators these were.
	Release  string `json:"release,omitempty"`
	Clusters int    `json:"clusters"`
	Members  int    `json:"members"`
	// PodDown is for how many seconds a replaced pod was down.
	PodDown float64 `json:"podDown"`
	// Over is the time over which the templates changed, 0 if all did at once.
	Over float64 `json:"over,omitempty"`
	// IdleSeconds is how long the idle fleet was watched, IdleRequests what was asked of the API
	// server in that time, by verb and resource, and IdleBytes what it took; Watches are those open at its end.
	IdleSeconds  float64        `json:"idleSeconds"`
	IdleRequests map[string]int `json:"idleRequests,omitempty"`
	IdleBytes    int64          `json:"idleBytes,omitempty"`
	IdleCPU      float64        `json:"idleCPUSeconds"`
	Watches      int            `json:"watches"`
	// MemoryMiB is the process's anonymous memory when idle, BaseMiB that without any cluster;
	// PeakMiB the most during the rollout.
	BaseMiB   float64 `json:"baseMiB"`
	MemoryMiB float64 `json:"memoryMiB"`
	PeakMiB   float64 `json:"peakMiB"`
	// Seconds is how long it took to roll all, Rolled how many were rolled in that time, and
	// Requests what was asked, [Renewal] included. Bytes are those of the bodies of requests and answers, of watches
	// too; runs from before they were counted have none.
	Seconds  float64        `json:"seconds"`
	Rolled   int            `json:"rolled"`
	Requests map[string]int `json:"requests,omitempty"`
	Bytes    int64          `json:"bytes,omitempty"`
	CPU      float64        `json:"cpuSeconds"`
	// FirstAction are quantiles of the seconds from the change of a template to the first
	// removal in that cluster, Done of those to its last pod's being Ready; of the clusters that
	// got there.
	FirstAction Quantiles `json:"firstAction"`
	Done        Quantiles `json:"done"`
	// Note says what else has to be known.
	Note string `json:"note,omitempty"`
	// Machine is where it was measured, unless that is where the rest of the run was; see [Join].
	Machine string `json:"machine,omitempty"`
}

// Quantiles of many values.
type Quantiles struct {
	Median float64 `json:"median"`
	P99    float64 `json:"p99"`
	Most   float64 `json:"most"`
}

// Quantile of sorted values, by the nearest rank; zero of none.
func Quantile[T any](sorted []T, percent int) (value T) {
	if len(sorted) > 0 {
		value = sorted[(len(sorted)*percent+99)/100-1]
	}
	return value
}
