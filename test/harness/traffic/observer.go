package traffic

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
)

const (
	defaultPeriod  = 100 * time.Millisecond
	defaultTimeout = time.Second

	// askAgain is how long a refused read waits before it is tried again.
	askAgain = 10 * time.Millisecond
)

// ObserverConfig says where the cluster is and how closely to look.
type ObserverConfig struct {
	// Endpoints returns the client URLs of the members, one each. It is called for
	// every sample and must not block. Required.
	Endpoints func() []string
	// TLS is the client's TLS configuration; nil for plain HTTP.
	TLS *tls.Config
	// Username and Password log in to a cluster with authentication; empty for none.
	Username, Password string

	// Period is the time between two samples. Default 100 ms, a tenth of etcd's
	// default election timeout.
	Period time.Duration
	// Timeout is how long a member has for an answer; one that needs longer does not
	// count as serving. Default 1 s, etcd's default election timeout. A handover of
	// the leadership takes far less, so it does not make members count as not serving.
	Timeout time.Duration
}

// Probe is what one member answered in one sample.
type Probe struct {
	// Endpoint is the member's client URL.
	Endpoint string `json:"endpoint"`
	// Answered is true if the member answered Status in time. The fields up to
	// Version are its words, zero otherwise.
	Answered  bool   `json:"answered"`
	MemberID  uint64 `json:"memberID,omitempty"`
	ClusterID uint64 `json:"clusterID,omitempty"`
	Leader    uint64 `json:"leader,omitempty"`
	Term      uint64 `json:"term,omitempty"`
	Index     uint64 `json:"index,omitempty"`
	Learner   bool   `json:"learner,omitempty"`
	Version   string `json:"version,omitempty"`
	// Members and Voters are the sizes of its member list, with and without learners;
	// 0 if it did not answer. Names maps the list's IDs to names.
	Members int               `json:"members,omitempty"`
	Voters  int               `json:"voters,omitempty"`
	Names   map[uint64]string `json:"-"`

	// Serving is true if the member answered a linearizable read in time; ReadAt is
	// when, since the start of the observation. ReadBy and ReadOf are the member and
	// cluster ID in that answer.
	Serving bool          `json:"serving"`
	ReadAt  time.Duration `json:"readAt,omitempty"`
	ReadBy  uint64        `json:"readBy,omitempty"`
	ReadOf  uint64        `json:"readOf,omitempty"`

	// Error is why something is missing.
	Error string `json:"error,omitempty"`
}

// Sample is what all members answered to questions asked at the same time.
type Sample struct {
	// At is when the questions were asked, since the start of the observation.
	At time.Duration `json:"at"`
	// Probes are one for every endpoint, in the order of the endpoints.
	Probes []Probe `json:"probes"`
	// Serving is how many voters answered a linearizable read: each member ID once,
	// learners not, and not members of another cluster.
	Serving int `json:"serving"`
	// Members and Voters are the sizes of the member list as the most advanced
	// answering member (highest term, then index) knows it; 0 if none answered.
	Members int `json:"members"`
	Voters  int `json:"voters"`
	// Term is the highest term among the answering members, Leader the ID that more
	// than half of those in that term name; 0 if there is none.
	Term   uint64 `json:"term"`
	Leader uint64 `json:"leader"`
}

// Observation is what an [Observer] saw.
type Observation struct {
	// Start is the origin of all times in the observation.
	Start    time.Time     `json:"start"`
	Duration time.Duration `json:"duration"`
	// Period and Timeout are those of the configuration.
	Period  time.Duration `json:"period"`
	Timeout time.Duration `json:"timeout"`
	// Cluster is the cluster ID. What answers with another is not of this cluster.
	Cluster uint64 `json:"cluster"`
	// Names maps the IDs of all members ever seen to their names.
	Names map[uint64]string `json:"names"`
	// Samples are in the order of time.
	Samples []Sample `json:"samples"`
}

// Observer samples the members of a cluster until it is stopped. Each sample asks
// every member at the same time, over a client of its own for each, without waiting
// for what an earlier sample asked: a member that hangs delays nothing but its own
// answer, and never more than Timeout/Period of its answers are awaited.
type Observer struct {
	cfg      ObserverConfig
	pool     *pool
	start    time.Time
	stopping chan struct{}
	loop     sync.WaitGroup
	pending  sync.WaitGroup
	stop     sync.Once
	result   *Observation

	mu      sync.Mutex
	cluster uint64
	names   map[uint64]string
	samples []Sample
}

// StartObserver waits until a member answers a linearizable read and then observes
// until [Observer.Stop]. ctx bounds the start alone, so that the time before the
// cluster is up does not count.
//
// It fails if the configuration is not usable or no member answers before ctx ends.
func StartObserver(ctx context.Context, cfg ObserverConfig) (*Observer, error) {
	how := access{endpoints: cfg.Endpoints, tls: cfg.TLS, username: cfg.Username, password: cfg.Password}
	if err := how.check("observer"); err != nil {
		return nil, err
	}
	if cfg.Period < 0 || cfg.Timeout < 0 {
		return nil, fmt.Errorf("observer: Period is %v and Timeout %v; give positive durations, or 0 for %v and %v",
			cfg.Period, cfg.Timeout, defaultPeriod, defaultTimeout)
	}
	cfg.Period, cfg.Timeout = cmp.Or(cfg.Period, defaultPeriod), cmp.Or(cfg.Timeout, defaultTimeout)

	o := &Observer{cfg: cfg, pool: newPool(how, nil), stopping: make(chan struct{}), names: map[uint64]string{}}
	for {
		o.start = time.Now()
		sample := o.ask(ctx)
		if o.judge(&sample); sample.Serving > 0 {
			o.keep(sample)
			break
		}
		if !wait(ctx, cfg.Period) {
			o.pool.close()
			problem := errNoMember
			for _, probe := range sample.Probes {
				problem = andAt(problem, probe.Endpoint, errors.New(probe.Error))
			}
			return nil, fmt.Errorf("observer: no member answered a linearizable read: %w: %w",
				context.Cause(ctx), problem)
		}
	}
	o.loop.Go(o.run)
	return o, nil
}

func (o *Observer) run() {
	ticker := time.NewTicker(o.cfg.Period)
	defer ticker.Stop()
	for {
		select {
		case <-o.stopping:
			return
		case <-ticker.C:
			o.pending.Go(func() {
				sample := o.ask(o.pool.ctx)
				o.judge(&sample)
				o.keep(sample)
			})
		}
	}
}

// ask asks every member everything at once and returns when all have answered or
// timed out.
func (o *Observer) ask(ctx context.Context) Sample {
	sample := Sample{At: time.Since(o.start)}
	ctx, cancel := context.WithTimeout(ctx, o.cfg.Timeout)
	defer cancel()
	members := o.pool.current()
	sample.Probes = make([]Probe, len(members))
	var answers sync.WaitGroup
	for i, m := range members {
		answers.Go(func() { sample.Probes[i] = o.probe(ctx, m) })
	}
	answers.Wait()
	return sample
}

func (o *Observer) probe(ctx context.Context, m *member) Probe {
	p := Probe{Endpoint: m.endpoint}
	conn, err := m.connection()
	if err != nil {
		p.Error = err.Error()
		return p
	}
	var read sync.WaitGroup
	var readErr error
	var answer *clientv3.GetResponse
	read.Go(func() {
		answer, readErr = readCurrent(ctx, conn.kv)
		p.ReadAt = time.Since(o.start)
	})
	status, err := conn.maintenance.Status(ctx, &pb.StatusRequest{})
	var list *pb.MemberListResponse
	if err == nil {
		// The member's own view: a linearizable one would fail without quorum.
		list, err = conn.cluster.MemberList(ctx, &pb.MemberListRequest{Linearizable: false})
	}
	read.Wait()

	if status != nil {
		p.Answered = true
		p.MemberID, p.ClusterID = status.Header.MemberId, status.Header.ClusterId
		p.Leader, p.Term, p.Index = status.Leader, status.RaftTerm, status.RaftIndex
		p.Learner, p.Version = status.IsLearner, status.Version
	}
	if list != nil {
		p.Names = make(map[uint64]string, len(list.Members))
		for _, listed := range list.Members {
			p.Members++
			if !listed.IsLearner {
				p.Voters++
			}
			p.Names[listed.ID] = listed.Name
		}
	}
	switch {
	case readErr == nil:
		p.Serving, p.ReadBy, p.ReadOf = true, answer.Header.MemberId, answer.Header.ClusterId
	case errors.Is(readErr, rpctypes.ErrPermissionDenied):
		// Refused after the read had been ordered among the writes: as good as an
		// answer, only without the IDs.
		p.Serving, p.ReadBy, p.ReadOf = p.Answered, p.MemberID, p.ClusterID
	default:
		p.ReadAt = 0
	}
	if err := errors.Join(readErr, err); err != nil {
		p.Error = err.Error()
	}
	return p
}

// readCurrent makes a linearizable read, again if need be. While the leadership changes
// hands, a member refuses the reads that it has at that moment ("leader changed"); it is
// there all the same, and answers when it is asked again. A member that does not listen
// is not asked again.
func readCurrent(ctx context.Context, kv clientv3.KV) (*clientv3.GetResponse, error) {
	for {
		// Any key will do; this is the one that etcdctl asks for.
		answer, err := kv.Get(ctx, "health")
		var said rpctypes.EtcdError
		if !errors.As(err, &said) || said.Code() != codes.Unavailable || !wait(ctx, askAgain) {
			return answer, err
		}
	}
}

// judge draws from the probes what they say together.
func (o *Observer) judge(s *Sample) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.cluster == 0 {
		// The first member that serves says which cluster this is.
		for _, p := range s.Probes {
			if p.Serving && o.cluster == 0 {
				o.cluster = p.ReadOf
			}
		}
	}
	s.judge(o.cluster)
	for _, p := range s.Probes {
		for id, name := range p.Names {
			if name != "" {
				o.names[id] = name
			}
		}
	}
}

func (s *Sample) judge(cluster uint64) {
	serving := map[uint64]bool{}
	var best *Probe
	for i := range s.Probes {
		p := &s.Probes[i]
		if p.Serving && !p.Learner && p.ReadOf == cluster {
			serving[p.ReadBy] = true
		}
		if !p.Answered || p.ClusterID != cluster {
			continue
		}
		if p.Members > 0 && (best == nil || p.Term > best.Term || p.Term == best.Term && p.Index > best.Index) {
			best = p
		}
		s.Term = max(s.Term, p.Term)
	}
	s.Serving = len(serving)
	if best != nil {
		s.Members, s.Voters = best.Members, best.Voters
	}

	inTerm, named := 0, map[uint64]int{}
	for _, p := range s.Probes {
		if p.Answered && p.ClusterID == cluster && p.Term == s.Term {
			inTerm++
			named[p.Leader]++
		}
	}
	for leader, votes := range named {
		if leader != 0 && votes > inTerm/2 {
			s.Leader = leader
		}
	}
}

func (o *Observer) keep(sample Sample) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.samples = append(o.samples, sample)
}

// Latest returns the newest complete sample. One in which a member hangs completes a
// Timeout after it began.
func (o *Observer) Latest() Sample {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.MaxFunc(o.samples, func(a, b Sample) int { return cmp.Compare(a.At, b.At) })
}

// Snapshot is what has been seen so far. A sample in which a member hangs is missing until
// a Timeout after it began.
func (o *Observer) Snapshot() *Observation {
	duration := time.Since(o.start)
	o.mu.Lock()
	defer o.mu.Unlock()
	samples := slices.Clone(o.samples)
	slices.SortFunc(samples, func(a, b Sample) int { return cmp.Compare(a.At, b.At) })
	return &Observation{
		Start: o.start, Duration: duration, Period: o.cfg.Period, Timeout: o.cfg.Timeout,
		Cluster: o.cluster, Names: maps.Clone(o.names), Samples: samples,
	}
}

// Stop ends the observation. It waits for the answers that are still awaited, at most
// Timeout. It is safe to call Stop more than once.
func (o *Observer) Stop() *Observation {
	o.stop.Do(func() {
		close(o.stopping)
		o.loop.Wait()
		duration := time.Since(o.start)
		o.pending.Wait()
		o.pool.close()
		slices.SortFunc(o.samples, func(a, b Sample) int { return cmp.Compare(a.At, b.At) })
		o.result = &Observation{
			Start: o.start, Duration: duration, Period: o.cfg.Period, Timeout: o.cfg.Timeout,
			Cluster: o.cluster, Names: o.names, Samples: o.samples,
		}
	})
	return o.result
}
