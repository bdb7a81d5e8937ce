package report

import (
	"math"
	"slices"

	"github.com/quorate/quorate/test/bench/result"
)

// The names of the two ways to roll a fleet.
const (
	fleetQuorate = "quorate"
	fleetCentral = "central"
)

// paperClusters is what the estimate on paper goes to.
const paperClusters = 100_000

// paperWorkers are the numbers of workers of a central controller that the estimate looks at
// beside the one that was measured.
var paperWorkers = []int{10, 100, 1000}

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
* time to roll all, central controller with W workers = ⌈N / W⌉ × the time of one cluster, which is
  measured seconds × measured workers / rolled clusters;
* requests a second, rolling = N × requests / (rolled clusters × time to roll all);
* time behind one API server = that, but at least N × requests / (rolled clusters × R). R = %s requests a
  second is the most that the API server answered in a measured fleet, and it may be able to do more.
  Nobody has so many clusters behind one; but the time before assumes that every request is answered at
  once, however many there are, and this is the other extreme.

It assumes that the cost of a cluster does not depend on how many others there are, that a central
controller's workers are never short of CPU or of requests, and that its work is spread evenly among them.
`

// Estimate is what many clusters would need, computed from a measured fleet.
type Estimate struct {
	Arm      string `json:"arm"`
	Workers  int    `json:"workers,omitempty"`
	Clusters int    `json:"clusters"`
	// Measured is the number of clusters of the fleet that it is computed from, and
	// MeasuredWorkers that of its workers.
	Measured        int `json:"measured"`
	MeasuredWorkers int `json:"measuredWorkers,omitempty"`
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
// Quorate and that of a central controller; for the latter with the workers that it had and
// with [paperWorkers]. What was not measured to its end is left out, because a rate of nothing
// says nothing: a fleet without an idle time or a rolled cluster.
func estimatesOf(fleets []result.Fleet, clusters int) []Estimate {
	rate := answered(fleets)
	var estimates []Estimate
	add := func(f result.Fleet, workers int, watches, roll Number) {
		scale := Number(clusters) / Number(f.Clusters)
		requests := Number(clusters) * Number(sum(f.Requests)) / Number(f.Rolled)
		estimates = append(estimates, Estimate{
			Arm: f.Arm, Workers: workers, Clusters: clusters, Measured: f.Clusters, MeasuredWorkers: f.Workers,
			IdleRequests: scale * Number(sum(f.IdleRequests)) / Number(f.IdleSeconds),
			Watches:      watches,
			MemoryMiB:    scale * Number(f.MemoryMiB-f.BaseMiB),
			PeakMiB:      scale * Number(f.PeakMiB-f.BaseMiB),
			Roll:         roll, RollRequests: requests / roll, RollShared: max(roll, requests/rate),
		})
	}
	if f, ok := largest(fleets, fleetQuorate); ok {
		// Where not every cluster was rolled, the slowest one is not known.
		roll := never
		if f.Rolled >= f.Clusters {
			roll = Number(f.Done.Most)
		}
		add(f, 0, Number(clusters)*Number(f.Watches)/Number(f.Clusters), roll)
	}
	if f, ok := largest(fleets, fleetCentral); ok {
		one := Number(f.Seconds) * Number(f.Workers) / Number(f.Rolled)
		workers := append([]int{f.Workers}, paperWorkers...)
		slices.Sort(workers)
		for _, w := range slices.Compact(workers) {
			add(f, w, Number(f.Watches), Number(math.Ceil(float64(clusters)/float64(w)))*one)
		}
	}
	return estimates
}

// usable are the fleets from which rates can be computed.
func usable(fleets []result.Fleet) []result.Fleet {
	return filter(fleets, func(f result.Fleet) bool {
		return f.Clusters > 0 && f.Rolled > 0 && f.IdleSeconds > 0 && f.Seconds > 0 && sum(f.Requests) > 0 &&
			(f.Arm == fleetCentral && f.Workers > 0 || f.Arm == fleetQuorate && f.Done.Most > 0)
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
