package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheConsole(t *testing.T) {
	var out strings.Builder
	c := &console{w: &out}
	took := func() string {
		defer out.Reset()
		return out.String()
	}

	t.Run("prints a line at once", func(t *testing.T) {
		c.Say(red, "first ")
		require.Equal(t, "first\n", took(), "and no colour where there is none")
	})
	t.Run("keeps what is said while somebody else has the terminal", func(t *testing.T) {
		c.Lend()
		c.Say(normal, "second")
		c.Say(normal, "third")
		require.Empty(t, took())
		c.TakeBack()
		c.TakeBack()
		require.Equal(t, "\nMeanwhile, by the timeline:\nsecond\nthird\n", took())
	})
	t.Run("says what is being done before there is a timeline, where the timeline will be", func(t *testing.T) {
		c.Progress("starting")
		require.Equal(t, "           demo      starting\n", took())
	})
	t.Run("does not let a log steer the terminal", func(t *testing.T) {
		c.Say(normal, "evil \x1b[2J\r\nline")
		said := took()
		require.NotContains(t, said, "\x1b")
		require.Equal(t, 1, strings.Count(said, "\n"))
	})
	t.Run("has colours where they are wanted", func(t *testing.T) {
		(&console{w: &out, colour: true}).Say(red, "a")
		require.Equal(t, "\x1b[31ma\x1b[0m\n", took())
	})
}

func TestWhatIsShownOfTheTimeline(t *testing.T) {
	for _, c := range []struct {
		who, what string
		want      bool
	}{
		{"operator", "set the image of etcd to etcd:3.6.16", true},
		{"fault", "etcd of etcd-main-1 crashes at every start until the pod is replaced", true},
		{"sidecar", "etcd-main-1: Remove etcd-main-2: its member serves", true},
		{"etcd", "etcd-main-1 leads, raft term 3", true},
		{"status", "1 of 3 settled", true},
		{"kubectl", "etcd-main   true", true},
		{"api", "etcd-main-2 terminating (2 others Ready, 0 away)", true},
		{"api", "etcd-main-1 PATCH leases quorate-etcd-main: 200", false},
		{"node", "etcd-main-2 Ready", true},
		{"node", "etcd-main-2 NotReady: containers with unready status: [etcd]", true},
		{"node", "etcd-main-2 Gone: nothing is left of it on node-2", true},
		{"node", "etcd-main-2 NotReady etcd: the container has ended", false},
		{"node", "etcd-main-2 Ready etcd", false},
		{"node", "etcd-main-2 Started etcd: pid 18753", false},
		{"node", "etcd-main-2 Bound: to node-2", false},
	} {
		_, ok := shown(c.who, c.what)
		require.Equal(t, c.want, ok, "%s %s", c.who, c.what)
	}
	how, _ := shown("etcd", quorumLost+": 1 of 3 serve")
	require.Equal(t, red, how)
}
