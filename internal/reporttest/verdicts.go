package reporttest

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Verdicts are the words that the metric says, as the status writes them. Every alert begins with one, and
// test/monitoring has what the alerts make of the metric.
func Verdicts(g prometheus.Gatherer) ([]string, error) {
	families, err := g.Gather()
	if err != nil {
		return nil, err
	}
	var words []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == "quorate_verdict" && l.GetName() == "safety" && m.GetGauge().GetValue() == 1 {
					words = append(words, strings.ToUpper(strings.ReplaceAll(l.GetValue(), "_", " ")))
				}
			}
		}
	}
	return words, nil
}
