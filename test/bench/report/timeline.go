package report

import (
	"fmt"
	"image/color"
	"math"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/quorate/quorate/test/bench/result"
)

// The measures of a timeline, in points. An arm has a panel: its name, a strip for the latency of
// writes and one for the serving voters.
const (
	titleHeight  = 20
	legendHeight = 32
	nameHeight   = 17
	latencyStrip = 64
	votersStrip  = 36
	stripGap     = 6
	panelGap     = 9
	axisHeight   = 26
	// bucketWidth is the least that a drawn latency is wide; the longest one in it is shown.
	bucketWidth = 1
)

// scales are what all panels of a picture share.
type scales struct {
	from, to    float64
	least, most float64
	voters      int
	// time says what the axis of time counts.
	time          string
	latencyTicks  []plot.Tick
	timeTicks     []plot.Tick
	unlabelled    []plot.Tick
	leftOfStrips  vg.Length
	rightOfStrips vg.Length
}

// timeline draws one panel for each trial, one above the other on one time axis: write latency,
// and the number of serving voters.
func timeline(c result.Case, trials []result.Trial) ([]byte, error) {
	panel := vg.Length(nameHeight + latencyStrip + stripGap + votersStrip + panelGap)
	d := sheet(2*margin + titleHeight + legendHeight + panel*vg.Length(len(trials)) + axisHeight)
	s := scalesOf(trials)
	top := d.Max.Y
	words(d.Canvas, style(12.5, black, true), draw.XLeft, d.Min.X, top-titleHeight/2+3,
		c.Title+": write latency and serving voters while the pods are updated")
	top -= titleHeight
	legend(draw.Crop(d.Canvas, 0, 0, top-legendHeight-d.Min.Y, top-d.Max.Y))
	top -= legendHeight
	var last draw.Canvas
	for i, t := range trials {
		head := draw.Crop(d.Canvas, 0, 0, top-nameHeight-d.Min.Y, top-d.Max.Y)
		top -= nameHeight
		latency := draw.Crop(d.Canvas, 0, 0, top-latencyStrip-d.Min.Y, top-d.Max.Y)
		top -= latencyStrip + stripGap
		below := vg.Length(0)
		if i == len(trials)-1 {
			below = axisHeight
		}
		voters := draw.Crop(d.Canvas, 0, 0, top-votersStrip-below-d.Min.Y, top-d.Max.Y)
		top -= votersStrip + panelGap
		last = s.strip(latency, "latency", latencyPlot(s, t), false)
		heading(head, last.Min.X, last.Max.X, t)
		s.strip(voters, "voters", votersPlot(s, t), i == len(trials)-1)
	}
	return d.file()
}

// strip draws a plot so that its data begins and ends where that of all strips does.
func (s *scales) strip(c draw.Canvas, name string, p *plot.Plot, labelled bool) draw.Canvas {
	p.X.Min, p.X.Max = s.from, s.to
	p.X.Tick.Marker = plot.ConstantTicks(s.unlabelled)
	p.Y.Label.Text = name
	if labelled {
		p.X.Tick.Marker = plot.ConstantTicks(s.timeTicks)
		p.X.Label.Text = s.time
	}
	data := p.DataCanvas(c)
	c = draw.Crop(c, c.Min.X+s.leftOfStrips-data.Min.X, c.Max.X-s.rightOfStrips-data.Max.X, 0, 0)
	if !labelled {
		// The strip's height is that of its data; marks of the axis are below.
		c.Min.Y -= p.DataCanvas(c).Min.Y - c.Min.Y
	}
	p.Draw(c)
	return p.DataCanvas(c)
}

// scalesOf returns the axes on which everything of the trials can be seen. Time ends when the
// last trial that completed did, because a cluster that does not come back would press
// everything else together.
func scalesOf(trials []result.Trial) *scales {
	s := &scales{from: -1, time: "seconds since the change of the pod template", leftOfStrips: 48, rightOfStrips: 4}
	stuck := 0.0
	var latencies []Number
	for _, t := range trials {
		if t.Completed {
			s.to = max(s.to, t.Seconds)
		} else {
			stuck = max(stuck, t.Seconds)
		}
		for _, w := range t.Series.Writes {
			latencies = append(latencies, Number(w.Took))
		}
		for _, step := range t.Series.Serving {
			s.voters = max(s.voters, step.Voters, step.Serving)
		}
	}
	switch {
	case s.to == 0:
		s.to = stuck
	case stuck > 0:
		s.to = min(1.25*s.to, max(stuck, s.to))
	}
	s.to = max(s.to*1.03, 1)
	// The faster half of the writes tells nothing; an axis that begins below the median shows the rest.
	writes := spreadOf(latencies)
	low := math.Floor(math.Log10(max(float64(writes.Median), 1e-4)))
	high := max(math.Ceil(math.Log10(float64(writes.Most)*1.05)), low+1)
	for e := int(low); e <= int(high); e++ {
		s.latencyTicks = append(s.latencyTicks, plot.Tick{Value: math.Pow(10, float64(e)), Label: latencyLabel(e)})
	}
	s.least, s.most = math.Pow(10, low), math.Pow(10, high)
	step := niceStep((s.to - s.from) / 14)
	for v := 0.0; v <= s.to; v += step {
		s.timeTicks = append(s.timeTicks, plot.Tick{Value: v, Label: strconv.FormatFloat(v, 'f', -1, 64)})
		s.unlabelled = append(s.unlabelled, plot.Tick{Value: v})
	}
	return s
}

// latencyLabel writes a power of ten of seconds.
func latencyLabel(exponent int) string {
	switch {
	case exponent >= 0:
		return fmt.Sprintf("%.0f s", math.Pow(10, float64(exponent)))
	case exponent >= -3:
		return fmt.Sprintf("%.0f ms", math.Pow(10, float64(exponent+3)))
	}
	return fmt.Sprintf("%.0f µs", math.Pow(10, float64(exponent+6)))
}

// niceStep is a step of 1, 2 or 5 times a power of ten, and not less than that and 1.
func niceStep(least float64) float64 {
	for unit := 1.0; ; unit *= 10 {
		for _, factor := range []float64{1, 2, 5} {
			if factor*unit >= least {
				return factor * unit
			}
		}
	}
}

// heading writes the arm and what came of its trial.
func heading(c draw.Canvas, left, right vg.Length, t result.Trial) {
	y := c.Min.Y + 6
	words(c, style(10, black, true), draw.XLeft, left, y, result.ArmOf(t.Arm).Title)
	var parts []string
	if t.Leader >= 0 {
		parts = append(parts, fmt.Sprintf("at first %d leads", t.Leader))
	}
	switch {
	case t.QuorumBack < 0:
		parts = append(parts, "quorum lost for good")
	case t.WithoutQuorum > 0:
		parts = append(parts, fmt.Sprintf("%.1f s without quorum", t.WithoutQuorum))
	default:
		parts = append(parts, "quorum never lost")
	}
	if t.QuorumBack >= 0 {
		stall := fmt.Sprintf("longest write stall %.1f s", t.WriteStall)
		if t.WriteStall < 1 {
			stall = fmt.Sprintf("longest write stall %.0f ms", 1000*t.WriteStall)
		}
		parts = append(parts, stall)
	}
	if t.Completed {
		parts = append(parts, fmt.Sprintf("updated after %.1f s", t.Seconds))
	} else {
		parts = append(parts, fmt.Sprintf("not updated in %.0f s", t.Seconds))
	}
	words(c, style(8.5, black, false), draw.XRight, right, y, strings.Join(parts, " · "))
}

// latencyPlot shows the longest write of every moment, the failed ones and the changes of leader.
func latencyPlot(s *scales, t result.Trial) *plot.Plot {
	p := axes()
	p.Y.Min, p.Y.Max, p.Y.Scale = s.least, s.most, plot.LogScale{}
	p.Y.Tick.Marker = plot.ConstantTicks(s.latencyTicks)
	p.Add(painter(func(c draw.Canvas, p *plot.Plot) {
		x, y := p.Transforms(&c)
		background(c, x, t)
		for _, tick := range s.latencyTicks {
			line(c, pale, 0.5, nil, vg.Point{X: c.Min.X, Y: y(tick.Value)}, vg.Point{X: c.Max.X, Y: y(tick.Value)})
		}
		area := outline(c, p, t.Series.Writes)
		c.FillPolygon(sky, area)
		for _, o := range outages(c, x, t) {
			within := c
			within.Min.X, within.Max.X = o[0], o[1]
			c.FillPolygon(salmon, within.ClipPolygonX(area))
		}
		removals(c, x, t)
		previous := vg.Length(math.Inf(-1))
		for _, w := range t.Series.Writes {
			at := x(w.At + w.Took)
			if !w.Failed || at < c.Min.X || at > c.Max.X || at-previous < 5 {
				continue
			}
			previous = at
			glyph(c, draw.CrossGlyph{}, black, 2.4, at, y(w.Took))
		}
		for _, change := range t.Series.Leaders {
			if at := x(change.At); change.At > 0 && at <= c.Max.X {
				glyph(c, diamond{}, purple, 3.2, at, c.Max.Y-4)
				if change.Leader >= 0 {
					words(c, style(7.5, purple, true), draw.XLeft, at+4.5, c.Max.Y-4, fmt.Sprint(change.Leader))
				}
			}
		}
	}))
	return p
}

// peaks returns the longest latency of every bucket from the left to the right, 0 where no
// write was under way. A write counts for as long as it took, so that a stall is as wide as it
// was long.
func peaks(c draw.Canvas, p *plot.Plot, writes []result.Write) []float64 {
	buckets := make([]float64, int((c.Max.X-c.Min.X)/bucketWidth)+1)
	perSecond := float64(len(buckets)) / (p.X.Max - p.X.Min)
	for _, w := range writes {
		from, to := int(math.Floor((w.At-p.X.Min)*perSecond)), int(math.Floor((w.At+w.Took-p.X.Min)*perSecond))
		for i := max(from, 0); i <= min(to, len(buckets)-1); i++ {
			buckets[i] = max(buckets[i], w.Took)
		}
	}
	return buckets
}

// outline returns the area below the peaks, from the first write to the last one. Heights
// that nobody can tell apart are made one, the higher one, which keeps the file small.
func outline(c draw.Canvas, p *plot.Plot, writes []result.Write) []vg.Point {
	_, y := p.Transforms(&c)
	values := peaks(c, p, writes)
	wide := (c.Max.X - c.Min.X) / vg.Length(len(values))
	height := func(took float64) vg.Length {
		if took <= p.Y.Min {
			return c.Min.Y
		}
		return min(vg.Length(math.Ceil(2*float64(y(took)-c.Min.Y)))/2+c.Min.Y, c.Max.Y)
	}
	var points []vg.Point
	for i := 0; i < len(values); {
		end := i + 1
		for end < len(values) && height(values[end]) == height(values[i]) {
			end++
		}
		left, right, top := c.Min.X+vg.Length(i)*wide, c.Min.X+vg.Length(end)*wide, height(values[i])
		if i == 0 {
			points = append(points, vg.Point{X: left, Y: c.Min.Y})
		}
		points = append(points, vg.Point{X: left, Y: top}, vg.Point{X: right, Y: top})
		i = end
	}
	return append(points, vg.Point{X: c.Max.X, Y: c.Min.Y})
}

// votersPlot shows the serving voters, the quorum and the removals.
func votersPlot(s *scales, t result.Trial) *plot.Plot {
	p := axes()
	p.Y.Min, p.Y.Max = 0, float64(s.voters)+0.35
	var ticks []plot.Tick
	for n := range s.voters + 1 {
		tick := plot.Tick{Value: float64(n)}
		if every := (s.voters + 3) / 4; n%every == 0 {
			tick.Label = fmt.Sprint(n)
		}
		ticks = append(ticks, tick)
	}
	p.Y.Tick.Marker = plot.ConstantTicks(ticks)
	p.Add(painter(func(c draw.Canvas, p *plot.Plot) {
		x, y := p.Transforms(&c)
		background(c, x, t)
		removals(c, x, t)
		last := until(c, x, t)
		level := func(of func(result.Step) int) []vg.Point { return stairs(c.Min.X, last, x, y, t.Series.Serving, of) }
		line(c, green, 1.8, nil, level(func(step result.Step) int { return step.Serving })...)
		line(c, black, 0.8, []vg.Length{3, 2}, level(quorumAt)...)
		previous := vg.Length(math.Inf(-1))
		for i, group := range removed(t) {
			at := x(group.at)
			if at > c.Max.X {
				continue
			}
			glyph(c, downward{}, vermilion, 2.8, at, c.Min.Y+4)
			if i == 0 || at-previous > 10 {
				words(c, style(7.5, vermilion, true), draw.XLeft, at+4.5, c.Min.Y+4.5, group.ordinals)
				previous = at
			}
		}
	}))
	return p
}

// quorumAt is the quorum of the voters of a step.
func quorumAt(s result.Step) int { return s.Voters/2 + 1 }

// stairs returns the line of a number that changes from step to step, between two ends.
func stairs(first, last vg.Length, x, y func(float64) vg.Length, steps []result.Step,
	of func(result.Step) int) []vg.Point {
	var points []vg.Point
	for i, step := range steps {
		end := last
		if i+1 < len(steps) {
			end = min(x(steps[i+1].At), last)
		}
		if begin := max(x(step.At), first); begin < end {
			height := y(float64(of(step)))
			points = append(points, vg.Point{X: begin, Y: height}, vg.Point{X: end, Y: height})
		}
	}
	return points
}

// outages returns the times without a quorum of serving voters that are in sight, as they lie
// on the canvas.
func outages(c draw.Canvas, x func(float64) vg.Length, t result.Trial) [][2]vg.Length {
	var found [][2]vg.Length
	last := until(c, x, t)
	for i, step := range t.Series.Serving {
		end := last
		if i+1 < len(t.Series.Serving) {
			end = min(x(t.Series.Serving[i+1].At), last)
		}
		begin := max(x(step.At), c.Min.X)
		if step.Serving >= quorumAt(step) || begin >= end {
			continue
		}
		if n := len(found); n > 0 && found[n-1][1] == begin {
			found[n-1][1] = end
			continue
		}
		found = append(found, [2]vg.Length{begin, end})
	}
	return found
}

// until is where the trial was no longer watched.
func until(c draw.Canvas, x func(float64) vg.Length, t result.Trial) vg.Length {
	last := max(t.Seconds, t.Series.Serving[len(t.Series.Serving)-1].At)
	for _, w := range t.Series.Writes {
		last = max(last, w.At+w.Took)
	}
	return min(x(last), c.Max.X)
}

// background shades the time without a quorum of serving voters, and marks the change of the
// template and the end.
func background(c draw.Canvas, x func(float64) vg.Length, t result.Trial) {
	for _, o := range outages(c, x, t) {
		box(c, rose, o[0], c.Min.Y, o[1], c.Max.Y)
	}
	upright(c, grey, 0.6, nil, x(0))
	if t.Completed {
		upright(c, green, 1.1, nil, x(t.Seconds))
	}
}

// removals marks them by thin lines.
func removals(c draw.Canvas, x func(float64) vg.Length, t result.Trial) {
	for _, d := range t.Downs {
		upright(c, vermilion, 0.6, []vg.Length{1, 1.5}, x(d.Removed))
	}
}

// upright draws a line from the bottom to the top, if it is in sight.
func upright(c draw.Canvas, stroke color.Color, thick vg.Length, dashes []vg.Length, x vg.Length) {
	if c.ContainsX(x) {
		line(c, stroke, thick, dashes, vg.Point{X: x, Y: c.Min.Y}, vg.Point{X: x, Y: c.Max.Y})
	}
}

// removal is one removal, or several at about the same time.
type removal struct {
	at       float64
	ordinals string
}

// removed returns the removals, with those of a tenth of a second as one.
func removed(t result.Trial) []removal {
	var groups []removal
	for _, d := range t.Downs {
		ordinal := d.Pod[strings.LastIndex(d.Pod, "-")+1:]
		if n := len(groups); n > 0 && d.Removed-groups[n-1].at < 0.1 {
			groups[n-1].ordinals += ", " + ordinal
			continue
		}
		groups = append(groups, removal{d.Removed, ordinal})
	}
	return groups
}

// legend explains the signs, in two rows.
func legend(c draw.Canvas) {
	text := style(8.5, black, false)
	const sign, gap = 15, 14
	x, y := c.Min.X, c.Max.Y-6
	entry := func(txt string, paint func(x, y vg.Length)) {
		paint(x, y)
		words(c, text, draw.XLeft, x+sign+4, y+0.5, txt)
		x += sign + 4 + text.Width(txt) + gap
	}
	entry("write latency, the longest of each moment", func(x, y vg.Length) { box(c, sky, x, y-4, x+sign, y+4) })
	entry("failed write", func(x, y vg.Length) { glyph(c, draw.CrossGlyph{}, black, 2.6, x+sign/2, y) })
	entry("serving voters", func(x, y vg.Length) {
		line(c, green, 1.8, nil, vg.Point{X: x, Y: y}, vg.Point{X: x + sign, Y: y})
	})
	entry("quorum", func(x, y vg.Length) {
		line(c, black, 0.9, []vg.Length{3, 2}, vg.Point{X: x, Y: y}, vg.Point{X: x + sign, Y: y})
	})
	entry("no quorum of voters serves", func(x, y vg.Length) {
		box(c, salmon, x, y-4, x+sign/2, y+4)
		box(c, rose, x+sign/2, y-4, x+sign, y+4)
	})
	x, y = c.Min.X, y-14
	entry("pod removed, with its ordinal", func(x, y vg.Length) { glyph(c, downward{}, vermilion, 2.8, x+sign/2, y) })
	entry("another leader, with its ordinal", func(x, y vg.Length) { glyph(c, diamond{}, purple, 3.4, x+sign/2, y) })
	entry("all pods updated and Ready", func(x, y vg.Length) {
		line(c, green, 1.1, nil, vg.Point{X: x + sign/2, Y: y - 5}, vg.Point{X: x + sign/2, Y: y + 5})
	})
	words(c, style(8.5, grey, false), draw.XRight, c.Max.X, y+0.5,
		"of each arm, the trial with the median rollout time")
}
