package workload_test

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/quorate/quorate/internal/workload"
)

// reopened is after the longest pause before a watch that was open is opened again.
const reopened = 2*time.Second + time.Millisecond

// mirrored is a mirror whose watch is open, and the API that the watch is opened at.
func mirrored(t *testing.T, single bool) (*workload.Mirror[*corev1.Pod], *api) {
	m, a := &workload.Mirror[*corev1.Pod]{Single: single}, &api{}
	m.Remember(true)
	keep(t, m, a.Watch)
	return m, a
}

// keep keeps a watch open until the test ends.
func keep(t *testing.T, m *workload.Mirror[*corev1.Pod],
	open func(context.Context, metav1.ListOptions) (watch.Interface, error),
) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		workload.Watch{
			Open: open, Into: m, Told: func(watch.Event) {}, Failed: func(err error) { t.Error(err) },
		}.Keep(ctx)
	}()
	t.Cleanup(func() { cancel(); <-ended })
	synctest.Wait()
}

func version(name, version string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version}}
}

// shows checks what a mirror shows: names with their versions, or nothing at all.
func shows(t *testing.T, m *workload.Mirror[*corev1.Pod], known bool, want map[string]string) {
	t.Helper()
	synctest.Wait()
	got := map[string]string{}
	all, ok := m.Now()
	for name, p := range all {
		got[name] = p.ResourceVersion
	}
	if ok != known || ok && !maps.Equal(got, want) {
		t.Errorf("shows %v, %v, want %v, %v", got, ok, want, known)
	}
}

func TestAMirrorShowsTheNewestThatAWatchOrALiveReadingHasTold(t *testing.T) {
	type pods = map[string]string
	for _, tc := range []struct {
		name   string
		single bool
		do     func(m *workload.Mirror[*corev1.Pod], w *watch.FakeWatcher)
		known  bool
		want   pods
	}{
		{"nothing before all of them were read", false,
			func(_ *workload.Mirror[*corev1.Pod], w *watch.FakeWatcher) { w.Add(version("a", "3")) }, false, nil},
		{"what was read, and what has become of it since", false,
			func(m *workload.Mirror[*corev1.Pod], w *watch.FakeWatcher) {
				m.Read(m.Begin(), "5", version("a", "3"), version("b", "4"))
				w.Modify(version("a", "6"))
				synctest.Wait()
				w.Delete(version("b", "7"))
				synctest.Wait()
				w.Add(version("c", "8"))
			}, true, pods{"a": "6", "c": "8"}},
		{"nothing that is older than what was read", false,
			func(m *workload.Mirror[*corev1.Pod], w *watch.FakeWatcher) {
				m.Read(m.Begin(), "9", version("a", "8"))
				w.Modify(version("a", "7"))
				synctest.Wait()
				w.Add(version("b", "6"))
			}, true, pods{"a": "8"}},
		{"and no reading that is older than what the watch has told", false,
			func(m *workload.Mirror[*corev1.Pod], w *watch.FakeWatcher) {
				m.Read(m.Begin(), "5", version("a", "3"), version("b", "4"))
				began := m.Begin()
				w.Delete(version("b", "9"))
				synctest.Wait()
				m.Read(began, "8", version("a", "3"), version("b", "4"))
			}, true, pods{"a": "3"}},
		{"nothing once a reading is older than what was told before it: the API server counts anew", false,
			func(m *workload.Mirror[*corev1.Pod], w *watch.FakeWatcher) {
				m.Read(m.Begin(), "5", version("a", "3"))
				w.Modify(version("a", "9"))
				synctest.Wait()
				m.Read(m.Begin(), "4", version("a", "3"))
			}, false, nil},
		{"what was amended, whatever the watch still tells of the time before", false,
			func(m *workload.Mirror[*corev1.Pod], w *watch.FakeWatcher) {
				m.Read(m.Begin(), "5", version("a", "3"))
				m.Amend("a", func(p *corev1.Pod) *corev1.Pod { return version(p.Name, "0") })
				w.Modify(version("a", "6"))
			}, true, pods{"a": "0"}},
		{"its successor as it is", false,
			func(m *workload.Mirror[*corev1.Pod], w *watch.FakeWatcher) {
				m.Read(m.Begin(), "5", version("a", "3"))
				m.Amend("a", func(p *corev1.Pod) *corev1.Pod { return version(p.Name, "0") })
				w.Delete(version("a", "6"))
				synctest.Wait()
				w.Add(version("a", "7"))
			}, true, pods{"a": "7"}},
		{"9 comes before 10", false,
			func(m *workload.Mirror[*corev1.Pod], w *watch.FakeWatcher) {
				m.Read(m.Begin(), "9", version("a", "9"))
				w.Modify(version("a", "10"))
			}, true, pods{"a": "10"}},
		{"a single object as soon as it is told of", true,
			func(_ *workload.Mirror[*corev1.Pod], w *watch.FakeWatcher) { w.Add(version("a", "3")) }, true,
			pods{"a": "3"}},
		{"a single object that is gone is not known", true,
			func(m *workload.Mirror[*corev1.Pod], w *watch.FakeWatcher) {
				w.Add(version("a", "3"))
				synctest.Wait()
				w.Delete(version("a", "4"))
				synctest.Wait()
				m.Read(m.Begin(), "3", version("a", "3"))
			}, false, nil},
		{"what we have written ourselves, before the watch tells of it", true,
			func(m *workload.Mirror[*corev1.Pod], w *watch.FakeWatcher) {
				w.Add(version("a", "3"))
				synctest.Wait()
				m.Wrote(version("a", "5"))
				w.Modify(version("a", "4"))
			}, true, pods{"a": "5"}},
		{"and that also if the watch has begun anew meanwhile", true,
			func(m *workload.Mirror[*corev1.Pod], w *watch.FakeWatcher) {
				m.Forget()
				w.Add(version("a", "3"))
				synctest.Wait()
				m.Wrote(version("a", "5"))
			}, true, pods{"a": "5"}},
		{"but not what somebody else has written over", true,
			func(m *workload.Mirror[*corev1.Pod], w *watch.FakeWatcher) {
				w.Add(version("a", "6"))
				synctest.Wait()
				m.Wrote(version("a", "5"))
			}, true, pods{"a": "6"}},
		{"nothing of a resourceVersion that nobody understands", true,
			func(_ *workload.Mirror[*corev1.Pod], w *watch.FakeWatcher) { w.Add(version("a", "three")) }, false, nil},
		{"nothing that was read before it had to begin anew", false,
			func(m *workload.Mirror[*corev1.Pod], _ *watch.FakeWatcher) {
				began := m.Begin()
				m.Forget()
				m.Read(began, "5", version("a", "3"))
			}, false, nil},
		{"nothing once it is not wanted any more", false,
			func(m *workload.Mirror[*corev1.Pod], _ *watch.FakeWatcher) {
				m.Read(m.Begin(), "5", version("a", "3"))
				m.Remember(false)
				m.Read(m.Begin(), "5", version("a", "3"))
			}, false, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, a := mirrored(t, tc.single)
				opened, _ := a.watching()
				tc.do(m, opened[0])
				shows(t, m, tc.known, tc.want)
			})
		})
	}
}

// A watch that ends goes on where it ended. Only if the API server has forgotten that, it begins anew, and nothing that
// was known before counts.
func TestAWatchGoesOnWhereItEnded(t *testing.T) {
	expired := &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired}
	for _, tc := range []struct {
		name   string
		single bool
		end    func(w *watch.FakeWatcher)
		at     string
	}{
		{"after an event", false, func(w *watch.FakeWatcher) { w.Modify(version("a", "7")) }, "7"},
		{"after a bookmark", false, func(w *watch.FakeWatcher) {
			w.Action(watch.Bookmark, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "9"}})
		}, "9"},
		{"after an error", false, func(w *watch.FakeWatcher) {
			w.Modify(version("a", "7"))
			synctest.Wait()
			w.Error(&metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError})
		}, "7"},
		{"from the beginning, when that has expired", false, func(w *watch.FakeWatcher) { w.Error(expired) }, ""},
		{"from the beginning, when that tells everything", true,
			func(w *watch.FakeWatcher) { w.Modify(version("a", "7")) }, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, a := mirrored(t, tc.single)
				opened, asked := a.watching()
				if !asked[0].AllowWatchBookmarks || asked[0].ResourceVersion != "" {
					t.Errorf("began with %+v", asked[0])
				}
				m.Read(m.Begin(), "3", version("a", "3"))
				synctest.Wait()
				tc.end(opened[0])
				synctest.Wait()
				opened[0].Stop()
				shows(t, m, false, nil) // Nobody knows while it is not open.
				<-time.After(reopened)
				synctest.Wait()
				if _, asked = a.watching(); len(asked) != 2 || asked[1].ResourceVersion != tc.at {
					t.Fatalf("watches %+v, want one at %q", asked, tc.at)
				}
				_, known := m.Now()
				if known != (tc.at != "") {
					t.Errorf("known: %t", known)
				}
			})
		})
	}
}

func TestAWatchThatIsStillEndingSaysNothingAboutTheNextOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, a := mirrored(t, false)
		keep(t, m, a.Watch)
		m.Read(m.Begin(), "3", version("a", "3"))
		opened, _ := a.watching()
		opened[0].Modify(version("a", "4"))
		synctest.Wait()
		opened[0].Stop()
		shows(t, m, true, map[string]string{"a": "3"})
	})
}

func TestAWatchOfPodsBeginsWhereTheyWereRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{set: statefulSet(), pods: []corev1.Pod{*pod()}, listed: "42"}
		a.set.ResourceVersion, a.pods[0].ResourceVersion = "7", "41"
		w := newView(a)
		w.Remember(true)
		read, err := w.Observe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{}, 2)
		go func() { w.WatchPods(ctx, read.Selector, func() {}, func(error) {}); ended <- struct{}{} }()
		synctest.Wait()
		if w.Cached().Watched {
			t.Error("the StatefulSet is not watched yet")
		}
		go func() { w.WatchSet(ctx, func() {}, func(error) {}); ended <- struct{}{} }()
		synctest.Wait()
		_, asked := a.watching()
		if versions := []string{asked[0].ResourceVersion, asked[1].ResourceVersion}; !slices.Equal(versions,
			[]string{"42", ""}) {
			t.Errorf("began at %q", versions)
		}
		opened, _ := a.watching()
		opened[1].Add(a.set.DeepCopy())
		synctest.Wait()
		told := w.Cached()
		if !told.Watched || !told.Seen.Same(read) {
			t.Errorf("told %+v, want %+v", told, read)
		}
		seen := told.Seen
		live, err := w.Confirm(t.Context(), seen).Wait()
		if err != nil || !live.Same(seen) {
			t.Errorf("confirmed %+v, %v", live, err)
		}
		a.pods[0].ResourceVersion, a.listed = "43", "44"
		if live, err = w.Confirm(t.Context(), seen).Wait(); err != nil || live.Same(seen) {
			t.Errorf("a pod that has changed: %+v, %v", live, err)
		}
		if told = w.Cached(); !told.Watched || !told.Seen.Same(live) {
			t.Error("what was read live has not been learned")
		}
		a.err = errors.New("no answer")
		if _, err = w.Confirm(t.Context(), seen).Wait(); !errors.Is(err, a.err) {
			t.Errorf("got %v", err)
		}
		a.set = a.set.DeepCopy()
		a.set.ResourceVersion, a.set.Status.CurrentRevision, a.err = "50", "promoted", nil
		if err = w.Promote(t.Context(), told.Seen); err != nil {
			t.Fatal(err)
		}
		if told = w.Cached(); told.Seen.CurrentRevision != "promoted" {
			t.Error("a promotion of ours is not known before the watch tells of it")
		}
		cancel()
		<-ended
		<-ended
	})
}

// A sidecar finds itself by one request. Only one that is in no pod of the StatefulSet reads more, and so tells a wrong
// name.
func TestASidecarFindsItselfByOneRequest(t *testing.T) {
	controller := true
	own := func(kind, name string) corev1.Pod {
		return *pod(func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: name, UID: "set-uid",
				Controller: &controller}}
		})
	}
	for _, tc := range []struct {
		name  string
		pod   corev1.Pod
		found bool
		gets  int
	}{
		{"its pod is the StatefulSet's", own("StatefulSet", "etcd-main"), true, 0},
		{"its pod is another's", own("StatefulSet", "etcd-events"), false, 1},
		{"its pod is a Job's", own("Job", "etcd-main"), false, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := &api{set: statefulSet(), pods: []corev1.Pod{tc.pod}}
			a.set.UID = "another"
			self, found, err := newView(a).Self(t.Context(), tc.pod.Name)
			if err != nil || found != tc.found || len(a.gets) != tc.gets {
				t.Errorf("found %t after %d more reads, %v", found, len(a.gets), err)
			}
			if found && (self.Name != tc.pod.Name || self.UID != string(tc.pod.UID) || !self.Owned) {
				t.Errorf("found %+v", self)
			}
		})
	}
}

// late is an API whose watches are opened after a while.
func late(after time.Duration, w watch.Interface) func(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return func(context.Context, metav1.ListOptions) (watch.Interface, error) {
		<-time.After(after)
		return w, nil
	}
}

func TestAWatchThatIsOpenedTooLateClosesNoMirror(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &workload.Mirror[*corev1.Pod]{Single: true}
		m.Remember(true)
		keep := func(ctx context.Context, w watch.Interface, after time.Duration) {
			go workload.Watch{
				Into: m, Open: late(after, w), Told: func(watch.Event) {}, Failed: func(err error) { t.Error(err) },
			}.Keep(ctx)
		}
		old, cancel := context.WithCancel(t.Context())
		keep(old, watch.NewFake(), 20*time.Millisecond)
		synctest.Wait()
		cancel()
		events := watch.NewFake()
		keep(t.Context(), events, 10*time.Millisecond)
		<-time.After(30 * time.Millisecond)
		events.Add(version("a", "7"))
		<-time.After(time.Hour)
		shows(t, m, true, map[string]string{"a": "7"})
	})
}

// The watch has broken because the API server was restored from a backup, which something that is read live tells before
// the watch is open again.
func TestAWatchDoesNotGoOnWhereAnAPIServerThatCountsAnewIsYetToCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, a := mirrored(t, false)
		m.Read(m.Begin(), "1000")
		opened, _ := a.watching()
		opened[0].Add(version("a", "1001"))
		synctest.Wait()
		opened[0].Stop()
		synctest.Wait()
		m.Read(m.Begin(), "500")
		m.Read(m.Begin(), "501")
		<-time.After(reopened)
		synctest.Wait()
		if _, asked := a.watching(); len(asked) != 2 || asked[1].ResourceVersion != "" {
			t.Errorf("watches %+v, want the second one to begin anew", asked)
		}
	})
}

// The same while the watch is being opened.
func TestAWatchBeginsAnewIfTheAPIServerTurnsOutToCountAnewWhileItIsOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, a := &workload.Mirror[*corev1.Pod]{}, &api{}
		m.Remember(true)
		keep(t, m, func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			if opts.ResourceVersion != "" {
				m.Read(m.Begin(), "500")
				m.Read(m.Begin(), "501")
			}
			return a.Watch(ctx, opts)
		})
		m.Read(m.Begin(), "1000")
		opened, _ := a.watching()
		opened[0].Add(version("a", "1001"))
		synctest.Wait()
		opened[0].Stop()
		<-time.After(5 * time.Second)
		synctest.Wait()
		if _, asked := a.watching(); len(asked) != 3 || asked[1].ResourceVersion != "1001" ||
			asked[2].ResourceVersion != "" {
			t.Errorf("watches %+v, want the third one to begin anew", asked)
		}
	})
}

// When an API server ends, all watches end in the same moment. If all came back in the same moment too, and again every
// second, they would keep it from coming back.
func TestAThousandWatchesDoNotComeBackInTheSameMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const watches, outage, longest = 1000, time.Minute, 20 * time.Second
		var mu sync.Mutex
		away, open := false, map[*watch.FakeWatcher]bool{}
		began, attempts := time.Now(), map[time.Duration]int{} // For each hundredth of a second.
		ctx, cancel := context.WithCancel(t.Context())
		var keeping sync.WaitGroup
		for range watches {
			keeping.Go(func() {
				workload.Watch{
					Open: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
						mu.Lock()
						defer mu.Unlock()
						attempts[time.Since(began).Truncate(10*time.Millisecond)]++
						if away {
							return nil, errors.New("connection refused")
						}
						w := watch.NewFake()
						open[w] = true
						return w, nil
					},
					Told: func(watch.Event) {}, Failed: func(error) {},
				}.Keep(ctx)
			})
		}
		defer func() { cancel(); keeping.Wait() }()
		synctest.Wait()
		mu.Lock()
		ended := open
		away, open, attempts = true, map[*watch.FakeWatcher]bool{}, map[time.Duration]int{}
		mu.Unlock()
		if len(ended) != watches {
			t.Fatalf("%d watches are open", len(ended))
		}
		for w := range ended {
			w.Stop()
		}
		<-time.After(outage)
		mu.Lock()
		all := 0
		for _, n := range attempts {
			all += n
		}
		away = false
		mu.Unlock()
		<-time.After(longest)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if len(open) != watches {
			t.Errorf("%d watches are open %s after the API server is back, want all", len(open), longest)
		}
		for at, n := range attempts {
			if n > watches/20 { // Ten come on an average in the first second, and one or two later.
				t.Errorf("%d watches are opened in the hundredth of a second after %s", n, at)
			}
		}
		if each := float64(all) / watches; each < 4 || each > 9 {
			t.Errorf("each is tried %.1f times while the API server is away for %s, want fewer from failure to failure",
				each, outage)
		}
	})
}
