package report

import (
	"bytes"
	"cmp"
	"fmt"
	"image/color"
	"slices"
	"strings"

	xfont "golang.org/x/image/font"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/quorate/quorate/test/bench/result"
)

// picture is a plot as a file.
type picture struct {
	// name is that of the case, empty for the summary of all.
	name string
	file string
	// alt says in words what it shows.
	alt string
	svg []byte
}

// pictured are the cases whose trials are drawn over time.
var pictured = []string{result.OneDown, result.Healthy3, result.SecondFails, result.QuorumLoss}

// picturesOf draws the pictures of a run; a case without a counted trial with a series has none.
func picturesOf(run *result.Run) ([]picture, error) {
	var pictures []picture
	for _, name := range pictured {
		trials := representatives(in(run.Trials, name))
		if len(trials) == 0 {
			continue
		}
		c := result.CaseOf(name)
		svg, err := timeline(c, trials)
		if err != nil {
			return nil, fmt.Errorf("the picture of %s: %w", name, err)
		}
		pictures = append(pictures, picture{
			name: name, file: name + ".svg", svg: svg,
			alt: c.Title + ": write latency and serving voters over time, one panel for each arm",
		})
	}
	if rows := filter(rowsOf(run.Trials), func(r Row) bool { return r.Trials > 0 }); len(rows) > 0 {
		svg, err := bars(rows)
		if err != nil {
			return nil, fmt.Errorf("the picture of all cases: %w", err)
		}
		pictures = append(pictures, picture{
			file: "without-quorum.svg", svg: svg, alt: "Seconds without quorum of every arm in every case",
		})
	}
	return pictures, nil
}

// representatives returns one trial of each arm, in the arms' order: the one whose rollout
// time is the median, of an even number the faster of the two in the middle.
func representatives(trials []result.Trial) []result.Trial {
	trials = filter(counted(trials), func(t result.Trial) bool {
		return t.Series != nil && len(t.Series.Writes) > 0 && len(t.Series.Serving) > 0
	})
	var shown []result.Trial
	for _, arm := range armsOf(trials) {
		those := filter(trials, func(t result.Trial) bool { return t.Arm == arm.Name })
		slices.SortFunc(those, func(a, b result.Trial) int {
			return cmp.Or(cmp.Compare(rollout(a), rollout(b)), a.Position-b.Position)
		})
		shown = append(shown, those[(len(those)-1)/2])
	}
	return shown
}

// The colours are those of Okabe and Ito, which people with any kind of colour vision tell apart,
// and lighter shades of them.
var (
	white     = color.RGBA{0xFF, 0xFF, 0xFF, 0xFF}
	black     = color.RGBA{0x1F, 0x23, 0x28, 0xFF}
	grey      = color.RGBA{0x59, 0x63, 0x6E, 0xFF}
	pale      = color.RGBA{0xE4, 0xE7, 0xEB, 0xFF}
	blue      = color.RGBA{0x00, 0x72, 0xB2, 0xFF}
	sky       = color.RGBA{0x6A, 0xB0, 0xDE, 0xFF}
	green     = color.RGBA{0x00, 0x80, 0x60, 0xFF}
	vermilion = color.RGBA{0xD5, 0x5E, 0x00, 0xFF}
	rose      = color.RGBA{0xFB, 0xE0, 0xD0, 0xFF}
	salmon    = color.RGBA{0xEE, 0x9A, 0x63, 0xFF}
	purple    = color.RGBA{0xA0, 0x3C, 0x78, 0xFF}
)

// Measures of all pictures, in points: 720 are 960 pixels, about what a page on GitHub shows.
const (
	width  = 720
	margin = 12
)

// style is a text of that size.
func style(size vg.Length, c color.Color, bold bool) draw.TextStyle {
	f := font.From(plot.DefaultFont, size)
	f.Variant = "Sans"
	if bold {
		f.Weight = xfont.WeightBold
	}
	return draw.TextStyle{Color: c, Font: f, YAlign: draw.YCenter, Handler: plot.DefaultTextHandler}
}

// drawing is a picture while it is drawn.
type drawing struct {
	draw.Canvas
	svg *measured
}

// measured is a canvas that remembers how wide every text is.
type measured struct {
	*vgsvg.Canvas
	widths []vg.Length
}

// FillString implements [vg.Canvas].
func (m *measured) FillString(f font.Face, at vg.Point, txt string) {
	m.widths = append(m.widths, f.Width(txt))
	m.Canvas.FillString(f, at, txt)
}

// sheet begins a picture: white, whatever the page around it is.
func sheet(height vg.Length) drawing {
	svg := &measured{Canvas: vgsvg.New(width, height)}
	c := draw.New(svg)
	c.SetColor(white)
	c.Fill(c.Path())
	return drawing{draw.Crop(c, margin, -margin, margin, -margin), svg}
}

// file returns the picture's file. Who looks at it may not have the font that its texts were
// measured with: it names others, and how wide each text is to be.
func (d drawing) file() ([]byte, error) {
	var plain, b bytes.Buffer
	if _, err := d.svg.WriteTo(&plain); err != nil {
		return nil, err
	}
	const text = "<text "
	for i, part := range strings.Split(plain.String(), text) {
		if i > 0 {
			fmt.Fprintf(&b, `%stextLength="%.1f" lengthAdjust="spacingAndGlyphs" `, text, d.svg.widths[i-1].Points())
		}
		b.WriteString(part)
	}
	return bytes.ReplaceAll(b.Bytes(), []byte("font-family:Liberation Sans;font-variant:normal;"),
		[]byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif;")), nil
}

// words writes a text that begins or ends at x, as align says; y is its middle.
func words(c draw.Canvas, s draw.TextStyle, align draw.XAlignment, x, y vg.Length, txt string) {
	s.XAlign = align
	c.FillText(s, vg.Point{X: x, Y: y}, txt)
}

// box fills a rectangle.
func box(c draw.Canvas, fill color.Color, x0, y0, x1, y1 vg.Length) {
	c.FillPolygon(fill, []vg.Point{{X: x0, Y: y0}, {X: x1, Y: y0}, {X: x1, Y: y1}, {X: x0, Y: y1}})
}

// line strokes a line; dashes are optional.
func line(c draw.Canvas, stroke color.Color, thick vg.Length, dashes []vg.Length, points ...vg.Point) {
	c.StrokeLines(draw.LineStyle{Color: stroke, Width: thick, Dashes: dashes}, points)
}

// glyph draws a sign.
func glyph(c draw.Canvas, shape draw.GlyphDrawer, paint color.Color, radius, x, y vg.Length) {
	c.DrawGlyphNoClip(draw.GlyphStyle{Shape: shape, Color: paint, Radius: radius}, vg.Point{X: x, Y: y})
}

// downward is a triangle that points down, diamond a square on its corner.
type (
	downward struct{}
	diamond  struct{}
)

// DrawGlyph implements [draw.GlyphDrawer].
func (downward) DrawGlyph(c *draw.Canvas, s draw.GlyphStyle, at vg.Point) {
	c.FillPolygon(s.Color, []vg.Point{
		{X: at.X - s.Radius, Y: at.Y + s.Radius}, {X: at.X + s.Radius, Y: at.Y + s.Radius},
		{X: at.X, Y: at.Y - s.Radius},
	})
}

// DrawGlyph implements [draw.GlyphDrawer].
func (diamond) DrawGlyph(c *draw.Canvas, s draw.GlyphStyle, at vg.Point) {
	c.FillPolygon(s.Color, []vg.Point{
		{X: at.X - s.Radius, Y: at.Y}, {X: at.X, Y: at.Y + s.Radius}, {X: at.X + s.Radius, Y: at.Y},
		{X: at.X, Y: at.Y - s.Radius},
	})
}

// painter is a [plot.Plotter] that is a function.
type painter func(c draw.Canvas, p *plot.Plot)

// Plot implements [plot.Plotter].
func (f painter) Plot(c draw.Canvas, p *plot.Plot) { f(c, p) }

// axes returns an empty plot whose axes look like all of ours.
func axes() *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Padding = 0
		a.LineStyle = draw.LineStyle{Color: grey, Width: 0.6}
		a.Tick.LineStyle = a.LineStyle
		a.Tick.Length = 3
		small := style(8, black, false)
		a.Tick.Label.Font, a.Tick.Label.Color = small.Font, small.Color
		a.Label.TextStyle.Font, a.Label.TextStyle.Color = small.Font, small.Color
		a.Label.Padding = 3
	}
	return p
}
