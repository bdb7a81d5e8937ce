package report

import (
	"github.com/quorate/quorate/test/bench/result"
)

// The names of the two ways to roll a fleet.
const (
	fleetQuorate = "quorate"
	fleetCentral = "central"
)

// paperClusters is what the estimate on paper goes to.
const paperClusters = 100_000

// centralRate is how many requests a second the central controller may make: etcd-druid's
// default, and that of the model in test/bench/fleet.
const centralRate = 100

// paperText says how [estimatesOf] computes, with the names of the measured figures.
const paperText = `Nothing in this table was measured: it is computed from the largest fleet of each kind above, for
N = %s clusters. Per cluster, the figures of that fleet are taken as they are:

* requests a second, idle = N × idle requests / (idle seconds × clusters);
* open watches of Quorate = N × watches / clusters; those of a central controller do not grow, because
  one watch shows it all objects of a kind;
* memory = N × (memory − memory without any cluster) / clusters, and the same for the peak. Of Quorate
  it is spread over all sidecars, of a central controller it is in one process, which has to hold it;
* time to roll all, Quorate = the time of the slowest measured cluster: every cluster is rolled by its
  own sidecars, none waits for another one;
* time to roll all, central controller = N × requests / (rolled clusters × 100), because 100 requests
  a second are what its client may make (etcd-druid's default), but at least the time of the slowest
  measured cluster. Its workers never wait for a pod, so that their number does not limit it;
* requests a second, rolling = N × requests / (rolled clusters × time to roll all);
* time behind one API server = that, but at least N × requests / (rolled clusters × R). R = %s requests a
  second is the most that the API server answered in a measured fleet, and it may be able to do more.
  Nobody has so many clusters behind one; but the time before assumes that every request is answered at
  once, however many there are, and this is the other extreme.

The peak of the memory is that of the measured fleet with the highest one per cluster, because it grows with
the share of clusters that roll at the same time. The estimate assumes that the cost of a cluster does not
depend on how many others there are and that a central controller is never short of CPU. It leaves out that
the API server ends a watch after half an hour to an hour and it is opened again: N of them for Quorate,
three for a central controller.
`

// Estimate is what many clusters would need, computed from a measured fleet.
type Estimate struct {
	Arm      string `json:"arm"`
	Clusters int    `json:"clusters"`
	// Measured is the number of clusters of the fleet that it is computed from, and
	// Workers that of its workers.
	Measured int `json:"measured"`
	Workers  int `json:"workers,omitempty"`
	// IdleRequests are requests a second while nothing is to do, Watches the open ones.
	IdleRequests Number `json:"idleRequestsPerSecond"`
	Watches      Number `json:"watches"`
	// MemoryMiB is what the clusters add when idle, PeakMiB while they roll; of all processes.
	MemoryMiB Number `json:"memoryMiB"`
	PeakMiB   Number `json:"peakMiB"`
	// Roll is how many seconds it takes to roll all, and RollRequests what is asked a second
	// meanwhile. RollShared is the time if all have the API server of the measurement alone.
	Roll         Number `json:"rollSeconds"`
	RollRequests Number `json:"rollRequestsPerSecond"`
	RollShared   Number `json:"rollSharedSeconds"`
}

// estimatesOf computes what so many clusters would need, from the largest measured fleet of
// Quorate and that of a central controller. What was not measured to its end is left out,
// because a rate of nothing says nothing: a fleet without an idle time or a rolled cluster.
func estimatesOf(fleets []result.Fleet, clusters int) []Estimate {
	rate := answered(fleets)
	var estimates []Estimate
	for _, arm := range []string{fleetQuorate, fleetCentral} {
		f, ok := largest(fleets, arm)
		if !ok {
			continue
		}
		scale := Number(clusters) / Number(f.Clusters)
		requests := Number(clusters) * Number(sum(f.Requests)) / Number(f.Rolled)
		e := Estimate{
			Arm: arm, Clusters: clusters, Measured: f.Clusters, Workers: f.Workers,
			IdleRequests: scale * Number(sum(f.IdleRequests)) / Number(f.IdleSeconds),
			Watches:      scale * Number(f.Watches),
			MemoryMiB:    scale * Number(f.MemoryMiB-f.BaseMiB),
			PeakMiB:      Number(clusters) * peak(fleets, arm),
			Roll:         Number(f.Done.Most),
		}
		if arm == fleetCentral {
			e.Watches, e.Roll = Number(f.Watches), max(e.Roll, requests/centralRate)
		}
		// Where not every cluster was rolled, the slowest one is not known.
		if f.Rolled < f.Clusters {
			e.Roll, e.RollShared = never, never
		} else {
			e.RollRequests, e.RollShared = requests/e.Roll, max(e.Roll, requests/rate)
		}
		estimates = append(estimates, e)
	}
	return estimates
}

// peak is the most memory that a cluster added while a fleet of that arm was rolled.
func peak(fleets []result.Fleet, arm string) (most Number) {
	for _, f := range usable(fleets) {
		if f.Arm == arm {
			most = max(most, Number(f.PeakMiB-f.BaseMiB)/Number(f.Clusters))
		}
	}
	return most
}

// usable are the fleets of this release from which rates can be computed.
func usable(fleets []result.Fleet) []result.Fleet {
	return filter(fleets, func(f result.Fleet) bool {
		return f.Clusters > 0 && f.Rolled > 0 && f.IdleSeconds > 0 && f.Seconds > 0 && f.Done.Most > 0 &&
			sum(f.Requests) > 0 && f.Release == "" &&
			(f.Arm == fleetCentral || f.Arm == fleetQuorate)
	})
}

// largest returns the usable fleet of that arm with the most clusters, the first of several.
func largest(fleets []result.Fleet, arm string) (most result.Fleet, ok bool) {
	for _, f := range usable(fleets) {
		if f.Arm == arm && f.Clusters > most.Clusters {
			most, ok = f, true
		}
	}
	return most, ok
}

// answered is the most requests a second that the API server answered while a fleet was rolled.
func answered(fleets []result.Fleet) Number {
	var most Number
	for _, f := range usable(fleets) {
		most = max(most, Number(sum(f.Requests))/Number(f.Seconds))
	}
	return most
}
