//go:build !race

package record_test

// defaultWalks take a few seconds.
const defaultWalks = 4000
