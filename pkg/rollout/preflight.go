package rollout

import (
	"fmt"
	"slices"
)

// Check is one row of what is known to go wrong when etcd's version changes. The guard that it belongs to
// asks it before a member gets another minor version, and plan shows every row before anybody touches anything.
type Check struct {
	Guard Guard
	// From and To are the versions that it is about, in words: those of the members, and that of the new
	// template.
	From, To string
	// Why says what happens, Source who says so, and Do what to do instead.
	Why, Source, Do string

	// applies says whether it is about this step. Where it is about arguments, those in the template do.
	applies func(s *Step) bool
	// arguments are those of etcd's command that it is about, as name or name=value, and known the releases that
	// know them. Late: etcd looks at the value when its configuration is complete, and not when it parses its command.
	arguments []string
	known     []releases
	late      bool
}

// between is true for a step to a minor version of 3, from a member that is older than that.
func between(least, below Version, minor int) func(*Step) bool {
	return func(s *Step) bool {
		return s.To.minor() == Version{3, minor, 0} && slices.ContainsFunc(s.From, func(v Version) bool {
			return !v.less(least) && v.less(below)
		})
	}
}

// Checks are all of them.
var Checks = slices.Concat(steps, refusals)

// steps are those about versions alone.
var steps = []Check{
	{
		Guard: GuardUpgradePath, From: "any", To: "more than one minor version above",
		Why: "etcd supports one minor version at a time: with a larger step, the new member exits when it starts, or " +
			"it writes what the others do not understand, and they exit",
		Source: "https://etcd.io/docs/v3.6/upgrades/upgrading-etcd/",
		Do:     "upgrade to the minor version in between first",
		applies: func(s *Step) bool {
			return s.To.Major != s.Cluster.Major || s.To.Minor > s.Cluster.Minor+1
		},
	},
	{
		Guard: GuardUpgradePath, From: "3.4", To: "3.5.0 to 3.5.2",
		Why: "members that were removed long ago come back (before 3.5.2), and the data of a member that crashes " +
			"under load may differ from that of the others afterwards",
		Source: "etcd-io/etcd#13196, etcd-io/etcd#13766",
		Do:     "upgrade to a later 3.5",
		applies: func(s *Step) bool {
			return between(Version{3, 4, 0}, Version{3, 5, 0}, 5)(s) && s.To.less(Version{3, 5, 3})
		},
	},
	{
		Guard: GuardUpgradePath, From: "3.5 below 3.5.26", To: "3.6",
		Why: "members that were removed long ago may come back as voters that are not there, and quorum is lost: " +
			"3.6 believes a member list that 3.5 did not keep well, and 3.5.26 mends it",
		Source:  "etcd-io/etcd#20967, https://etcd.io/blog/2025/zombie_members_upgrade/",
		Do:      "bring every member to 3.5.26 or later first, and check that all are healthy",
		applies: between(Version{3, 5, 0}, Version{3, 5, 26}, 6),
	},
	{
		Guard: GuardUpgradePath, From: "3.5", To: "3.6.0 to 3.6.3",
		Why: "a member may fail to start: it does not find a learner that was promoted (before 3.6.4), or takes a v2 " +
			"store without data for one that is in use (before 3.6.3)",
		Source: "etcd-io/etcd#20340, etcd-io/etcd#20387, etcd-io/etcd#20370",
		Do:     "upgrade to a later 3.6",
		applies: func(s *Step) bool {
			return between(Version{3, 5, 0}, Version{3, 6, 0}, 6)(s) && s.To.less(Version{3, 6, 4})
		},
	},
	{
		Guard: GuardUpgradePath, From: "3.6 below 3.6.11", To: "3.7",
		Why: "members of earlier releases may not work beside one of 3.7, which starts from other files than they " +
			"do",
		Source:  "https://etcd.io/docs/v3.7/upgrades/upgrade_3_7/, etcd-io/etcd#20187",
		Do:      "bring every member to 3.6.11 or later first",
		applies: between(Version{3, 6, 0}, Version{3, 6, 11}, 7),
	},
	{
		Guard: GuardDowngrade, From: "any", To: "below the version of the cluster",
		Why:    "a member refuses to start in a cluster of a later version, unless the downgrade was enabled",
		Source: "https://etcd.io/docs/v3.6/downgrades/downgrade_3_6/",
		Do: "from 3.6 on, enable it first (etcdctl downgrade enable VERSION); earlier versions cannot be " +
			"downgraded, so restore a backup",
		applies: func(s *Step) bool { return s.To.minor().less(s.Cluster) },
	},
}

// Arguments are the arguments of etcd's command that the row is about, as name or name=value.
func (c *Check) Arguments() []string { return slices.Clone(c.arguments) }

// Step is what is known of the change of etcd's version that a rollout makes.
type Step struct {
	// To is the version in the new template. It is zero where it cannot be read.
	To Version
	// From are the versions of the members that tell theirs.
	From []Version
	// Cluster is the version of the cluster, without a patch level. Its members agree on the lowest minor
	// version among them, and on a lower one where a downgrade was enabled: that is what they can all do.
	// A member that joins compares its own version with this one, and not with that of any member. Only a
	// member's HTTP API tells it, so it is reckoned here.
	Cluster Version
	// Program is what the new template says of etcd.
	Program
	// Unknown says what keeps the step from being judged, and is empty if nothing does.
	Unknown string
	// Same is true where every pod has the image of the new template, or every member runs its minor version: then
	// the rollout changes something else, and no row is about it. A step that some have made already is still a step
	// for those that have not.
	Same bool
}

// Begins is true before the first pod of a rollout goes: some pod is outdated, and none runs the new
// revision. A pod that terminates, or that is being scaled away, counts as well. So the way back to a
// revision that still runs never begins anew.
func (s *State) Begins() bool {
	outdated := false
	for i := range s.Pods {
		p := &s.Pods[i]
		if p.Owned && !s.Set.Outdated(p) {
			return false
		}
		outdated = outdated || p.Owned && s.Set.has(p.Ordinal)
	}
	return outdated
}

// Step returns what is known of the change of etcd's version, whether it has begun or not. Every guard and
// every candidate asks for it, so it is put together once.
func (a *Assessment) Step() *Step {
	if a.step == nil {
		a.step = newStep(a)
	}
	return a.step
}

func newStep(a *Assessment) *Step {
	set, members := &a.state.Set, a.state.Etcd.Members
	s := &Step{Program: set.Etcd}
	var known bool
	if s.To, known = versionIn(set.Etcd.Image, a.state.Controls.EtcdVersions); !known {
		s.Unknown = "etcd's version in the new template cannot be read from its image " + set.Etcd.Image + "; to " +
			"have it checked, name it in " + ControlEtcdVersions + " on the Lease quorate-" + set.Name +
			" (IMAGE=VERSION)"
	}
	for i := range members {
		if v, told := members[i].version(); told {
			s.from(v)
		}
	}
	for i := range a.Replicas {
		if v, said := a.state.silentVersion(&a.Replicas[i]); said {
			s.from(v)
		}
	}
	for i := range members {
		if st := members[i].Probe.Status; st != nil && st.DowngradeTo != "" {
			if v, ok := ParseVersion(st.DowngradeTo); ok && v.minor().less(s.Cluster) {
				s.Cluster = v.minor()
			}
		}
	}
	s.Same = known && len(s.From) > 0 &&
		!slices.ContainsFunc(s.From, func(v Version) bool { return v.minor() != s.To.minor() }) ||
		!slices.ContainsFunc(a.Replicas, func(r Replica) bool {
			return r.Pod != nil && r.Pod.EtcdImage != set.Etcd.Image
		})
	switch {
	case s.Same:
		s.Unknown = ""
	case len(s.From) == 0 && known:
		s.Unknown = "no member reports its version, and no image of their pods shows it" + a.state.Etcd.withoutStatus()
	}
	return s
}

// from notes the version of a member.
func (s *Step) from(v Version) {
	if s.From = append(s.From, v); len(s.From) == 1 || v.minor().less(s.Cluster) {
		s.Cluster = v.minor()
	}
}

// Applies is true where the row is about this step, with the arguments of the new template that it is about.
// A step within one minor version is only about arguments that a release of a member knows.
func (c *Check) Applies(s *Step) (applies bool, arguments []string) {
	switch {
	case s.Unknown != "":
		return false, nil
	case c.known == nil:
		return !s.Same && c.applies(s), nil
	case s.Same && (s.To == Version{} || !slices.ContainsFunc(s.From, c.knows)):
		return false, nil
	}
	for _, f := range s.finds() {
		if f.row == c {
			arguments = append(arguments, fmt.Sprintf("%s (%s)", f.label(), f.argument.Place))
		}
	}
	return len(arguments) > 0, arguments
}

// down is true for a step below the version of every member.
func (s *Step) down() bool {
	return !slices.ContainsFunc(s.From, func(v Version) bool { return v.minor().less(s.To) })
}

// describe says from which versions to which one the step goes.
func (s *Step) describe() string {
	lowest, highest := s.From[0], s.From[0]
	for _, v := range s.From {
		if v.less(lowest) {
			lowest = v
		}
		if highest.less(v) {
			highest = v
		}
	}
	from := lowest.String()
	if lowest != highest {
		from += " to " + highest.String()
	}
	return "etcd " + from + " → " + s.To.String()
}
