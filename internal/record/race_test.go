//go:build race

package record_test

// defaultWalks are few under the race detector, which makes a walk ten times slower and
// finds nothing in a pure function.
const defaultWalks = 500
