package report

import (
	"cmp"
	"errors"
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/quorate/quorate/test/chaos/soak"
)

// The measures of the picture of a soak, in points.
const (
	soakStrip  = 64
	soakLegend = 18
	// soakPoint is how wide the time is whose median is drawn as one point.
	soakPoint = 1.2
)

// soakFile is the picture's file, beside the page.
const soakFile = "soak.svg"

// WriteSoak writes the page of soaks, and the picture beside it. Chaos is the table of what happened meanwhile. It
// returns what is wrong with them, which is also on the page.
func WriteSoak(path string, runs []*soak.Run, chaos string) (wrong []string, err error) {
	svg, err := soakPicture(runs)
	if err != nil {
		return nil, err
	}
	text, wrong := soakPage(runs, chaos)
	return wrong, errors.Join(os.WriteFile(path, []byte(text), 0o644),
		os.WriteFile(filepath.Join(filepath.Dir(path), soakFile), svg, 0o644))
}

// soakPage is the page, and what is wrong with the runs.
func soakPage(runs []*soak.Run, chaos string) (text string, wrong []string) {
	hours, first, last := 0.0, runs[0].Began, runs[0].Began
	var rows, grown [][]string
	for i, r := range runs {
		hours += r.Hours()
		if r.Began.Before(first) {
			first = r.Began
		}
		if r.Began.After(last) {
			last = r.Began
		}
		trends, bad := r.Judge()
		for _, w := range bad {
			wrong = append(wrong, fmt.Sprintf("run %d: %s", i+1, w))
		}
		rows = append(rows, []string{strconv.Itoa(i + 1), r.Began.UTC().Format(time.DateTime), figure(r.Hours()),
			strings.TrimSpace(r.Cluster)})
		for _, t := range trends {
			name := t.Name
			if t.Unit != "" {
				name += ", " + t.Unit
			}
			verdict := "no"
			if t.Grows() {
				verdict = "**yes**"
			}
			grown = append(grown, []string{strconv.Itoa(i + 1), name, t.Who(), figure(t.Hours), figure(t.Early),
				figure(t.Late), figure(t.Limit), figure(t.Most), verdict})
		}
	}
	p := &page{}
	p.line("# Soak: what sidecars occupy after hours of chaos\n")
	days := first.UTC().Format(time.DateOnly)
	if to := last.UTC().Format(time.DateOnly); to != days {
		days += " to " + to
	}
	p.line("Written by `make soak-page` from %s of `make soak`, on %s. Everything on this page is theirs.\n",
		plural(len(runs), "run"), days)
	p.line("%s\n", soakVerdict(hours, wrong))
	p.line("%s", soakText)
	p.line("![Memory, goroutines, connections and leases of sidecars over time, in hours of chaos](%s)\n", soakFile)
	p.head(2, "Does anything grow?")
	p.line("%s", soakReading)
	p.table(3, []string{"run", "what", "whose", "hours", "second quarter", "last quarter", "at most", "highest",
		"grows"}, grown)
	p.head(2, "The runs")
	p.table(4, []string{"run", "began (UTC)", "hours", "the first script"}, rows)
	if chaos != "" {
		p.head(2, "What happened meanwhile")
		p.line("```text\n%s\n```", strings.TrimRight(chaos, "\n"))
	}
	return p.String(), wrong
}

// soakVerdict is the answer, in a sentence.
func soakVerdict(hours float64, wrong []string) string {
	if len(wrong) == 0 {
		return fmt.Sprintf("**Nothing grew in %.1f hours of chaos.**", hours)
	}
	return fmt.Sprintf("**In %.1f hours of chaos, this was wrong:**\n\n* %s", hours, strings.Join(wrong, "\n* "))
}

// soakText says what was done, and soakReading how it is judged.
const (
	soakText = `[Chaos](../safety.md#what-is-proved-and-how) is rollouts over and over while everything fails around
them, with every duty of the coordinator on, and an auditor that checks every removal. Here, in each run, all of it
happens to one cluster. A rollout replaces the members' sidecars about once a minute, so none of them lives long enough
to show growth. So two more run in pods of their own, as the bootstrap Job does. They take part in the election,
coordinate when it is their turn, and are halted, cut off from the API server, delayed and refused permissions
meanwhile. No fault ends them.

Every five seconds, this is read of each sidecar: the anonymous resident memory of its process and its open sockets,
from the kernel, and Go's heap and goroutines, from its metrics. Of etcd, it is the number of leases.
`
	soakReading = `The median of the last quarter of a life is compared with that of the second. The first one does not
count, because caches still fill. It grows if the last one is higher by more than a tenth and a small number: 2 MiB of
memory, 1 MiB of heap, 5 goroutines, 3 connections, 2 leases. Go's heap is the lowest value of two minutes, in which
garbage is collected at least once. A coordinator needs more goroutines and connections than an owner of the lock that
has nothing to do, which needs more than a sidecar that waits, and all of them need more beside more members. So each
role is compared only with itself, at the same number of members. A run with growth fails, and so does one in which a
lasting sidecar ended, none was seen for twenty minutes, or etcd had more than two leases for each sidecar at any time.
`
)

// figure writes a number with as many digits as anybody can use.
func figure(v float64) string {
	if v == math.Trunc(v) || math.Abs(v) >= 100 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'f', 1, 64)
}

// stroke is a line of a strip: a piece for each run.
type stroke struct {
	name   string
	paint  color.Color
	thick  vg.Length
	dashes []vg.Length
	pieces [][]soak.Point
}

// soakStrokes are the lines of the strips, from the top to the bottom, and the names of these. The runs follow one
// another in time.
func soakStrokes(runs []*soak.Run) (names []string, strips [][]*stroke) {
	paints := []color.Color{blue, vermilion, purple, green}
	add := func(run int, name string, s stroke, points []soak.Point) {
		i := slices.Index(names, name)
		if i < 0 {
			names, strips, i = append(names, name), append(strips, nil), len(names)
		}
		at := slices.IndexFunc(strips[i], func(o *stroke) bool { return o.name == s.name })
		if at < 0 {
			at = len(strips[i])
			if s.paint == nil {
				s.paint = paints[at%len(paints)]
			}
			s.pieces = make([][]soak.Point, len(runs))
			strips[i] = append(strips[i], &s)
		}
		strips[i][at].pieces[run] = merged(strips[i][at].pieces[run], points)
	}
	offset := 0.0
	for run, r := range runs {
		shifted := func(points []soak.Point) []soak.Point {
			moved := make([]soak.Point, len(points))
			for i, p := range points {
				moved[i] = soak.Point{At: (p.At + offset) / time.Hour.Seconds(), Value: p.Value}
			}
			return moved
		}
		for _, s := range r.Series() {
			name := s.Name
			if s.Unit != "" {
				name += ", " + s.Unit
			}
			switch s.Whose {
			case soak.Etcd:
				continue // They are drawn as they are, not as what is judged.
			case soak.Pods:
				add(run, name, stroke{name: s.Whose, paint: sky, thick: 0.8}, shifted(s.Points))
			default:
				add(run, name, stroke{name: s.Whose, thick: 1.3}, shifted(s.Points))
			}
		}
		var all, running []soak.Point
		for _, l := range r.Looks {
			if l.Leases != nil {
				all = append(all, soak.Point{At: l.Seconds, Value: float64(l.Leases.All)})
				running = append(running, soak.Point{At: l.Seconds, Value: float64(l.Leases.Running)})
			}
		}
		add(run, "leases", stroke{name: "leases in etcd", paint: green, thick: 1.3}, shifted(all))
		add(run, "leases", stroke{name: "sidecars that run", paint: grey, thick: 0.8, dashes: []vg.Length{3, 2}},
			shifted(running))
		offset += r.Hours() * time.Hour.Seconds()
	}
	return names, strips
}

// merged is a sidecar in all its circumstances, in the order of time. Of two at one time the higher counts.
func merged(a, b []soak.Point) []soak.Point {
	all := slices.Concat(a, b)
	slices.SortFunc(all, func(a, b soak.Point) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(b.Value, a.Value))
	})
	return slices.CompactFunc(all, func(a, b soak.Point) bool { return a.At == b.At })
}

// soakPicture draws everything over the hours of chaos, the runs one after the other.
func soakPicture(runs []*soak.Run) ([]byte, error) {
	names, strips := soakStrokes(runs)
	hours := 0.0
	var ends []float64
	for _, r := range runs {
		hours += r.Hours()
		ends = append(ends, hours)
	}
	panel := vg.Length(nameHeight + soakStrip + panelGap)
	d := sheet(2*margin + titleHeight + soakLegend + panel*vg.Length(len(strips)) + axisHeight)
	top := d.Max.Y
	words(d.Canvas, style(12.5, black, true), draw.XLeft, d.Min.X, top-titleHeight/2+3,
		fmt.Sprintf("What sidecars occupy in %.1f hours of chaos", hours))
	top -= titleHeight
	x, told := d.Min.X, map[string]bool{}
	for _, s := range slices.Concat(strips...) {
		if !told[s.name] {
			told[s.name] = true
			line(d.Canvas, s.paint, 2, s.dashes, vg.Point{X: x, Y: top - 5}, vg.Point{X: x + 15, Y: top - 5})
			words(d.Canvas, style(8.5, black, false), draw.XLeft, x+19, top-5, s.name)
			x += 19 + style(8.5, black, false).Width(s.name) + 14
		}
	}
	top -= soakLegend
	s := &scales{time: "hours of chaos", to: max(hours, 0.1), leftOfStrips: 30, rightOfStrips: 8}
	for at, step := 0.0, hoursStep(s.to); at <= s.to; at += step {
		s.timeTicks = append(s.timeTicks, plot.Tick{Value: at, Label: strconv.FormatFloat(at, 'g', 3, 64)})
		s.unlabelled = append(s.unlabelled, plot.Tick{Value: at})
	}
	for i, name := range names {
		below := vg.Length(0)
		if i == len(names)-1 {
			below = axisHeight
		}
		words(d.Canvas, style(9, black, true), draw.XLeft, d.Min.X, top-nameHeight/2, name)
		top -= nameHeight
		c := draw.Crop(d.Canvas, 0, 0, top-soakStrip-below-d.Min.Y, top-d.Max.Y)
		top -= soakStrip + panelGap
		s.strip(c, "", soakPlot(strips[i], ends), i == len(names)-1)
	}
	return d.file()
}

// hoursStep is how many hours are between two marks of so many.
func hoursStep(hours float64) float64 {
	for _, step := range []float64{0.01, 0.05, 0.1, 0.25, 0.5} {
		if hours/step <= 12 {
			return step
		}
	}
	return niceStep(hours / 12)
}

// soakPlot is a strip. The ends are those of the runs.
func soakPlot(strokes []*stroke, ends []float64) *plot.Plot {
	p := axes()
	most := 1.0
	for _, s := range strokes {
		for _, piece := range s.pieces {
			for _, point := range piece {
				most = max(most, point.Value)
			}
		}
	}
	p.Y.Min, p.Y.Max = 0, most*1.08
	var ticks []plot.Tick
	for at, step := 0.0, niceStep(most/4); at <= most*1.08; at += step {
		ticks = append(ticks, plot.Tick{Value: at, Label: strconv.FormatFloat(at, 'f', -1, 64)})
	}
	p.Y.Tick.Marker = plot.ConstantTicks(ticks)
	p.Add(painter(func(c draw.Canvas, p *plot.Plot) {
		x, y := p.Transforms(&c)
		for _, tick := range ticks {
			line(c, pale, 0.5, nil, vg.Point{X: c.Min.X, Y: y(tick.Value)}, vg.Point{X: c.Max.X, Y: y(tick.Value)})
		}
		for _, end := range ends[:len(ends)-1] {
			line(c, grey, 0.6, []vg.Length{1.5, 1.5}, vg.Point{X: x(end), Y: c.Min.Y}, vg.Point{X: x(end), Y: c.Max.Y})
		}
		for _, s := range slices.Backward(strokes) {
			for _, piece := range s.pieces {
				line(c, s.paint, s.thick, s.dashes, medians(piece, x, y)...)
			}
		}
	}))
	return p
}

// medians are the points of a line: one for everything that is too close together to be told apart.
func medians(points []soak.Point, x, y func(float64) vg.Length) []vg.Point {
	var drawn []vg.Point
	for i := 0; i < len(points); {
		from, values := x(points[i].At), []Number(nil)
		for ; i < len(points) && x(points[i].At)-from < soakPoint; i++ {
			values = append(values, Number(points[i].Value))
		}
		drawn = append(drawn, vg.Point{X: from, Y: y(float64(spreadOf(values).Median))})
	}
	return drawn
}
