package rollout_test

import (
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/pkg/rollout"
)

// tells makes members run a version of etcd.
func tells(version string, ordinals ...int) change {
	return each(ordinals, func(w *world, o int) {
		told := *w.member(o).Probe.Status
		told.Version = version
		w.member(o).Probe.Status = &told
	})
}

// runs3 is a cluster of three that runs a version, and whose template has an image.
func runs3(version, image string, changes ...change) *world {
	w := cluster(3, tells(version, 0, 1, 2), func(w *world) {
		w.state.Set.Etcd.Image = image
		for i := range w.state.Pods {
			w.state.Pods[i].EtcdImage = "etcd:" + version
		}
	})
	return w.with(changes...)
}

// arguments are those of etcd's command, as name or name=value.
func arguments(args ...string) change {
	return func(w *world) {
		w.state.Set.Etcd.Container = "etcd"
		for _, arg := range args {
			name, value, _ := strings.Cut(arg, "=")
			w.state.Set.Etcd.Arguments = append(w.state.Set.Etcd.Arguments,
				rollout.Argument{Name: name, Value: value, Place: "args"})
		}
	}
}

// variables are those of etcd's environment, as NAME=value.
func variables(vars ...string) change {
	return func(w *world) {
		w.state.Set.Etcd.Container = "etcd"
		for _, v := range vars {
			name, value, _ := strings.Cut(v, "=")
			flag := strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(name, "ETCD_")), "_", "-")
			w.state.Set.Etcd.Arguments = append(w.state.Set.Etcd.Arguments,
				rollout.Argument{Name: flag, Value: value, Variable: name, Place: "environment"})
		}
	}
}

func configFile(w *world) {
	w.state.Set.Etcd.ConfigFile, w.state.Set.Etcd.Unseen = true, "it has a file"
}

func downgradeEnabled(to string) change {
	return func(w *world) {
		for i := range w.state.Etcd.Members {
			told := *w.state.Etcd.Members[i].Probe.Status
			told.DowngradeTo = to
			w.state.Etcd.Members[i].Probe.Status = &told
		}
	}
}

func ownList(list string, ordinals ...int) change {
	return each(ordinals, func(w *world, o int) { w.member(o).Probe.OwnList = list })
}

func saying(image, version string) change {
	return func(w *world) {
		w.state.Controls = rollout.ParseControls(map[string]string{rollout.ControlEtcdVersions: image + "=" + version})
	}
}

// images are those of etcd in these pods.
func images(image string, ordinals ...int) change {
	return each(ordinals, func(w *world, o int) { w.pod(o).EtcdImage = image })
}

// blip: these members restart, as after an OOM kill, and do not serve for a moment.
func blip(ordinals ...int) change {
	return func(w *world) {
		w.with(alive(ordinals...), restarted(ordinals...), aged(rollout.RestartingSeen, 8*time.Second, ordinals...))
	}
}

// deadFor: these have been in a crash loop for so long.
func deadFor(age time.Duration, ordinals ...int) change {
	return func(w *world) {
		w.with(dead(ordinals...), restarted(ordinals...), aged(rollout.RestartingSeen, age, ordinals...))
	}
}

// created says when pods were created, and with which image.
func created(at int64, image string, ordinals ...int) change {
	return each(ordinals, func(w *world, o int) {
		w.pod(o).Created, w.pod(o).EtcdImage = time.Unix(at, 0), image
	})
}

// ghostOfOurs: a scale-in has left etcd-3 on the list, which has been silent for so long.
func ghostOfOurs(age time.Duration) change {
	return func(w *world) {
		w.with(ghosts(1))
		m := &w.state.Etcd.Members[len(w.state.Etcd.Members)-1]
		m.Name = name(3)
		w.state.Ages[rollout.Sighting{UID: fmt.Sprintf("%x", m.ID), Condition: rollout.GhostSeen}] = age
	}
}

func statusDenied() change { return noStatus("etcd refuses the status", 0, 1, 2) }

func TestTheVersionThatAnImageSays(t *testing.T) {
	said := rollout.ParseControls(map[string]string{
		rollout.ControlEtcdVersions: "etcd-wrapper:v0.8.0=3.5.30, my/etcd@sha256:abc=v3.6.12",
	})
	if len(said.Bad) > 0 {
		t.Fatal(said.Bad)
	}
	for _, tc := range []struct{ name, image, want string }{
		{"a tag is a version", "etcd:3.5.27", "3.5.27"},
		{"with a v", "quay.io/coreos/etcd:v3.5.27", "3.5.27"},
		{"of a registry with a port", "registry:5000/etcd:v3.5.27", "3.5.27"},
		{"with what the distributor adds", "registry.k8s.io/etcd:3.5.15-0", "3.5.15"},
		{"a candidate counts as the release", "gcr.io/etcd-development/etcd:v3.6.0-rc.2", "3.6.0"},
		{"beside a digest", "etcd:v3.6.11@sha256:0123", "3.6.11"},
		{"a digest alone says nothing", "etcd@sha256:0123", ""},
		{"half a version says too little", "etcd:3.5", ""},
		{"nor does another word", "etcd:latest", ""},
		{"nor does no tag", "registry:5000/etcd", ""},
		{"a fourth number is something else", "etcd:3.5.27.1", ""},
		{"etcd-wrapper's own version is not etcd's", "gardener/etcd-wrapper:v0.6.2", "3.4.34"},
		{"of the next release", "gardener/etcd-wrapper:v0.7.0", "3.5.27"},
		{"of one of the first", "gardener/etcd-wrapper:v0.2.0", "3.4.26"},
		{"a release that is not known is not guessed at", "gardener/etcd-wrapper:v0.9.9", ""},
		{"nor is the tag of another image", "my-etcd:3.5.27", ""},
		{"what the operator says counts", "europe/gardener/etcd-wrapper:v0.8.0", "3.5.30"},
		{"also of a digest", "registry/my/etcd@sha256:abc", "3.6.12"},
		{"but not of an image that only ends like it", "not-etcd-wrapper:v0.8.0", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := runs3("3.5.35", tc.image)
			w.state.Controls = said
			got := ""
			if v := rollout.Assess(w.state, w.policy).Step().To; v != (rollout.Version{}) {
				got = v.String()
			}
			if got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

func TestWhatIsCheckedBeforeARolloutBegins(t *testing.T) {
	const none = rollout.Guard("")
	for _, tc := range []struct {
		name  string
		world *world
		holds rollout.Guard
		// because is in the verdict, whether it holds or not; if it is empty, the guard is not asked.
		because string
	}{
		{"one minor version goes", runs3("3.5.35", "etcd:3.6.16"), none, "no problem is known"},
		{"a patch is not asked about", runs3("3.5.25", "etcd:3.5.35"), none, ""},
		{"nor is an older patch", runs3("3.5.35", "etcd:3.5.31"), none, ""},
		{"nor is another template with the same image", runs3("3.5.35", "etcd:3.5.35"), none, ""},
		{"nor is one with the same image that says nothing",
			runs3("3.5.35", "x/y", images("x/y", 0, 1, 2)), none, ""},
		{"etcd-druid's next step goes", runs3("3.4.34", "gardener/etcd-wrapper:v0.7.0"), none, "3.4.34 → 3.5.27"},

		{"two minor versions hold", runs3("3.4.34", "etcd:3.6.16"), rollout.GuardUpgradePath,
			"one minor version at a time"},
		{"the lowest member decides how far it is", runs3("3.5.35", "etcd:3.6.16", tells("3.4.34", 1)),
			rollout.GuardUpgradePath, "etcd 3.4.34 to 3.5.35 → 3.6.16"},
		{"a downgrade that was enabled lowers the cluster",
			runs3("3.6.16", "etcd:3.7.3", downgradeEnabled("3.5.0")), rollout.GuardUpgradePath,
			"one minor version at a time"},
		{"3.5.0 to 3.5.2 hold", runs3("3.4.34", "etcd:3.5.2"), rollout.GuardUpgradePath, "upgrade to a later 3.5"},
		{"3.5.3 goes", runs3("3.4.34", "etcd:3.5.3"), none, "no problem is known"},
		{"3.5.25 does not go to 3.6", runs3("3.5.25", "etcd:3.6.16"), rollout.GuardUpgradePath,
			"bring every member to 3.5.26"},
		{"nor does one such member among others", runs3("3.5.35", "etcd:3.6.16", tells("3.5.0", 2)),
			rollout.GuardUpgradePath, "3.5.26 mends it"},
		{"3.5.26 does", runs3("3.5.26", "etcd:3.6.4"), none, "no problem is known"},
		{"3.6.0 may not start after 3.5", runs3("3.5.35", "etcd:3.6.0"), rollout.GuardUpgradePath,
			"upgrade to a later 3.6"},
		{"nor may 3.6.3", runs3("3.5.27", "etcd:3.6.3"), rollout.GuardUpgradePath,
			"etcd 3.5.27 → 3.6.3: a member may fail to start"},
		{"within 3.6 it does", runs3("3.6.0", "etcd:3.6.3"), none, ""},
		{"and on an enabled way down as well", runs3("3.7.3", "etcd:3.6.3", downgradeEnabled("3.6.0")), none,
			"no problem is known"},
		{"3.6.10 does not go to 3.7", runs3("3.6.10", "etcd:3.7.3"), rollout.GuardUpgradePath, "3.6.11 or later first"},
		{"3.6.11 does", runs3("3.6.11", "etcd:3.7.3"), none, "no problem is known"},

		{"a downgrade holds", runs3("3.5.35", "etcd:3.4.34"), rollout.GuardDowngrade, "later version"},
		{"also where members could tell that one was enabled", runs3("3.6.16", "etcd:3.5.35"),
			rollout.GuardDowngrade, "downgrade enable"},
		{"one that was enabled goes", runs3("3.6.16", "etcd:3.5.35", downgradeEnabled("3.5.0")), none,
			"no problem is known"},
		{"one to another version does not", runs3("3.6.16", "etcd:3.4.34", downgradeEnabled("3.5.0")),
			rollout.GuardDowngrade, "later version"},
		{"nor does one below the cluster where a member is further up",
			runs3("3.5.35", "etcd:3.4.34", tells("3.6.16", 1)), rollout.GuardDowngrade, "3.5.35 to 3.6.16 → 3.4.34"},

		{"an argument that 3.5 does not know holds", runs3("3.4.34", "etcd:3.5.35", arguments("name=a", "debug")),
			rollout.GuardKnownArguments, "etcd 3.5.35 does not start with --debug (args of the container etcd): use " +
				"--log-level for --debug"},
		{"a value that it does not know as well", runs3("3.4.34", "etcd:3.5.35", arguments("logger=capnslog")),
			rollout.GuardKnownArguments, "--logger=capnslog (args of the container etcd): use --logger=zap"},
		{"another value of that argument goes", runs3("3.4.34", "etcd:3.5.35", arguments("logger=zap")), none,
			"arguments and variables of etcd's in the template: 1, none that etcd 3.5.35 is known to refuse"},
		{"3.6 has no v2, and all of it is told at once",
			runs3("3.5.35", "etcd:3.6.16", arguments("enable-v2=false", "proxy=off"),
				variables("ETCD_V2_DEPRECATION=not-yet")),
			rollout.GuardKnownArguments, "etcd 3.6.16 does not start with --enable-v2, --proxy (args of the " +
				"container etcd): remove from the template, but first make sure that nothing is kept in the v2 store " +
				"(--enable-v2); nor with ETCD_V2_DEPRECATION=not-yet (environment of the container etcd): remove " +
				"from the template"},
		{"3.6 knows what 3.7 does not",
			runs3("3.5.35", "etcd:3.6.16", arguments("experimental-initial-corrupt-check=true")), none,
			"is known to refuse"},
		{"3.7 does not", runs3("3.6.16", "etcd:3.7.3", arguments("experimental-initial-corrupt-check=true")),
			rollout.GuardKnownArguments, "InitialCorruptCheck=true for experimental-initial-corrupt-check"},
		{"and it is said what it calls it", runs3("3.6.16", "etcd:3.7.3", arguments("experimental-memory-mlock")),
			rollout.GuardKnownArguments,
			"--experimental-memory-mlock (args of the container etcd): use --memory-mlock instead"},
		{"what was gone before is still gone", runs3("3.6.16", "etcd:3.7.3", arguments("debug")),
			rollout.GuardKnownArguments, "--debug"},
		{"3.8 has lost two of 3.7", runs3("3.7.3", "etcd:3.8.0", arguments("max-snapshots=5")),
			rollout.GuardKnownArguments, "--max-snapshots"},
		{"whatever their value", runs3("3.7.3", "etcd:3.8.0", arguments("v2-deprecation=write-only")),
			rollout.GuardKnownArguments, "--v2-deprecation (args"},
		{"3.7 knows them", runs3("3.6.16", "etcd:3.7.3", arguments("max-snapshots=5", "v2-deprecation=write-only")),
			none, "is known to refuse"},
		{"a value that comes in a later release of the minor version", runs3("3.5.35", "etcd:3.6.12",
			arguments("v2-deprecation=write-only-skip-check")), rollout.GuardKnownArguments,
			"does not start with --v2-deprecation=write-only-skip-check (args of the container etcd): new in etcd " +
				"3.6.13: take that release or a later one, or remove this from the template"},
		{"one of several", runs3("3.5.35", "etcd:3.6.16", arguments("v2-deprecation=write-only,not-yet")),
			rollout.GuardKnownArguments, "--v2-deprecation=not-yet"},
		{"that release knows it", runs3("3.5.35", "etcd:3.6.13", arguments("v2-deprecation=write-only-skip-check")),
			none, "is known to refuse"},
		{"an argument that a later release of the minor version brings", runs3("3.4.34", "etcd:3.5.15",
			arguments("experimental-compaction-sleep-interval=1s")), rollout.GuardKnownArguments,
			"new in etcd 3.5.16: take"},

		{"on the way down, 3.5 does not know what came with 3.6",
			runs3("3.6.16", "etcd:3.5.35", downgradeEnabled("3.5.0"), arguments("feature-gates=CompactHashCheck=true")),
			rollout.GuardKnownArguments, "--feature-gates (args of the container etcd): new in etcd 3.6.0: remove " +
				"from the template"},
		{"or knows it by another name",
			runs3("3.6.16", "etcd:3.5.35", downgradeEnabled("3.5.0"), arguments("watch-progress-notify-interval=1s")),
			rollout.GuardKnownArguments, "use --experimental-watch-progress-notify-interval instead"},
		{"as a variable it ignores it", runs3("3.6.16", "etcd:3.5.35", downgradeEnabled("3.5.0"),
			variables("ETCD_FEATURE_GATES=CompactHashCheck=true")), none, "it ignores ETCD_FEATURE_GATES"},
		{"3.6 does not know every gate of 3.7", runs3("3.7.3", "etcd:3.6.16", downgradeEnabled("3.6.0"),
			arguments("feature-gates=CompactHashCheck=true,PriorityRequest=true")), rollout.GuardKnownArguments,
			"--feature-gates=PriorityRequest (args"},
		{"nor by the environment", runs3("3.7.3", "etcd:3.6.16", downgradeEnabled("3.6.0"),
			variables("ETCD_FEATURE_GATES=PriorityRequest=true")), rollout.GuardKnownArguments,
			"ETCD_FEATURE_GATES=PriorityRequest (environment of the container etcd)"},
		{"it knows the others", runs3("3.7.3", "etcd:3.6.16", downgradeEnabled("3.6.0"),
			arguments("feature-gates=CompactHashCheck=true")), none, "is known to refuse"},
		{"and what both know", runs3("3.7.3", "etcd:3.6.16", downgradeEnabled("3.6.0"), arguments("max-learners=2")),
			none, "is known to refuse"},

		{"another release of the minor version is asked for what it has lost", runs3("3.6.16", "etcd:3.6.12",
			arguments("v2-deprecation=write-only-skip-check")), rollout.GuardKnownArguments,
			"new in etcd 3.6.13: take"},
		{"and not for what it never had", runs3("3.6.16", "etcd:3.6.17", arguments("enable-v2")), none, ""},
		{"nor for what both know", runs3("3.7.1", "etcd:3.7.3", arguments("max-snapshots=5")), none, ""},
		{"nor with the same image", runs3("3.6.16", "etcd:3.6.12", images("etcd:3.6.12", 0, 1, 2),
			arguments("v2-deprecation=write-only-skip-check")), none, ""},

		{"a value is refused from the environment too",
			runs3("3.5.35", "etcd:3.6.16", variables("ETCD_V2_DEPRECATION=not-yet")), rollout.GuardKnownArguments,
			"ETCD_V2_DEPRECATION=not-yet (environment of the container etcd)"},
		{"but a variable that is not known is ignored, and told",
			runs3("3.5.35", "etcd:3.6.16", variables("ETCD_NAME=a", "ETCD_ENABLE_V2=false")), none,
			"none that etcd 3.6.16 is known to refuse; it ignores ETCD_ENABLE_V2"},
		{"and one that is known with another value goes",
			runs3("3.5.35", "etcd:3.6.16", variables("ETCD_V2_DEPRECATION=write-only")), none, "is known to refuse"},
		{"the command is what counts where both are set", runs3("3.5.35", "etcd:3.6.16",
			arguments("v2-deprecation=write-only"), variables("ETCD_V2_DEPRECATION=not-yet")), none,
			"is known to refuse"},
		{"a value that cannot be seen is told", runs3("3.5.35", "etcd:3.6.16", variables("ETCD_V2_DEPRECATION="),
			func(w *world) { w.state.Set.Etcd.Arguments[0].Hidden = true }), none,
			"not checked: the value of ETCD_V2_DEPRECATION is not in the template"},
		{"one that no version refuses is not", runs3("3.5.35", "etcd:3.6.16", variables("ETCD_NAME="),
			func(w *world) { w.state.Set.Etcd.Arguments[0].Hidden = true }), none,
			"none that etcd 3.6.16 is known to refuse"},

		{"with a configuration file, the environment is not read",
			runs3("3.5.35", "etcd:3.6.16", variables("ETCD_V2_DEPRECATION=not-yet", "ETCD_ENABLE_V2=true"), configFile),
			none, "none that etcd 3.6.16 is known to refuse; not checked: it has a file"},
		{"but the command is parsed all the same", runs3("3.5.35", "etcd:3.6.16", arguments("enable-v2"), configFile),
			rollout.GuardKnownArguments, "--enable-v2"},
		{"and what it says is dropped", runs3("3.4.34", "etcd:3.5.35", arguments("logger=capnslog"), configFile), none,
			"not checked: it has a file"},

		{"arguments that cannot be seen are told", runs3("3.5.35", "etcd:3.6.16", func(w *world) {
			w.state.Set.Etcd.Unseen = "the command is not etcd's own"
		}), none, "not checked: the command is not etcd's own"},
		{"where there are none, that is told", runs3("3.5.35", "etcd:3.6.16"), none,
			"the template gives etcd no arguments"},
		{"of a version that nothing is known of, that is told", runs3("3.8.1", "etcd:3.9.0", arguments("name=a")), none,
			"not checked: etcd 3.9 is newer than what is known of etcd's arguments"},
		{"also of one of which something is known", runs3("3.7.3", "etcd:3.8.0", arguments("name=a")), none,
			"etcd 3.7.3 → 3.8.0: not checked: etcd 3.8 is newer than what is known"},

		{"lists that differ hold", runs3("3.5.35", "etcd:3.5.35", ownList("1, 2, 3", 0, 1), ownList("1, 2, 3, 9", 2)),
			rollout.GuardListsAgree, "etcd-0 has 1, 2, 3, and etcd-2 has 1, 2, 3, 9"},
		{"lists that agree do not", runs3("3.5.35", "etcd:3.5.35", ownList("1, 2, 3", 0, 1, 2)), none, "3 of 3"},
		{"who does not answer has no list", runs3("3.5.35", "etcd:3.5.35", ownList("1, 2, 3", 0, 1)), none, "2 of 3"},
		{"the list of one that does not serve says nothing",
			runs3("3.5.35", "etcd:3.5.35", ownList("1, 2, 3", 0, 1), unknown(2), ownList("1", 2)), none, "2 of 2"},

		{"an image that cannot be read is told", runs3("3.4.34", "my-etcd:v7"), none,
			"cannot be read from its image my-etcd:v7; to have it checked, name it in quorate.dev/etcd-versions on " +
				"the Lease quorate-etcd"},
		{"and is read once somebody says it", runs3("3.4.34", "my-etcd:v7", saying("my-etcd:v7", "3.6.16")),
			rollout.GuardUpgradePath, "3.4.34 → 3.6.16"},
		{"members that tell no version are told", runs3("3.4.34", "etcd:3.6.16", statusDenied(), images("x", 0, 1, 2)),
			none, "no member reports its version, and no image of their pods shows it; etcd-0: etcd refuses the " +
				"status"},
		{"their images may tell it", runs3("3.4.34", "etcd:3.6.16", statusDenied()), rollout.GuardUpgradePath,
			"etcd 3.4.34 → 3.6.16"},
		{"one member that is silent counts by its image as well",
			runs3("3.5.35", "etcd:3.6.16", noStatus("x", 2), images("etcd:3.5.20", 2)), rollout.GuardUpgradePath,
			"etcd 3.5.20 to 3.5.35"},
		{"but not if it was never ready", runs3("3.5.35", "etcd:3.6.16", noStatus("x", 2), images("etcd:3.5.20", 2),
			neverReady(2)), none, "no problem is known"},
		{"an interrupted upgrade holds before the next step", runs3("3.5.35", "etcd:3.7.3", tells("3.6.16", 2)),
			rollout.GuardUpgradePath, "etcd 3.5.35 to 3.6.16 → 3.7.3"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := tc.world.decide()
			failed, _ := failedGuards(d, "etcd-1")
			failed = slices.DeleteFunc(failed, func(g rollout.Guard) bool { return !slices.Contains(preflight, g) })
			if (tc.holds == none) != (len(failed) == 0) || tc.holds != none && failed[0] != tc.holds {
				t.Errorf("%v hold, want %q", failed, tc.holds)
			}
			var said []string
			for _, g := range preflight {
				if s := detailOf(d, "etcd-1", g); s != "" && (tc.holds == none || g == tc.holds) {
					said = append(said, s)
				}
			}
			all := strings.Join(said, "\n")
			if !strings.Contains(all, tc.because) || (tc.because == "") != (all == "") {
				t.Errorf("it says %q, want %q", all, tc.because)
			}
			if tc.holds == none {
				return
			}
			if d.Action.Name() != rollout.ActionHold || d.Guard != tc.holds {
				t.Errorf("%s", say(d))
			}
			if over := tc.world.with(overriding(tc.holds)).decide(); !over.Acts() && over.Guard == tc.holds {
				t.Errorf("overridden: %s", say(over))
			}
		})
	}
}

// preflight are the guards that are asked before a rollout begins.
var preflight = []rollout.Guard{rollout.GuardUpgradePath, rollout.GuardDowngrade, rollout.GuardKnownArguments,
	rollout.GuardListsAgree}

// Every row holds something, so that one which does nothing is found out.
func TestEveryRowOfWhatIsKnownHoldsItsStep(t *testing.T) {
	steps := []*world{
		runs3("3.4.34", "etcd:3.6.16"), runs3("3.4.34", "etcd:3.5.0"), runs3("3.5.25", "etcd:3.6.16"),
		runs3("3.5.35", "etcd:3.6.3"), runs3("3.6.0", "etcd:3.7.3"), runs3("3.6.16", "etcd:3.5.35"),
	}
	for i, w := range steps {
		s := rollout.Assess(w.state, w.policy).Step()
		for k := range rollout.Checks {
			if applies, _ := rollout.Checks[k].Applies(s); applies != (i == k) {
				t.Errorf("row %d is about step %d: %v", k, i, applies)
			}
		}
		s.Same = true
		if applies, _ := rollout.Checks[i].Applies(s); applies {
			t.Errorf("row %d is about what is no step", i)
		}
	}
	seen := map[string]int{}
	for i := range rollout.Checks {
		c := &rollout.Checks[i]
		if c.From == "" || c.To == "" || c.Why == "" || c.Source == "" || c.Do == "" ||
			!slices.Contains(preflight, c.Guard) || (len(c.Arguments()) > 0) != (i >= len(steps)) {
			t.Errorf("row %d leaves something out: %+v", i, c)
		}
		for _, argument := range c.Arguments() {
			seen[argument]++
			if seen[argument] > 1 {
				t.Errorf("--%s is in more than one row", argument)
			}
			var refusing []string
			for _, to := range []string{"3.4.0", "3.4.34", "3.5.0", "3.5.35", "3.6.0", "3.6.16", "3.7.3", "3.8.0"} {
				w := runs3(to, "etcd:"+to, arguments(argument))
				w.state.Set.Etcd.Image = "x/etcd:" + to
				// Members of two minor versions make it a step in any case.
				w.with(tells("3.3.27", 0))
				s := rollout.Assess(w.state, w.policy).Step()
				applies, found := c.Applies(s)
				// Where the flag is gone, that is what is refused, and not a value.
				name, _, _ := strings.Cut(argument, "=")
				refused := !rollout.Knows(s.To, argument) && (name == argument || rollout.Knows(s.To, name))
				if applies != refused || applies == (len(found) == 0) {
					t.Errorf("--%s and etcd %s: found %v, refused %v", argument, to, found, refused)
				}
				if applies {
					refusing = append(refusing, to)
				}
			}
			if len(refusing) == 0 || len(refusing) == 8 {
				t.Errorf("--%s is refused by %v", argument, refusing)
			}
		}
	}
	if len(seen) < 80 {
		t.Errorf("there are only %d arguments", len(seen))
	}
}

// What a row says of the releases that refuse its arguments follows from those that know them.
func TestTheReleasesThatRefuseAnArgumentInWords(t *testing.T) {
	for argument, want := range map[string]string{
		"enable-v2":                                    "3.6 or later",
		"auth-token-ttl":                               "below 3.4.10",
		"feature-gates":                                "below 3.6",
		"v2-deprecation=not-yet":                       "below 3.5, and 3.6 or later",
		"next-cluster-version-compatible":              "below 3.4.31, and 3.5 or later",
		"max-concurrent-streams":                       "below 3.4.20, and 3.5 below 3.5.5",
		"v2-deprecation=write-only-skip-check":         "below 3.5.32, and 3.6 below 3.6.13, and 3.8 or later",
		"experimental-enable-lease-checkpoint-persist": "below 3.4.20, and 3.5 below 3.5.2, and 3.7 or later",
	} {
		k := slices.IndexFunc(rollout.Checks, func(c rollout.Check) bool {
			return slices.Contains(c.Arguments(), argument)
		})
		if k < 0 || rollout.Checks[k].To != want {
			t.Errorf("--%s: row %d, want %q", argument, k, want)
		}
	}
}

func TestWhatOfTheArgumentsIsNotChecked(t *testing.T) {
	// hidden are arguments or variables whose value is not in the template.
	hidden := func(set change) change {
		return func(w *world) {
			w.with(set)
			for i := range w.state.Set.Etcd.Arguments {
				w.state.Set.Etcd.Arguments[i].Hidden = true
			}
		}
	}
	const beyond, older = "etcd 3.8 is newer than what is known of etcd's arguments",
		"etcd 3.3 is older than what is known of etcd's arguments"
	for _, tc := range []struct {
		name  string
		world *world
		want  string
	}{
		{"all is", runs3("3.5.35", "etcd:3.6.16", arguments("v2-deprecation=write-only", "name=a")), ""},
		{"a value that may be refused is not", runs3("3.5.35", "etcd:3.6.16", hidden(arguments("v2-deprecation=$(X)"))),
			"the value of --v2-deprecation is not in the template"},
		{"a gate may be", runs3("3.7.3", "etcd:3.6.16", hidden(variables("ETCD_FEATURE_GATES=$(X)"))),
			"the value of ETCD_FEATURE_GATES is not in the template"},
		{"no value is refused that any release knows", runs3("3.4.34", "etcd:3.5.35",
			hidden(arguments("v2-deprecation=$(X)", "name=$(X)"))), ""},
		{"what is ignored may have any", runs3("3.7.3", "etcd:3.8.0", hidden(variables("ETCD_V2_DEPRECATION=$(X)"))),
			beyond},
		{"what is overruled too", runs3("3.5.35", "etcd:3.6.16", arguments("v2-deprecation=gone"), func(w *world) {
			w.with(variables("ETCD_V2_DEPRECATION=$(X)"))
			w.state.Set.Etcd.Arguments[1].Hidden = true
		}), ""},
		{"and what a configuration file is put for", runs3("3.5.35", "etcd:3.6.16", configFile,
			hidden(variables("ETCD_V2_DEPRECATION=$(X)"))), "it has a file"},
		{"of which some is dropped", runs3("3.4.34", "etcd:3.5.35", configFile, hidden(arguments("logger=$(X)"))),
			"it has a file"},
		{"a version that is too old", runs3("3.4.34", "etcd:3.3.27"), older},
		{"two reasons", runs3("3.7.3", "etcd:3.8.0", configFile), beyond + "; it has a file"},
		{"an image that says nothing is another reason", runs3("3.5.35", "x:1"), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := rollout.Assess(tc.world.state, tc.world.policy).Step().Unchecked(); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

// Within one minor version, only what the release before knew is asked about, and not on the way back.
func TestAStepWithinAMinorVersionMayLoseAnArgument(t *testing.T) {
	const skip = "v2-deprecation=write-only-skip-check"
	// back is a template that has been there before, in which etcd-0 does not come up.
	back := func(at int64) *world {
		return runs3("3.6.16", "etcd:3.6.12", arguments(skip), updated(0), alive(0), created(at, "etcd:3.6.12", 0),
			created(2, "etcd:3.6.16", 1, 2), overriding(rollout.GuardUpdatedFailing))
	}
	for _, tc := range []struct {
		name    string
		world   *world
		holds   bool
		applies int
	}{
		{"it loses one", runs3("3.6.16", "etcd:3.6.12", arguments(skip)), true, 1},
		{"one that the release before did not know either", runs3("3.6.12", "etcd:3.6.11", arguments(skip)), false, 0},
		{"up", runs3("3.6.12", "etcd:3.6.16", arguments(skip)), false, 0},
		{"where an accident began it", back(3), true, 1},
		{"on the way back", back(1), false, 1},
		{"of an image that cannot be read", runs3("3.6.16", "x:1", arguments(skip)), false, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := tc.world.decide()
			failed, considered := failedGuards(d, "etcd-1")
			if held := slices.Contains(failed, rollout.GuardKnownArguments); held != tc.holds || !considered {
				t.Errorf("held: %v, considered: %v", held, considered)
			}
			applies := 0
			for i := range rollout.Checks {
				is, _ := rollout.Checks[i].Applies(d.Assessment.Step())
				applies += btoi(is)
			}
			if applies != tc.applies {
				t.Errorf("%d rows apply, want %d", applies, tc.applies)
			}
		})
	}
}

// A step that is held does not begin at the first blip of a member either.
func TestAStepThatIsHeldDoesNotBeginWithAMemberThatDoesNotServe(t *testing.T) {
	settle := rollout.DefaultPolicy().SettleTimeout
	// before is a step that hurts the others. lower and argued cost only the member that gets them.
	before := func(changes ...change) *world { return runs3("3.4.34", "etcd:3.6.16", changes...) }
	lower := func(changes ...change) *world { return runs3("3.6.16", "etcd:3.5.35", changes...) }
	argued := func(changes ...change) *world {
		return runs3("3.5.35", "etcd:3.6.16", arguments("enable-v2")).with(changes...)
	}
	single := func(changes ...change) *world {
		return cluster(1, tells("3.4.34", 0), images("etcd:3.4.34", 0), func(w *world) {
			w.state.Set.Etcd.Image = "etcd:3.6.16"
		}).with(changes...)
	}
	const atRisk = "AT RISK, 2 of 3 voters serve: etcd-1: "
	for _, tc := range []struct {
		name  string
		world *world
		want  string
		// reason is how that begins.
		reason string
	}{
		{"a member restarts for 8 s, from 3.4 to 3.6", before(blip(1)), "hold UpgradePath", atRisk},
		{"from 3.5 to 3.7", runs3("3.5.13", "etcd:3.7.1", blip(1)), "hold UpgradePath", atRisk},
		{"with two that are killed at once", before(blip(0, 1)), "hold UpgradePath", "AT RISK, 1 of 3"},
		{"its container is being created", before(starting(1)), "hold UpgradePath", atRisk},
		{"it has ended", before(exited(1)), "hold UpgradePath", atRisk},
		{"it crash-loops, and the others serve", before(deadFor(long, 1)), "hold UpgradePath", atRisk},
		{"so does one that has been dead, where one voter is left, which proves that a dead one votes",
			before(deadFor(long, 0, 1)), "hold MayVote", "etcd-1: 1 of 3"},
		{"none serves, and one process runs", before(deadFor(long, 0, 1), blip(2), quorumLostFor(long)),
			"hold UpgradePath", "etcd-"},
		{"it has run for so long without quorum", before(deadFor(long, 0, 1), blip(2), quorumLostFor(long),
			aged(rollout.RestartingSeen, long, 2)), "hold UpgradePath", "etcd-"},
		{"all are dead, for less than settle-timeout", before(deadFor(settle-time.Second, 0, 1, 2)),
			"hold UpgradePath", "etcd-"},
		{"all are dead for long", before(deadFor(settle, 0, 1, 2)), "delete etcd-2", ""},
		{"all have not been created for long", before(starting(0, 1, 2), aged(rollout.NotRunningSeen, settle, 0, 1, 2)),
			"delete etcd-2", ""},
		{"all are dead, without a member list", before(deadFor(settle, 0, 1, 2), noMemberList()), "delete etcd-2", ""},
		{"one is dead without a pod", before(deadFor(settle, 1, 2), taken(missing(0)), away(settle, 0)),
			"delete etcd-2", ""},
		{"a pod that has gone just now may come back", before(deadFor(settle, 1, 2), taken(missing(0))),
			"wait Terminating", "waiting for etcd-0"},
		{"the second follows the first that we have taken", before(deadFor(settle, 0, 1), missing(2)), "delete etcd-1",
			""},
		{"also when that has come back, and waits for a quorum", before(deadFor(settle, 0, 1), updated(2), alive(2)),
			"delete etcd-1", ""},
		{"and the third one when they have found it", before(deadFor(settle, 0), updated(1, 2), tells("3.6.16", 1, 2),
			leads(2), aged(rollout.ReadySeen, long, 1, 2)), "delete etcd-0", ""},
		{"one that terminates may have a process", before(deadFor(settle, 1, 2), alive(0), taken(terminating(0)),
			away(settle, 0)), "wait Terminating", "waiting for etcd-0"},
		{"a voter elsewhere may live", before(deadFor(settle, 0, 1, 2), ghosts(1)), "hold UpgradePath", "etcd-"},
		{"a member that answers lives, whatever its kubelet says", before(deadFor(settle, 0, 1, 2), answersForItself(0),
			aged(rollout.NotRunningSeen, long, 0)),
			"hold UpgradePath", "etcd-"},
		{"a ghost does not live", before(deadFor(settle, 0, 1, 2), ghostOfOurs(rollout.DefaultPolicy().GhostAfter)),
			"delete etcd-2", ""},
		{"but what has been silent for a moment may", before(deadFor(settle, 0, 1, 2), ghostOfOurs(0)),
			"hold UpgradePath", "etcd-"},
		{"a learner is no voter", before(deadFor(settle, 0, 1), func(w *world) { w.member(2).Learner = true }),
			"delete etcd-1", ""},
		{"a single member restarts", single(blip(0)), "wait QuorumPatience", "etcd-0"},
		{"a single member runs and does not serve", single(blip(0), quorumLostFor(long)), "hold UpgradePath", "etcd-0"},
		{"a single member is dead for long", single(deadFor(settle, 0)), "delete etcd-0", ""},
		{"somebody knows better", before(blip(1), overriding(rollout.GuardUpgradePath)), "delete etcd-1", ""},
		{"its image alone tells the version", runs3("3.5.35", "etcd:3.6.16", blip(1), images("etcd:3.5.13", 1)),
			"hold UpgradePath", atRisk},

		{"a downgrade", lower(blip(1)), "hold Downgrade", "etcd-1"},
		{"a downgrade of one that is dead for a moment", lower(dead(1)), "hold Downgrade", "etcd-1"},
		{"a downgrade of one that is dead for long goes", lower(deadFor(settle, 1)), "delete etcd-1", ""},
		{"a downgrade that was enabled goes", lower(downgradeEnabled("3.5.0"), blip(1)), "delete etcd-1", ""},
		{"an argument", argued(blip(1)), "hold KnownArguments", "etcd-1"},
		{"an argument of one that is dead for long goes", argued(deadFor(settle, 1)), "delete etcd-1", ""},
		{"lists that differ", runs3("3.5.35", "etcd:3.6.16", blip(1), ownList("1, 2, 3", 0), ownList("1, 2", 2)),
			"hold ListsAgree", "etcd-1"},

		// Controls: what is no such step goes at once, and so does what nothing is known against.
		{"a step that nothing is known against goes", runs3("3.5.35", "etcd:3.6.16", blip(1)), "delete etcd-1", ""},
		{"from 3.4 to 3.5 too", runs3("3.4.34", "etcd:3.5.35", blip(1)), "delete etcd-1", ""},
		{"a patch goes", runs3("3.5.13", "etcd:3.5.35", blip(1)), "delete etcd-1", ""},
		{"a patch goes, whatever the lists", runs3("3.5.13", "etcd:3.5.35", blip(1), ownList("1, 2, 3", 0),
			ownList("1, 2", 2)), "delete etcd-1", ""},
		{"the same version goes", runs3("3.5.13", "etcd:3.5.13", blip(1), arguments("enable-v2")), "delete etcd-1", ""},
		{"a version that cannot be read is told, and goes", runs3("3.4.34", "x:1", blip(1)), "delete etcd-1", ""},
		{"and so is one that no member tells", cluster(1, blip(0), quorumLostFor(long), func(w *world) {
			w.state.Set.Etcd.Image = "etcd:3.6.16"
		}), "delete etcd-0", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := tc.world.decide()
			if say(d) != tc.want || !strings.HasPrefix(d.Reason(), tc.reason) {
				t.Errorf("%s, want %s: %q", say(d), tc.want, d.Reason())
			}
		})
	}
	t.Run("the reason names the ways out", func(t *testing.T) {
		d := before(deadFor(long, 1)).decide()
		for _, words := range []string{"upgrade to the minor version in between", "quorate override etcd UpgradePath"} {
			if !strings.Contains(d.Reason(), words) {
				t.Errorf("no %q in %q", words, d.Reason())
			}
		}
	})
}

// Whatever is known of the step, it must not hold its cure.
func TestWhatIsKnownNeverHoldsACure(t *testing.T) {
	const doomed = "etcd:3.9.0"
	differ := []change{ownList("1, 2, 3", 0, 1), ownList("1", 2)}
	for _, tc := range []struct {
		name  string
		world *world
		want  string
	}{
		{"with all dead for long, whatever the template", runs3("3.5.35", doomed, deadFor(long, 0, 1, 2)),
			"delete etcd-2"},
		{"the fix of a failing update", runs3("3.5.35", "etcd:3.6.16", dead(2), func(w *world) {
			w.pod(2).Revision, w.pod(2).EtcdImage = "rev-broken", "etcd:3.6.16"
		}), "delete etcd-2"},
		{"a fix that goes back to the old version", runs3("3.5.35", "etcd:3.5.36", dead(2), func(w *world) {
			w.pod(2).Revision, w.pod(2).EtcdImage = "rev-broken", "etcd:3.6.16"
		}), "delete etcd-2"},
		{"the way back while old pods run", runs3("3.6.16", "etcd:3.5.35", updated(0), tells("3.5.35", 0), leads(0)),
			"delete etcd-2"},
		{"also when the one that is left of them does not tell its version",
			runs3("3.6.16", "etcd:3.5.35", updated(0), leads(1), noStatus("x", 0), created(1, "etcd:3.5.35", 0),
				created(2, "etcd:3.6.16", 1, 2)).with(dead(2)),
			"delete etcd-2"},
		{"a pod that is being scaled away counts as well, and holds for another reason",
			cluster(4, replicas(3), updated(3), func(w *world) { w.state.Set.Etcd.Image = doomed }),
			"wait OthersLeaving"},
		{"a sick sidecar of a failing update, whose member serves in the new version",
			runs3("3.5.25", "etcd:3.6.16", tells("3.6.0", 2), sick(2), func(w *world) {
				w.pod(2).Revision = "rev-broken"
			}),
			"delete etcd-2"},
		{"a fix with the same image", runs3("3.4.34", "etcd:3.6.16", sick(2), func(w *world) {
			w.pod(2).Revision, w.pod(2).EtcdImage = "rev-broken", "etcd:3.6.16"
		}), "delete etcd-2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := tc.world.decide()
			if got := say(d); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
			if !tc.world.state.Begins() {
				if got := say(tc.world.with(differ...).decide()); got != tc.want {
					t.Errorf("with lists that differ: %s, want %s", got, tc.want)
				}
			}
		})
	}
}

// A pod that goes by another's hand comes back with the new template, checked or not. What would go wrong with the
// others has not changed by that.
func TestWhatIsKnownHoldsTheMembersThatAreLeftToo(t *testing.T) {
	// taken is a cluster of 3.5.25 with a template of 3.6 that only one pod has.
	taken := func(changes ...change) *world {
		return runs3("3.5.25", "etcd:3.6.16", created(1, "etcd:3.5.25", 0, 1), updated(2), tells("3.6.16", 2),
			created(2, "etcd:3.6.16", 2), aged(rollout.ReadySeen, long, 2)).with(changes...)
	}
	for _, tc := range []struct {
		name  string
		world *world
		want  string
	}{
		{"they hold", taken(), "hold UpgradePath"},
		{"also one that has what it takes, beside one that has not", taken(tells("3.5.26", 1)), "hold UpgradePath"},
		{"and one that does not tell its version", taken(noStatus("x", 1), func(w *world) {
			w.policy.MaxLag = 1 << 40
		}, overriding(rollout.GuardCaughtUp)), "hold UpgradePath"},
		{"all that have it go", taken(tells("3.5.26", 0, 1)), "delete etcd-1"},
		{"arguments are no longer asked about: a pod runs with them",
			taken(tells("3.5.26", 0, 1), arguments("enable-v2")), "delete etcd-1"},
		{"an operator who knows better lets them go", taken(overriding(rollout.GuardUpgradePath)), "delete etcd-1"},
		{"a member that does not serve is held too", taken(blip(1)), "hold UpgradePath"},
		{"however long it has been dead", taken(deadFor(long, 1)), "hold UpgradePath"},
		{"a new template of the same version goes to who has it already", taken(sick(2), func(w *world) {
			w.pod(2).Revision = "rev-broken"
		}), "delete etcd-2"},
		{"and no further", taken(func(w *world) { w.state.Set.Etcd.Image = "etcd:3.6.17" }), "hold UpgradePath"},
		{"the way out is a template of 3.5.26 or later, also for the one that is ahead",
			taken(func(w *world) { w.pod(2).Revision, w.state.Set.Etcd.Image = "rev-3.6", "etcd:3.5.35" }),
			"delete etcd-2"},
		{"or the old one", taken(func(w *world) {
			w.state.Set.Etcd.Image, w.state.Set.UpdateRevision = "etcd:3.5.25", oldRev
		}), "delete etcd-2"},
		{"the way back up from a downgrade is not held", runs3("3.6.16", "etcd:3.6.16", updated(0, 1),
			aged(rollout.ReadySeen, long, 0, 1), created(1, "etcd:3.6.16", 0, 1), tells("3.5.25", 2),
			created(2, "etcd:3.5.25", 2)), "delete etcd-2"},
		{"nor where it is the leader's", runs3("3.7.3", "etcd:3.7.3", updated(0, 1),
			aged(rollout.ReadySeen, long, 0, 1), created(1, "etcd:3.7.3", 0, 1), tells("3.6.5", 2),
			created(2, "etcd:3.6.5", 2), leads(2)), "move leadership from etcd-2 to etcd-0"},
		{"a template that says nothing holds nothing",
			taken(func(w *world) { w.state.Set.Etcd.Image = "x:2" }, created(2, "x:2", 2)), "delete etcd-1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if d := tc.world.decide(); say(d) != tc.want {
				t.Errorf("%s, want %s: %s", say(d), tc.want, d.Reason())
			}
		})
	}
}

// Nor does a pod that does not start switch off what is known.
func TestAStepThatBeganByAccidentIsStillHeld(t *testing.T) {
	accident := func(from, image string, changes ...change) *world {
		return runs3(from, image, created(1, "etcd:"+from, 0, 1), updated(2), created(2, image, 2), dead(2),
			blip(1)).with(changes...)
	}
	for _, tc := range []struct {
		name  string
		world *world
		holds rollout.Guard
	}{
		{"an upgrade", accident("3.4.34", "etcd:3.6.16"), rollout.GuardUpgradePath},
		{"a downgrade", accident("3.6.16", "etcd:3.5.35"), rollout.GuardDowngrade},
		{"an argument", accident("3.5.35", "etcd:3.6.16", arguments("enable-v2")), rollout.GuardKnownArguments},
		{"a step that nothing is known against is not", accident("3.5.35", "etcd:3.6.16"), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			over := tc.world.with(overriding(rollout.GuardUpdatedFailing)) // Else nobody that serves is considered.
			for _, candidate := range []string{"etcd-1", "etcd-0"} {
				failed, considered := failedGuards(over.decide(), candidate)
				failed = slices.DeleteFunc(failed, func(g rollout.Guard) bool { return !slices.Contains(preflight, g) })
				if !considered || len(failed) != btoi(tc.holds != "") || len(failed) == 1 && failed[0] != tc.holds {
					t.Errorf("%s: %v hold", candidate, failed)
				}
			}
		})
	}
}

// The way back is a revision that was there before the candidate's. An accident is not: a pod that others have taken
// comes back with the new template, and the others are of a revision that was there before.
func TestTheWayBackIsToARevisionThatIsOlderThanTheCandidates(t *testing.T) {
	// up is a template of 3.6 that some pods have, and that the candidate etcd-1 of 3.5.25 must not get, but for the
	// way back. The pods have been made at these times.
	up := func(current string, updatedOnes []int, at ...int64) *world {
		w := runs3("3.5.25", "etcd:3.6.16", func(w *world) { w.state.Set.CurrentRevision = current })
		for o, t := range at {
			w.with(created(t, "etcd:3.5.25", o))
		}
		return w.with(updated(updatedOnes...), tells("3.6.16", updatedOnes...), images("etcd:3.6.16", updatedOnes...),
			aged(rollout.ReadySeen, long, updatedOnes...))
	}
	const first = "rev-0"
	for _, tc := range []struct {
		name  string
		world *world
		back  bool
	}{
		{"others took etcd-2, which came back with the new template", up(oldRev, []int{2}, 1, 1, 5), false},
		{"the same before Kubernetes 1.37, where the revision was never promoted", up(first, []int{2}, 1, 1, 5), false},
		{"the template went back, etcd-1 came back with the old one, and the template was set again",
			up(first, []int{2}, 1, 7, 5), false},
		{"the same with both of the others, as they have been at the old one all the time",
			up(oldRev, []int{2}, 6, 7, 5), false},
		{"up again from a downgrade that began with etcd-1 and etcd-0", up(newRev, []int{2}, 6, 7, 1), true},
		{"up again from one that began with etcd-1", up(newRev, []int{0, 2}, 1, 7, 1), true},
		{"the same before Kubernetes 1.37, where the older version was the first one ever",
			up(oldRev, []int{0, 2}, 1, 7, 1), true},
		{"where the current revision is not known", up("", []int{0, 2}, 1, 7, 1), true},
		{"made in the same second", up(first, []int{2}, 5, 5, 5), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			failed, considered := failedGuards(tc.world.decide(), "etcd-1")
			if held := slices.Contains(failed, rollout.GuardUpgradePath); held == tc.back || !considered {
				t.Errorf("held: %v, considered: %v", held, considered)
			}
		})
	}
}

func TestARolloutBeginsBeforeAnyPodHasItsRevision(t *testing.T) {
	for _, tc := range []struct {
		name  string
		world *world
		want  bool
	}{
		{"every pod is outdated", cluster(3), true},
		{"one is missing", cluster(3, missing(1)), true},
		{"one has the new revision", cluster(3, updated(1)), false},
		{"also while it terminates", cluster(3, updated(1), terminating(1)), false},
		{"or does not come up", cluster(3, updated(1), dead(1)), false},
		{"or is being scaled away", cluster(4, updated(3), replicas(3)), false},
		{"somebody else's pod says nothing", cluster(4, replicas(3), updated(3), func(w *world) {
			w.pod(3).Owned = false
		}), true},
		{"nothing is outdated", cluster(3, allUpdated()), false},
		{"only what is being scaled away is outdated", cluster(1, replicas(0)), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := tc.world.state.Begins(); got != tc.want {
				t.Errorf("it begins: %v, want %v", got, tc.want)
			}
		})
	}
}

// The same, for every combination of three members: on the way back to a revision that still runs, and where nobody
// tells any version, the decision is what it would be if nothing were known.
func TestNoCombinationOfMembersHasItsCureHeld(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(800))
	classes := votersOf(allClasses(false))
	for n := 1; n <= 3; n++ {
		c := newCatalogue(classes, n)
		sweep(t, len(classes), n, false, nil, func() (func([]int) string, *int) {
			s := newScene(c, environment{maxUnavailable: 1, self: noSelf}, n)
			return func(members []int) string {
				for leader := range n + 1 {
					st := s.world(members, leader, true)
					ignorant := s.decide(members, leader, true)
					st.Set.Etcd = rollout.Program{Image: "etcd:3.9.0",
						Arguments: []rollout.Argument{{Name: "enable-v2"}}}
					held := slices.Clone(st.Etcd.Members)
					for i := range held {
						held[i].Probe.OwnList = fmt.Sprint(i)
					}
					st.Etcd.Members = held
					for i := range st.Pods {
						if st.Pods[i].Revision == st.Set.UpdateRevision {
							st.Pods[i].Created = time.Unix(1, 0) // They were there before all others.
						} else {
							st.Pods[i].Created = time.Unix(2, 0)
						}
					}
					d := rollout.Decide(st, s.policy)
					told := slices.ContainsFunc(members, func(k int) bool { return classes[k].tells() })
					if cure := !st.Begins() || !told; cure && say(d) != say(ignorant) {
						return fmt.Sprintf("%s, and %s without what is known\n%s", say(d), say(ignorant),
							list(newReckoning(s, members).members))
					}
				}
				return ""
			}, &s.decisions
		})
	}
}

func holdBeforeLast(w *world) { w.policy.HoldBeforeLast = true }

func allowedLast(allowance string) change {
	return func(w *world) { w.state.Controls.AllowLast = allowance }
}

func TestARolloutHoldsBeforeTheLastMemberOfAnOlderVersion(t *testing.T) {
	// step is a rollout to 3.6 in which only etcd-0 is left.
	step := func(changes ...change) *world {
		return runs3("3.6.16", "etcd:3.6.16", updated(1, 2), tells("3.5.35", 0), aged(rollout.ReadySeen, long, 1, 2),
			func(w *world) { w.pod(0).EtcdImage = "etcd:3.5.35" }, leads(2), holdBeforeLast).with(changes...)
	}
	unreadable := func(w *world) {
		w.state.Set.Etcd.Image = "x:1"
		for i := range w.state.Pods {
			w.state.Pods[i].EtcdImage = "x:0"
		}
	}
	for _, tc := range []struct {
		name  string
		world *world
		want  string
	}{
		{"it holds", step(), "hold BeforeLast"},
		{"before leadership is moved", step(leads(0)), "hold BeforeLast"},
		{"not without being asked to", step(func(w *world) { w.policy.HoldBeforeLast = false }), "delete etcd-0"},
		{"nor once somebody lets it go", step(allowedLast(newRev + "@3")), "delete etcd-0"},
		{"what was let go before is another rollout", step(allowedLast(newRev + "@2")), "hold BeforeLast"},
		{"so is another revision", step(allowedLast(oldRev + "@3")), "hold BeforeLast"},
		{"the override lets it go", step(overriding(rollout.GuardBeforeLast)), "delete etcd-0"},
		{"not before one that is not the last", step(func(w *world) { w.pod(1).Revision = oldRev }, tells("3.5.35", 1)),
			"delete etcd-1"},
		{"one that is outdated in the new version does not stay behind",
			step(func(w *world) { w.pod(1).Revision = oldRev }, leads(1), tells("3.6.0", 1)), "hold BeforeLast"},
		{"a single member is the last", cluster(1, tells("3.5.35", 0), holdBeforeLast, func(w *world) {
			w.state.Set.Etcd.Image = "etcd:3.6.16"
		}), "hold BeforeLast"},
		{"a member elsewhere of the old version stays behind",
			step(outsiders(2), trusting("ghost-0", "ghost-1"), func(w *world) {
				told := *w.state.Etcd.Members[3].Probe.Status
				told.Version = "3.5.35"
				w.state.Etcd.Members[3].Probe.Status = &told
			}), "delete etcd-0"},
		{"a member that restarts is not let go by that", step(blip(0)), "hold BeforeLast"},
		{"nor is one that has been dead for long, while others serve", step(deadFor(long, 0)), "hold BeforeLast"},
		{"somebody lets it go", step(blip(0), allowedLast(newRev+"@3")), "delete etcd-0"},
		{"with all dead for long it is not asked", step(deadFor(long, 0, 1, 2),
			overriding(rollout.GuardRevisionSuspect, rollout.GuardUpdatedFailing)), "delete etcd-0"},
		{"nor is the way back", runs3("3.5.35", "etcd:3.5.35", updated(1, 2), tells("3.6.16", 0),
			aged(rollout.ReadySeen, long, 1, 2), leads(2), holdBeforeLast), "delete etcd-0"},
		{"nor is the way back up from a downgrade", step(created(1, "etcd:3.6.16", 1, 2), created(2, "etcd:3.5.35", 0)),
			"delete etcd-0"},
		{"nor is a patch", runs3("3.6.16", "etcd:3.6.16", updated(1, 2), tells("3.6.11", 0),
			aged(rollout.ReadySeen, long, 1, 2), leads(2), holdBeforeLast), "delete etcd-0"},
		{"the updated members tell the version where the image does not", step(unreadable), "hold BeforeLast"},
		{"the way back is not held then either", runs3("3.5.35", "x:1", updated(1, 2), tells("3.6.16", 0),
			aged(rollout.ReadySeen, long, 1, 2), leads(2), holdBeforeLast), "delete etcd-0"},
		{"where nobody tells any version, nothing is held", cluster(1, noStatus("x", 0), unreadable, holdBeforeLast,
			func(w *world) { w.state.Set.Etcd.Image = "x:1" },
			overriding(rollout.GuardCaughtUp, rollout.GuardLeaderLast)),
			"delete etcd-0"},
		{"a member that does not tell its version for a moment is waited for", step(noStatus("x", 0), func(w *world) {
			w.pod(0).EtcdImage = "x:0"
		}), "hold BeforeLast"},
		{"its image may tell it", step(noStatus("x", 0), func(w *world) { w.pod(0).EtcdImage = "etcd:3.6.11" }),
			"delete etcd-0"},
		{"one that does not answer at all may need the update", step(unknown(0), maxUnavailable(2), func(w *world) {
			w.pod(0).EtcdImage = "x:0"
		}), "delete etcd-0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := say(tc.world.decide()); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
	t.Run("the reason says what is at risk, and the way out", func(t *testing.T) {
		d := step(blip(0)).decide()
		if r := d.Reason(); !strings.HasPrefix(r, "AT RISK, 2 of 3 voters serve: etcd-0: ") ||
			!strings.Contains(r, "quorate resume etcd") {
			t.Error(r)
		}
	})
	t.Run("one that terminates does not stay behind", func(t *testing.T) {
		d := step(func(w *world) { w.pod(1).Revision = oldRev }, tells("3.5.35", 1), terminating(1)).decide()
		if failed, _ := failedGuards(d, "etcd-0"); !slices.Contains(failed, rollout.GuardBeforeLast) {
			t.Errorf("%v hold", failed)
		}
	})
	t.Run("a predicted rollout ends there", func(t *testing.T) {
		w := runs3("3.5.35", "etcd:3.6.16", holdBeforeLast)
		all := rollout.Predict(w.state, w.policy)
		if got := say(all[len(all)-1]); got != "hold BeforeLast" || len(all) != 3 {
			t.Errorf("after %d steps: %s", len(all), got)
		}
	})
}
