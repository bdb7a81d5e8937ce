package coordinator

import (
	"strings"

	"github.com/quorate/quorate/pkg/rollout"
)

// follow watches the pods and their nodes between rollouts, which only the lock's owner does. Where the StatefulSet
// controller rolls the pods, we do nothing beside it, and there is nothing to watch for.
func (l *loop) follow() {
	if !l.c.owned() {
		return
	}
	if !l.sight.seen.Set.OnDelete {
		l.c.workload.FollowLease()
		l.c.workload.Unfollow()
		return
	}
	l.c.workload.Follow(l.sight.seen)
}

// noteLeavers asks for a look at etcd when somebody new is about to go: it may be the leader.
func (l *loop) noteLeavers(pods []rollout.Pod) {
	var leavers []string
	for i := range pods {
		if p := &pods[i]; p.Owned && (p.Leaving != "" || p.Cordoned) {
			leavers = append(leavers, p.UID+p.Leaving)
		}
	}
	if l.leavers = strings.Join(leavers, " "); l.leavers == "" || l.leavers == l.judged || !l.c.owned() {
		return
	}
	wake(l.c.looks)
}
