package harness

import "runtime/debug"

// CollectRarely lets this program collect its garbage a quarter as often as Go does by default, for more memory. All
// kubelets, clients and observers are in it, and the proxy before the API server. In a cluster they have processors of
// their own. Here they share a few with what is measured, and would take them for some milliseconds just when a pod has
// become Ready and everybody is busy. What it returns ends that.
func CollectRarely() (back func()) {
	before := debug.SetGCPercent(400)
	return func() { debug.SetGCPercent(before) }
}
