package coordinator

import (
	"context"
	"time"

	"github.com/quorate/quorate/coordinator/election"
	"github.com/quorate/quorate/selfupdate"
)

// releaseTimeout bounds the end: a host that shuts down gives its parts little time.
const releaseTimeout = election.ReleaseTimeout

// releaseRetry is the pause between two attempts to give the record back.
const releaseRetry = releaseTimeout / 10

// electionKeys is where the election of a StatefulSet lives in the etcd that it serves.
func electionKeys(namespace, statefulSet string) string {
	return "/quorate/" + namespace + "/" + statefulSet
}

// newCandidate returns what takes part in the election for us. It needs to know who we are.
func (c *Coordinator) newCandidate() *election.Candidate {
	return election.New(election.Config{
		Dial: c.cfg.Dial, Prefix: electionKeys(c.cfg.Namespace, c.cfg.StatefulSet), Self: c.self,
		AtHome: c.member != "", Where: c.sessionEndpoints, Members: c.addresses,
		TTL: c.cfg.LockTTL, KeepAlive: min(c.cfg.LockTTL/3, c.cfg.FallbackAfter/2), Timeout: c.cfg.ProbeTimeout,
		Changed: c.trigger,
		Failed: func(what string, err error) time.Duration {
			return c.faults.note(c.log, what, err)
		},
		Works:    c.faults.clear,
		Joined:   c.expects,
		Abstains: c.journal.Metrics.Unfit,
		Beside:   c.keepAddresses,
		Log:      c.log,
	})
}

// expects notes that the lock may be handed over to us, if its owner has another revision when we come.
func (c *Coordinator) expects(owner selfupdate.Presence) {
	if c.self.Pod != "" && owner.Revision != "" && owner.Revision != c.self.Revision && owner.Pod != c.self.Pod {
		c.heir.expect(time.Now().Add(c.cfg.Policy.SettleTimeout))
	}
}

// anybody is true if a fit peer waits for the lock. Outside a member's pod there is no need to hand over.
func (c *Coordinator) anybody(ctx context.Context) bool {
	if c.self.Pod == "" {
		return false
	}
	peers, _ := c.peers(ctx)
	return selfupdate.Anybody(peers)
}

// peers are the other sidecars that take part in the election. Without a lock nobody knows them.
func (c *Coordinator) peers(ctx context.Context) (peers []selfupdate.Peer, known bool) {
	t := c.election.Tenure()
	if t == nil {
		return nil, false
	}
	peers, err := t.Peers(ctx)
	if err != nil {
		c.log.WithError(err).Debug("nobody to hand over to")
		return nil, false
	}
	return peers, true
}

// silentSince is since when etcd has confirmed no lock, and now if it never did.
func (c *Coordinator) silentSince(now time.Time) time.Time {
	if last := c.election.Confirmed(); !last.IsZero() {
		return last
	}
	return now
}
