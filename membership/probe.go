// Probing the members. An observation is as old as its slowest answer, so all of them are asked at once, each under all
// of its URLs, and while the list is still being read.

package membership

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/quorate/quorate/pkg/rollout"
)

// probes are those of one observation. Each member is probed once, for as long as nothing is found that makes it
// another one. Each URL is asked once for a list, whoever advertises it. For another list it is asked anew, because its
// answer may be older than what that list says.
type probes struct {
	o *Observer
	// earlier has the keys of the clients that an earlier observation left.
	earlier []string
	begun   []*probing

	// list counts the lists.
	list int

	mu    sync.Mutex
	asked map[question]*asking
}

// probing is one probe, of a member as it is on a list. The answer is there once done is closed.
type probing struct {
	cluster uint64
	member  rollout.Member
	list    int
	// shared are those of its URLs under which others may answer as well, and relays are not among its URLs.
	shared   []string
	relays   []string
	deadline time.Time
	giveUp   context.CancelFunc
	done     chan struct{}
}

// question is what is asked under one URL. A learner is asked something else than a voter.
type question struct {
	list    int
	key     string
	learner bool
}

// asking is a question under way. The answer is there once done is closed.
type asking struct {
	giveUp context.CancelFunc
	done   chan struct{}
	answer heard
}

// heard is what came from a URL, before anybody has judged whose answer it is.
type heard struct {
	// fault is set where nothing could be asked, or where it says nothing that no answer came. Then there is nothing
	// else.
	fault *rollout.Probe

	status *pb.StatusResponse
	serr   error
	header *pb.ResponseHeader
	rerr   error
	own    listAnswer
	// together is true if status and read went over the same connection.
	together bool
}

// unheard is why neither status nor read were answered, or nil.
func (h *heard) unheard() error {
	if h.serr != nil && h.rerr != nil && !denied(h.rerr) {
		return h.serr
	}
	return nil
}

// end gives up the probes that are running, because nobody waits for them any more.
func (p *probes) end() {
	for _, b := range p.begun {
		b.giveUp()
	}
	for _, b := range p.begun {
		<-b.done
	}
	for _, a := range p.asked { // Nobody asks any more.
		a.giveUp()
	}
	for _, a := range p.asked {
		<-a.done
	}
	p.begun, p.asked = nil, nil
}

// forgetFailures lets the members be asked again that can be reached and have failed. A quorum has just agreed on a
// list, and they may have failed only because there was none a moment ago.
func (p *probes) forgetFailures() {
	p.begun = slices.DeleteFunc(p.begun, func(b *probing) bool {
		if !over(b.done) || b.member.Probe.Read == rollout.Answered {
			return false
		}
		return slices.ContainsFunc(b.member.ClientURLs, func(url string) bool {
			return p.o.clients.connected(key(url))
		})
	})
}

// over is true once a channel has been closed.
func over(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// begin probes the members of a list, each within the timeout, unless that has begun already.
func (p *probes) begin(ctx context.Context, m rollout.Membership) {
	p.list++
	for i := range m.Members {
		p.of(ctx, m, i)
	}
}

// of returns the probe of a member on a list, which may just begin.
func (p *probes) of(ctx context.Context, m rollout.Membership, i int) *probing {
	member := m.Members[i]
	var others []string
	for _, url := range member.ClientURLs {
		if shared(m.Members, member.ID, url) {
			others = append(others, url)
		}
	}
	for _, b := range p.begun {
		if x := &b.member; b.cluster == m.ClusterID && x.ID == member.ID && x.Learner == member.Learner &&
			slices.Equal(x.ClientURLs, member.ClientURLs) && slices.Equal(b.shared, others) {
			return b
		}
	}
	own := p.o.ownURL(member, others)
	asking := ctx
	ctx, giveUp := context.WithCancel(ctx)
	relays := slices.DeleteFunc(slices.Clone(p.o.Relays), func(url string) bool {
		return hasURL(member.ClientURLs, url)
	})
	b := &probing{cluster: m.ClusterID, member: member, list: p.list, shared: others, relays: relays,
		deadline: time.Now().Add(p.o.timeout), giveUp: giveUp, done: make(chan struct{})}
	p.begun = append(p.begun, b)
	go func() {
		defer close(b.done)
		defer giveUp()
		b.member.Probe = p.probe(ctx, asking, b, own)
	}()
	return b
}

// ownURL is the URL under which a member has identified itself before, if it still advertises it as its own.
func (o *Observer) ownURL(member rollout.Member, others []string) string {
	for i := range o.last.Members {
		x := &o.last.Members[i]
		if own := x.Probe.URL; x.ID == member.ID && slices.Contains(member.ClientURLs, own) &&
			!slices.Contains(others, own) {
			return own
		}
	}
	return ""
}

func (p *probes) probe(ctx, asking context.Context, b *probing, own string) rollout.Probe {
	if len(b.member.ClientURLs) == 0 {
		return rollout.Probe{Read: rollout.Failed, Detail: "the member has never started"}
	}
	begin := time.Now()
	answer := p.search(ctx, asking, b, own)
	if p.o.Probed != nil && answer.Read != rollout.NotAsked && !errors.Is(ctx.Err(), context.Canceled) {
		p.o.Probed(time.Since(begin), answer.Read == rollout.Answered)
	}
	if answer.Read != rollout.Answered {
		answer.Barred = barredBy(answer.Detail)
	}
	if len(b.shared) == len(b.member.ClientURLs) {
		answer.OnlyShared = true
		if answer.Read != rollout.Answered {
			answer.Detail += "; " + onlyShared(b.member.ClientURLs)
		}
	}
	return answer
}

// search asks a member under all of its URLs at once, within one deadline. The first answer that carries the member's
// ID is the member's. If one of the URLs is known to be the member's own, the others are asked only if that one brings
// no answer in time.
//
// An answer from a URL that others advertise too waits a moment for one from a URL that is the member's own: that is
// the better one to remember, and to ask for anything else.
func (p *probes) search(ctx, asking context.Context, b *probing, own string) rollout.Probe {
	first, rest := distinct(slices.Concat(b.member.ClientURLs, b.relays)...), []string(nil)
	if own != "" {
		first, rest = []string{own}, slices.DeleteFunc(first, func(url string) bool { return key(url) == key(own) })
	}
	var waiting sync.WaitGroup
	defer waiting.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		probe rollout.Probe
		rank  int
	}
	answers := make(chan answer, len(first)+len(rest))
	ask := func(urls []string) int {
		for _, url := range urls {
			a := p.ask(asking, b, url)
			waiting.Go(func() {
				select {
				case <-a.done:
					probe := b.judge(&a.answer, url)
					answers <- answer{probe, b.rank(probe, url)}
				case <-ctx.Done():
					answers <- answer{}
				}
			})
		}
		return len(urls)
	}
	late := time.NewTimer(headStart)
	defer late.Stop()
	best, waited := answer{rank: -1}, false
	for awaited := ask(first); awaited > 0; {
		select {
		case a := <-answers:
			awaited--
			if a.rank > best.rank {
				best = a
			}
		case <-late.C:
			waited = true
		}
		if best.rank == answeredAsOwn || waited && best.rank == answeredAsShared {
			break
		}
		awaited, rest = awaited+ask(rest), nil
	}
	return best.probe
}

// These are the ranks of the answers of a member's URLs, and the highest one counts.
const (
	saysNothing = iota
	another
	failed
	faulty
	otherCluster
	identified
	answeredAsShared
	answeredAsOwn
)

// others is true for a URL under which others may answer as well.
func (b *probing) others(url string) bool {
	return slices.Contains(b.shared, url) || slices.Contains(b.relays, url)
}

// rank says how much the answer under one URL says of the member. An answer of another member says nothing against this
// one, and neither does a failure under a URL that others answer as well, as long as the member has one of its own. So
// the member is down if its own URL fails. It may be down as well if one of two URLs could not be asked, but that is
// not known.
func (b *probing) rank(p rollout.Probe, url string) int {
	others := b.others(url)
	switch {
	case p.Read == rollout.Answered && others:
		return answeredAsShared
	case p.Read == rollout.Answered:
		return answeredAsOwn
	case p.Status != nil:
		return identified
	case others && len(b.shared) < len(b.member.ClientURLs), slices.Contains(b.relays, url):
		return saysNothing
	case p.Read == rollout.WrongMember:
		return another
	case p.Read == rollout.WrongCluster:
		return otherCluster
	case p.Read == rollout.NotAsked:
		return faulty
	}
	return failed
}

// ask asks under one URL, unless somebody has asked already.
func (p *probes) ask(ctx context.Context, b *probing, url string) *asking {
	q := question{b.list, key(url), b.member.Learner}
	p.mu.Lock()
	defer p.mu.Unlock()
	if a := p.asked[q]; a != nil {
		return a
	}
	ctx, giveUp := context.WithDeadline(ctx, b.deadline)
	a := &asking{giveUp: giveUp, done: make(chan struct{})}
	p.asked[q] = a
	earlier := slices.Contains(p.earlier, q.key)
	go func() {
		defer close(a.done)
		defer giveUp()
		a.answer = p.o.ask(ctx, url, q.learner, earlier)
	}()
	return a
}

// probeAll probes all members of a list in parallel, but for those that have been asked already. Only the clients stay
// open over which a member has answered for itself. If a member does not answer, the next probe then resolves the name
// and connects anew, instead of sitting out a connection back-off.
func (o *Observer) probeAll(ctx context.Context, m *rollout.Membership, p *probes) {
	if m.Linearizable {
		p.forgetFailures()
	}
	p.begin(ctx, *m)
	var answered []string
	for i := range m.Members {
		b := p.of(ctx, *m, i)
		<-b.done
		answer := b.member.Probe
		m.Members[i].Probe = answer
		if answer.Read == rollout.Answered && answer.Status != nil {
			answered = append(answered, key(answer.URL))
		}
	}
	for _, k := range o.clients.keys() {
		if !slices.Contains(answered, k) {
			o.clients.drop(k)
		}
	}
}

// ask asks under one URL. If a connection from an earlier observation brings no answer, that says
// nothing about the member. The connection may have broken since. It then fails at once until its
// back-off is over, however well a restarted member serves by now. Or its other end has vanished
// without a word, and it swallows what is sent. (The chaos tests found a coordinator that had waited
// some seconds for an answer, and then believed that a member was down which had been back for half a
// second.)
//
// So in the first case the member is asked again over a new connection. In the second case it is asked
// the next time, because waiting twice would make the evidence too old.
//
// Whoever else uses the client may have done the same, and have closed it.
func (o *Observer) ask(ctx context.Context, url string, learner, earlier bool) heard {
	client, err := o.clients.get(ctx, url)
	if err == nil {
		h := o.hear(ctx, client, learner)
		unheard := h.unheard()
		closed := status.Code(unheard) == codes.Canceled
		switch {
		case unheard == nil || !earlier && !closed:
			return h
		case status.Code(unheard) == codes.DeadlineExceeded, ctx.Err() != nil:
			return heard{fault: &rollout.Probe{Read: rollout.NotAsked, Detail: "no answer over an old connection: " +
				brief(unheard)}}
		case !closed:
			o.clients.drop(key(url))
		}
		if client, err = o.clients.get(ctx, url); err == nil {
			return o.hear(ctx, client, learner)
		}
	}
	if unreachable(err) {
		return heard{fault: &rollout.Probe{Read: rollout.Failed, Replied: replied(err), Detail: "no connection: " +
			brief(err)}}
	}
	// A fault of our own, such as an unreadable certificate, says nothing about the member.
	return heard{fault: &rollout.Probe{Read: rollout.NotAsked, Replied: replied(err), Detail: err.Error()}}
}

// hear sends a read and a status request at once.
func (o *Observer) hear(ctx context.Context, client *clientv3.Client, learner bool) heard {
	h := heard{own: listAnswer{err: errNotAsked}}
	var wg sync.WaitGroup
	var statusOver, readOver peer.Peer
	wg.Go(func() { h.status, h.serr = o.status(ctx, client, grpc.Peer(&statusOver)) })
	if o.ownLists && !learner { // A learner refuses it.
		wg.Go(func() { h.own = o.list(ctx, client, false) })
	}
	h.header, h.rerr = o.read(ctx, client, learner, grpc.Peer(&readOver))
	wg.Wait()
	h.together = sameConnection(&statusOver, &readOver)
	return h
}

// judge says what the answer under one of its URLs says of the member. Where others may answer as well, nothing is
// taken for the member's that does not carry its ID.
func (b *probing) judge(h *heard, url string) (p rollout.Probe) {
	alone := !b.others(url)
	cluster, member := b.cluster, b.member.ID
	if h.fault != nil {
		p = *h.fault
		p.Replied = p.Replied && alone
		return p
	}
	if h.own.err == nil && h.own.cluster == cluster && h.own.member == member {
		p.OwnList = inWords(h.own)
	}
	if h.serr == nil {
		if p.Read, p.Detail = identify(h.status.Header, cluster, member); p.Read != rollout.Answered {
			p.Replied = alone && replied(h.rerr)
			return p
		}
		p.URL, p.Shared, p.Status = url, !alone, statusOf(h.status)
	}
	p.Replied = alone && (replied(h.serr) || replied(h.rerr))
	status := h.status
	if !alone || !h.together {
		status = nil // It may be another member that has refused the read.
	}
	switch by := readBy(h.header, h.rerr, status); {
	case by != nil:
		if p.Read, p.Detail = identify(by, cluster, member); p.Read != rollout.Answered {
			p.Status, p.URL, p.Shared = nil, "", false
			break
		}
		p.ReadTerm, p.URL, p.Shared = by.RaftTerm, url, !alone
		if h.serr != nil {
			p.Detail = "no status: " + refusal(h.serr, statusDenied)
		}
	case denied(h.rerr):
		// Somebody at this address has passed the read through consensus, but nobody can tell which
		// member it was.
		p.Read, p.Detail = rollout.NotAsked, readDenied
		if h.serr != nil {
			p.Detail += "; no status: " + refusal(h.serr, statusDenied)
		} else {
			p.Detail += "; which member has refused it is not known"
		}
	default:
		p.Read, p.Detail = rollout.Failed, "no linearizable read: "+brief(h.rerr)
		if b.member.Learner {
			p.Detail = "no read: " + brief(h.rerr)
		}
	}
	return p
}
