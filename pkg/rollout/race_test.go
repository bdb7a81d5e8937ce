//go:build race

package rollout_test

// raceDetector is true when the tests run under the race detector, which makes the
// enumeration ten times slower and finds nothing in a pure function.
const raceDetector = true
