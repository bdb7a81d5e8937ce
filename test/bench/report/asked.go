package report

import (
	"fmt"
	"strings"

	"github.com/quorate/quorate/test/bench/result"
)

// The names of the two ways to roll a fleet.
const (
	fleetQuorate = "quorate"
	fleetCentral = "central"
)

// mostSteps is how many requests a rollout of three members may take, however long its pods do, beside those that only
// keep the record fresh. halved is what its bytes may be of what they were when every look was live.
const (
	mostSteps = 45
	halved    = 0.5
)

// wereBytes are the bytes of a rollout when every look was live, in the cases without clients. They were measured by
// the same proxy, on the last commit before.
var wereBytes = map[string]Number{
	result.Quiet: 2.1 * (1 << 20), result.Quiet30: 4.8 * (1 << 20), result.Quiet120: 13.8 * (1 << 20),
}

// steps are the requests of a rollout that do not only keep the record fresh.
func steps(requests map[string]int) Number { return Number(sum(requests) - requests[result.Renewal]) }

// askedOfAPI are the targets about what a rollout asks of the API server.
func askedOfAPI(run *result.Run) (targets []Target) {
	for _, name := range []string{result.Quiet, result.Quiet30, result.Quiet120} {
		c, all := result.CaseOf(name), of(run.Trials, name, result.Quorate)
		trials := filter(counted(all), func(t result.Trial) bool { return len(t.Requests) > 0 })
		s := spread(trials, func(t result.Trial) Number { return steps(t.Requests) })
		target := Target{
			What: c.Title + ": requests to the API server",
			Wanted: fmt.Sprintf("at most %d in a rollout, beside those that keep the record fresh, every time",
				mostSteps),
			From:    fromTrials(all),
			Verdict: unless(all, verdict(s.N, s.Most <= mostSteps)),
		}
		if s.N > 0 {
			target.Measured = s.counts() + ", and " + renewals(trials).counts() + " to keep the record fresh"
		}
		targets = append(targets, target)

		trials = filter(trials, func(t result.Trial) bool { return t.Bytes > 0 })
		s = spread(trials, func(t result.Trial) Number { return Number(t.Bytes) })
		target = Target{
			What: c.Title + ": bytes to and from the API server",
			Wanted: fmt.Sprintf("at most half of what they were when every look was live (%s MiB), every time",
				written(wereBytes[name]/(1<<20), 1)),
			From: fromTrials(all), Verdict: unless(all, verdict(s.N, s.Most <= halved*wereBytes[name])),
		}
		if s.N > 0 {
			target.Measured = s.times(1.0 / (1 << 20)).in("MiB")
		}
		targets = append(targets, target)
	}
	return append(targets, fleetRequests(run.Fleets), fleetBytes(run.Fleets))
}

func renewals(trials []result.Trial) Spread {
	return spread(trials, func(t result.Trial) Number { return Number(t.Requests[result.Renewal]) })
}

// usable are the fleets of this release from which rates can be computed.
func usable(fleets []result.Fleet) []result.Fleet {
	return filter(fleets, func(f result.Fleet) bool {
		return f.Clusters > 0 && f.Rolled > 0 && f.IdleSeconds > 0 && f.Seconds > 0 && f.Done.Most > 0 &&
			sum(f.Requests) > 0 && f.Release == "" &&
			(f.Arm == fleetCentral || f.Arm == fleetQuorate)
	})
}

// rolledFleets are the fleets of three members that coordinators of this release have rolled to the end.
func rolledFleets(fleets []result.Fleet) []result.Fleet {
	return filter(usable(fleets), func(f result.Fleet) bool {
		return f.Arm == fleetQuorate && f.Members == 3 && f.Rolled == f.Clusters
	})
}

// each is a figure of the fleets, a cluster, with how many clusters each of them has.
func each(fleets []result.Fleet, figure func(result.Fleet) Number, unit string) string {
	var parts []string
	for _, f := range fleets {
		parts = append(parts, fmt.Sprintf("%s%s (%s clusters)", written(figure(f)/Number(f.Rolled), 1), unit,
			grouped(f.Clusters)))
	}
	return strings.Join(parts, ", ")
}

func clustersOf(f result.Fleet) Number { return Number(f.Clusters) }

// centrals are the fleets that a central controller has rolled.
func centrals(fleets []result.Fleet) []result.Fleet {
	return filter(usable(fleets), func(f result.Fleet) bool { return f.Arm == fleetCentral })
}

func fleetRequests(all []result.Fleet) Target {
	fleets := rolledFleets(all)
	figure := func(f result.Fleet) Number { return steps(f.Requests) }
	s := spread(fleets, func(f result.Fleet) Number { return figure(f) / clustersOf(f) })
	return Target{
		What:     "A fleet: requests to the API server",
		Wanted:   fmt.Sprintf("at most %d a cluster in a rollout, beside those that keep the record fresh", mostSteps),
		Measured: each(fleets, figure, ""), From: plural(s.N, "fleet"),
		Beside:  each(centrals(all), figure, " by a central controller"),
		Verdict: verdict(s.N, s.Most <= mostSteps),
	}
}

// fleetBytes compares with the other release that was measured on the same fleet.
func fleetBytes(all []result.Fleet) Target {
	target := Target{
		What: "A fleet: bytes to and from the API server",
		Wanted: "at most half of those by the release in which every look was live, on the same fleet " +
			"(`--fleet-beside`)",
		Verdict: NotMeasured,
	}
	figure := func(f result.Fleet) Number { return Number(f.Bytes) / 1024 }
	fleets := filter(rolledFleets(all), func(f result.Fleet) bool { return f.Bytes > 0 })
	target.Measured, target.From = each(fleets, figure, " KiB a cluster"), plural(len(fleets), "fleet")
	counted := filter(centrals(all), func(f result.Fleet) bool { return f.Bytes > 0 })
	target.Beside = each(counted, figure, " KiB by a central controller")
	var ratios []Number
	for _, f := range fleets {
		for _, other := range all {
			if other.Release != "" && other.Arm == f.Arm && other.Clusters == f.Clusters && other.Over == f.Over &&
				other.Machine == f.Machine && other.Rolled == other.Clusters && other.Bytes > 0 {
				ratios = append(ratios, Number(f.Bytes)/Number(other.Bytes))
			}
		}
	}
	if s := spreadOf(ratios); s.N > 0 {
		target.Measured += "; " + s.with(2) + " of the other release's"
		target.Verdict = verdict(s.N, s.Most <= halved)
	}
	return target
}
