package page_test

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorate/quorate/coordinator"
	"github.com/quorate/quorate/pkg/page"
)

// A host mounts the page beside what it serves already.
func ExampleHandler() {
	var c *coordinator.Coordinator    // from coordinator.New
	var registry *prometheus.Registry // the host's own; Config.Metrics of the coordinator as well

	mux := http.NewServeMux()
	mux.Handle("/quorate/", http.StripPrefix("/quorate", page.Handler(page.Config{
		Source: c, Gatherer: registry, Namespace: "garden", StatefulSet: "etcd-main", PodName: "etcd-main-0",
	})))
}
