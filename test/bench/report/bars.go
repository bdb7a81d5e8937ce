package report

import (
	"fmt"
	"image/color"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/quorate/quorate/test/bench/result"
)

// The measures of the bars, in points: a line for each, and one for the name of their case.
const (
	barLine  = 11.5
	barThick = 9
	// textUp is by how much the library lifts the labels of an axis.
	textUp = 1
)

// bars draws the median seconds without quorum of every arm in every case, with the spread
// written at its end.
func bars(rows []Row) ([]byte, error) {
	// Every line's place is its middle, from 0 downwards.
	type entry struct {
		y   float64
		row Row
		// zero says of a case's title that nothing happened in it.
		zero string
	}
	var titles, entries []entry
	var ticks []plot.Tick
	most, at := 0.0, 0.0
	for _, name := range group(rows, func(r Row) string { return r.Case }) {
		arms := filter(rows, func(r Row) bool { return r.Case == name })
		title := entry{y: at - 0.5, row: arms[0]}
		at -= 1
		if !slices.ContainsFunc(arms, func(r Row) bool { return r.WithoutQuorum.Most > 0 }) {
			title.zero = fmt.Sprintf("0 s in every trial of all %s", plural(len(arms), "arm"))
			arms = nil
		}
		titles = append(titles, title)
		for _, row := range arms {
			entries = append(entries, entry{y: at - 0.5, row: row})
			ticks = append(ticks, plot.Tick{Value: at - 0.5, Label: result.ArmOf(row.Arm).Title})
			at--
			if m := row.WithoutQuorum.Median; m != never {
				most = max(most, float64(m))
			}
		}
		at -= 0.6
	}
	d := sheet(vg.Length(-at*barLine) + 2*margin + titleHeight + legendHeight + axisHeight)
	top := d.Max.Y
	words(d.Canvas, style(12.5, black, true), draw.XLeft, d.Min.X, top-titleHeight/2+3,
		"Seconds without quorum while the pods are updated")
	top -= titleHeight
	x := d.Min.X
	for _, group := range []struct {
		name  string
		paint bool
	}{{"Kubernetes' own RollingUpdate", false}, {"Quorate", true}} {
		box(d.Canvas, barColor(group.paint), x, top-9, x+15, top-2)
		words(d.Canvas, style(8.5, black, false), draw.XLeft, x+19, top-5, group.name)
		x += 19 + style(8.5, black, false).Width(group.name) + 14
	}
	words(d.Canvas, style(8.5, grey, false), draw.XRight, d.Max.X, top-5,
		"median of all repetitions (least–most); lower is better")
	top -= legendHeight - 12
	p := axes()
	p.X.Min, p.X.Max = 0, max(most*1.22, 1)
	p.Y.Min, p.Y.Max = at, 0
	p.Y.Tick.Marker = plot.ConstantTicks(ticks)
	p.Y.Tick.Width = 0
	p.X.Label.Text = "seconds without quorum"
	p.Add(painter(func(c draw.Canvas, p *plot.Plot) {
		x, y := p.Transforms(&c)
		for _, tick := range p.X.Tick.Marker.Ticks(p.X.Min, p.X.Max) {
			if !tick.IsMinor() {
				line(c, pale, 0.5, nil, vg.Point{X: x(tick.Value), Y: c.Min.Y}, vg.Point{X: x(tick.Value), Y: c.Max.Y})
			}
		}
		for _, t := range titles {
			bold, title := style(9, black, true), result.CaseOf(t.row.Case).Title
			words(c, bold, draw.XLeft, c.Min.X+4, y(t.y), title)
			words(c, style(8, black, false), draw.XLeft, c.Min.X+12+bold.Width(title), y(t.y), t.zero)
		}
		for _, e := range entries {
			paint, low, high := barColor(result.ArmOf(e.row.Arm).Quorate), y(e.y)-barThick/2, y(e.y)+barThick/2
			if e.row.WithoutQuorum.Median == never {
				box(c, paint, c.Min.X, low, c.Max.X, high)
				words(c, style(8, white, true), draw.XRight, c.Max.X-6, y(e.y)+textUp,
					"lost "+quorumLost(e.row.WithoutQuorum, 1))
				continue
			}
			end := x(float64(e.row.WithoutQuorum.Median))
			box(c, paint, c.Min.X, low, end, high)
			words(c, style(8, black, false), draw.XLeft, end+4, y(e.y)+textUp, quorumLost(e.row.WithoutQuorum, 1))
		}
	}))
	p.Draw(draw.Crop(d.Canvas, 0, 0, 0, top-d.Max.Y))
	return d.file()
}

// barColor tells Quorate from what a user has without it.
func barColor(quorate bool) color.Color {
	if quorate {
		return blue
	}
	return vermilion
}
