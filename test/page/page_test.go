// Package page looks at the status page in a real browser.
package page

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/internal/reporttest"
	"github.com/quorate/quorate/pkg/page"
	"github.com/quorate/quorate/pkg/rollout"
)

const (
	// requireVariable is the environment variable that turns a skip into a failure, for CI.
	requireVariable = "QUORATE_REQUIRE_BROWSER"
	// screenshotsVariable names a folder into which the pages are written as pictures, for a person to look at.
	screenshotsVariable = "QUORATE_SCREENSHOTS"
	// patience is far longer than any test here takes.
	patience = 5 * time.Minute
)

// phone is the narrowest screen that the page has to fit on, in CSS pixels, and desk is a wide one.
const (
	phone = 320
	desk  = 1100
)

// browser starts a Chromium with a profile of its own, and ends it with the test. On each page the script's errors are
// gathered, and what the page's own policy forbids.
func browser(t *testing.T) context.Context {
	t.Helper()
	path, err := chromium()
	if err != nil {
		if os.Getenv(requireVariable) != "" {
			t.Fatalf("%s is set, but: %v", requireVariable, err)
		}
		t.Skip(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx,
		chromedp.ExecPath(path), chromedp.UserDataDir(t.TempDir()), chromedp.Headless, chromedp.NoSandbox,
		chromedp.NoFirstRun, chromedp.DisableGPU, chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-sync", true), chromedp.Flag("disable-dev-shm-usage", true))
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	before(t, ctx, `
		window.complaints = [];
		addEventListener("error", (e) => complaints.push(e.message));
		addEventListener("unhandledrejection", (e) => complaints.push(String(e.reason)));
		addEventListener("securitypolicyviolation", (e) => complaints.push(e.violatedDirective));`)
	return ctx
}

func chromium() (path string, err error) {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err = exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("no browser: the package chromium is not installed")
}

func do(t *testing.T, ctx context.Context, steps ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	require.NoError(t, chromedp.Do(ctx, steps...))
}

// command sends one command of the browser's own protocol.
func command[P, R any](c cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, c, params)
		return err
	})
}

// before has a script run on every page before the page's own.
func before(t *testing.T, ctx context.Context, script string) {
	t.Helper()
	do(t, ctx, command(cdppage.AddScriptToEvaluateOnNewDocument,
		cdppage.AddScriptToEvaluateOnNewDocumentParams{Source: script}))
}

func screen(width int64) chromedp.Action[chromedp.Void] {
	return command(emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: width, Height: 640, DeviceScaleFactor: 1, Mobile: width == phone})
}

// eval is what an expression is on the page.
func eval[T any](t *testing.T, ctx context.Context, expression string) T {
	t.Helper()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	require.NoError(t, err, expression)
	return value
}

// wait waits until an expression is true on the page.
func wait(t *testing.T, ctx context.Context, expression string) {
	t.Helper()
	err := chromedp.Do(ctx, chromedp.Poll[chromedp.Void](expression))
	require.NoError(t, err, "waiting for %s on a page that says\n%s", expression, said(ctx))
}

// said is all that a person reads on the page.
func said(ctx context.Context) string {
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string]("document.body.innerText"))
	if err != nil {
		return err.Error()
	}
	return text
}

// source tells what it is given.
type source struct {
	mu     sync.Mutex
	status func(now time.Time) report.Status
}

func (s *source) Report(context.Context) (report.Status, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status(time.Now()), nil
}

func (s *source) Running() bool { return true }

func (s *source) tells(status func(time.Time) report.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status = status
}

// site serves the page of one source. While broken is set, whoever stands between answers with 502.
type site struct {
	*httptest.Server
	*source
	broken atomic.Bool
}

func serve(t *testing.T, status func(time.Time) report.Status) *site {
	t.Helper()
	s := &site{source: &source{status: status}}
	h := page.Handler(page.Config{Source: s.source, Namespace: "garden", StatefulSet: "etcd-main",
		PodName: "etcd-main-0", Version: "v1.0.0"})
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.broken.Load() {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

// reported is what a coordinator reported of a state, so long ago.
func reported(s rollout.State, ago time.Duration) func(time.Time) report.Status {
	return func(now time.Time) report.Status {
		r, h := reporttest.Reported(s, now.Add(-ago), "etcd-main-2"), reporttest.Past(now.Add(-ago))
		if !r.Rolling() {
			h = h.Add(report.Entry{At: r.Ended, What: report.Completed, Reason: r.Reason})
		}
		return reporttest.Recorded(r, h, now)
	}
}

var (
	well     = reporttest.State(0, 1, 2)
	starting = reporttest.Down(reporttest.State(2, 1), 1, "PodInitializing", 0)
	failing  = reporttest.Down(reporttest.State(2), 2, "CrashLoopBackOff", 12)
	lost     = reporttest.Down(reporttest.Down(reporttest.State(2), 2, "CrashLoopBackOff", 12), 1, "Error", 3)
)

var situations = []struct {
	name    string
	status  func(time.Time) report.Status
	verdict string
}{
	{"complete", reported(well, time.Second), "SAFE: quorum 3/3, one may fail"},
	{"starting", reported(starting, time.Second), "AT RISK: quorum 2/3, none may fail"},
	{"held", reported(failing, time.Second), "AT RISK: quorum 2/3, none may fail"},
	{"quorum lost", reported(lost, time.Second), "QUORUM LOST: writes fail: 1/3 members serve, and 2 are needed"},
	{"idle for hours", reported(well, 3*time.Hour), "UNKNOWN: nobody has reported for 3h"},
	{"fallen silent", reported(starting, 10*time.Minute), "UNKNOWN: nobody has reported for 10m"},
	{"nothing reported", func(now time.Time) report.Status { return reporttest.Recorded(report.Report{}, nil, now) },
		"UNKNOWN: no coordinator has reported anything yet"},
}

// looks is what look.js finds out.
type looks struct {
	// First is the first heading as it is read, and Tag what it is.
	First, Tag string
	// Wide is how wide everything is, in pixels.
	Wide int64
	// Faint are the texts whose contrast is below 4.5:1, and Texts is how many were measured.
	Faint []string
	Texts int
	// Rows are the ways in which rows of tables are laid out, and Stuck are regions that scroll and cannot be reached
	// with the keyboard.
	Rows, Stuck []string
	Tables      int
	Scheme      string
	// Complaints are the script's errors, and what the page's own policy forbids.
	Complaints []string
}

//go:embed look.js
var look string

func TestTheVerdictIsTheFirstHeadingInLightAndDarkAndOnAPhone(t *testing.T) {
	ctx := browser(t)
	for _, tc := range situations {
		s := serve(t, tc.status)
		for _, scheme := range []string{"light", "dark"} {
			for _, width := range []int64{desk, phone} {
				t.Run(fmt.Sprintf("%s, %s, %d pixels wide", tc.name, scheme, width), func(t *testing.T) {
					do(t, ctx, screen(width), command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
						Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}),
						chromedp.Navigate(s.URL))
					picture(t, ctx, fmt.Sprintf("%s-%s-%d.png", tc.name, scheme, width))
					got := eval[looks](t, ctx, look)
					require.Equal(t, "H1", got.Tag)
					require.Equal(t, tc.verdict, got.First)
					require.Equal(t, scheme, got.Scheme)
					require.LessOrEqual(t, got.Wide, width, "the page is wider than the screen")
					require.Empty(t, got.Faint, "of %d texts", got.Texts)
					require.Greater(t, got.Texts, 10)
					require.Empty(t, got.Stuck)
					require.Empty(t, got.Complaints)
					if tc.name == "starting" {
						require.NotZero(t, got.Tables)
						require.Equal(t, []string{"table-row"}, got.Rows)
					}
				})
			}
		}
	}
}

func picture(t *testing.T, ctx context.Context, name string) {
	t.Helper()
	folder := os.Getenv(screenshotsVariable)
	if folder == "" {
		return
	}
	png, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(folder, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(folder, strings.ReplaceAll(name, " ", "-")), png, 0o600))
}

// The reader is in the middle of the page when the rollout goes on: a text is selected, the keyboard is on a link, and
// what was folded is open.
func TestAnUpdateKeepsTheReadersPlaceAndIsCalledOutOnce(t *testing.T) {
	ctx := browser(t)
	s := serve(t, reported(starting, time.Second))
	do(t, ctx, screen(phone), chromedp.Navigate(s.URL))
	eval[chromedp.Void](t, ctx, `
		document.querySelector("details").open = true;
		document.querySelector("tbody a").focus();
		const card = document.querySelector(".cards li"), name = card.querySelector("h3").lastChild;
		card.scrollIntoView();
		getSelection().setBaseAndExtent(name, 1, card.querySelector(".chips"), 1);
		window.heard = [];
		new MutationObserver(() => heard.push(said.textContent)).observe(said, {childList: true})`)
	const place = `({
		selected: getSelection().toString(), focused: document.activeElement.textContent, x: scrollX,
		top: Math.round(document.querySelector(".cards li").getBoundingClientRect().top),
		open: document.querySelector("details").open})`
	reading := eval[map[string]any](t, ctx, place)
	require.Contains(t, reading["selected"], "etcd-main-0\nServing for 4m")
	require.Equal(t, true, reading["open"])

	const asOf = `document.querySelector("footer span + span").textContent`
	verdict := func(starts string) string { return `document.querySelector("h1 b").textContent === "` + starts + `"` }
	next := func() { wait(t, ctx, fmt.Sprintf("%s !== %q", asOf, eval[string](t, ctx, asOf))) }
	next()
	require.Equal(t, reading, eval[map[string]any](t, ctx, place))
	require.Empty(t, eval[[]string](t, ctx, "heard"), "nothing but ages has changed")

	s.tells(reported(lost, time.Second))
	wait(t, ctx, verdict("QUORUM LOST"))
	require.Equal(t, reading, eval[map[string]any](t, ctx, place))
	next()
	require.Equal(t, reading, eval[map[string]any](t, ctx, place))
	news := eval[[]string](t, ctx, "heard")
	require.Len(t, news, 1)
	require.Contains(t, news[0], "QUORUM LOST: writes fail: 1/3 members serve, and 2 are needed. Hold: UpdatedFailing")
	require.Contains(t, eval[string](t, ctx, "document.title"), "QUORUM LOST: writes fail")
	require.Equal(t, "polite", eval[string](t, ctx, "said.ariaLive"))

	// Even a text that changes stays selected.
	eval[chromedp.Void](t, ctx, `
		getSelection().selectAllChildren(document.querySelector("footer span + span"));
		getSelection().extend(document.querySelector("footer span + span").firstChild, 16)`)
	next()
	require.Regexp(t, "^as of [0-9-]{10}$", eval[string](t, ctx, "getSelection().toString()"))
}

// A page that stands still must not go on saying SAFE as if that were known.
func TestAPageThatCannotBeUpdatedSaysSo(t *testing.T) {
	ctx := browser(t)
	s := serve(t, reported(reporttest.State(2), time.Second))
	do(t, ctx, chromedp.Navigate(s.URL))
	const headline = `getComputedStyle(document.querySelector("h1"), "::before").content`
	require.True(t, eval[bool](t, ctx, "trouble.hidden"))
	require.Equal(t, "none", eval[string](t, ctx, headline))

	s.broken.Store(true)
	wait(t, ctx, "!trouble.hidden")
	require.Regexp(t, `^This page could not be updated since \d\d:\d\d:\d\d UTC \(HTTP 502\)\. `,
		eval[string](t, ctx, "trouble.innerText"))
	require.Equal(t, `"It was "`, eval[string](t, ctx, headline))
	require.Regexp(t, "^NOT UPDATED · SAFE", eval[string](t, ctx, "document.title"))
	require.Empty(t, eval[looks](t, ctx, look).Faint)
	picture(t, ctx, "not updated.png")

	s.broken.Store(false)
	wait(t, ctx, "trouble.hidden")
	require.Equal(t, "none", eval[string](t, ctx, headline))
	require.Regexp(t, "^SAFE", eval[string](t, ctx, "document.title"))
}

func TestATabThatNobodySeesAsksNothing(t *testing.T) {
	ctx := browser(t)
	s := serve(t, reported(well, time.Second))
	// The page's timers and requests are counted, and the test says whether it is seen.
	before(t, ctx, `
		window.timers = new Set(); window.asked = 0; window.unseen = false;
		const set = setTimeout, clear = clearTimeout, ask = fetch;
		window.fetch = (...what) => { asked++; return ask(...what); };
		window.setTimeout = (f, ms) => {
			const id = set(() => { timers.delete(id); f(); }, ms);
			timers.add(id);
			return id;
		};
		window.clearTimeout = (id) => { timers.delete(id); clear(id); };
		Object.defineProperty(Document.prototype, "hidden", {get: () => unseen});
		window.turn = (away) => { unseen = away; document.dispatchEvent(new Event("visibilitychange")); };`)
	do(t, ctx, chromedp.Navigate(s.URL))
	// What the page will ask for sooner or later, and has asked for.
	const asks = "[timers.size, asked]"
	require.Equal(t, []int{1, 0}, eval[[]int](t, ctx, asks))
	require.Equal(t, []int{0, 0}, eval[[]int](t, ctx, "turn(true); "+asks), "nobody looks, and it goes on")
	require.Equal(t, []int{0, 1}, eval[[]int](t, ctx, "turn(false); "+asks), "somebody looks again, and it waits")
	wait(t, ctx, "timers.size === 1")
}

func TestWithoutJavaScriptThePageSaysHowToGoOn(t *testing.T) {
	ctx := browser(t)
	s := serve(t, reported(reporttest.State(2), time.Second))
	const line = "Reload this page to see what has changed since."
	do(t, ctx, chromedp.Navigate(s.URL))
	require.NotContains(t, said(ctx), line)
	do(t, ctx, command(emulation.SetScriptExecutionDisabled,
		emulation.SetScriptExecutionDisabledParams{Value: true}), chromedp.Navigate(s.URL))
	require.Contains(t, said(ctx), line)
	require.Contains(t, said(ctx), "SAFE: quorum 3/3, one may fail")
}
