package rollout

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Quota is how large a member's database may become.
type Quota struct {
	// Bytes is negative if there is no limit, and 0 if it is not known.
	Bytes int64
	// From says where that stands.
	From string
}

// defaultQuota is that of etcd itself.
const defaultQuota = 2 << 30

// ParseSize reads a number of bytes as Kubernetes writes quantities, such as 8Gi, 200M or 2147483648. A B may stand
// behind the unit, as in the 200MB and 8GiB of etcd's own documentation.
func ParseSize(s string) (int64, error) {
	text := strings.ReplaceAll(strings.TrimSuffix(s, "B"), " ", "")
	if strings.HasSuffix(text, "K") {
		text = strings.TrimSuffix(text, "K") + "k" // So Kubernetes writes a thousand, and nobody else.
	}
	q, err := resource.ParseQuantity(text)
	n := q.Value()
	// What is too large is read as the largest number that there is, and what is not whole is rounded up.
	if err != nil || n == math.MaxInt64 || q.CmpInt64(n) != 0 {
		return 0, fmt.Errorf("%q is not a number of bytes; write it like 200MB, 8GiB, 8Gi or 2147483648", s)
	}
	return n, nil
}

// SizeText is a number of bytes as people read it.
func SizeText(n int64) string {
	const k = 1024
	switch abs := max(n, -n); {
	case abs < 10*k:
		return strconv.FormatInt(n, 10) + " B"
	case abs < k*k:
		return strconv.FormatInt(n/k, 10) + " KiB"
	case abs < k*k*k:
		return strconv.FormatFloat(float64(n)/(k*k), 'f', 1, 64) + " MiB"
	}
	return strconv.FormatFloat(float64(n)/(k*k*k), 'f', 1, 64) + " GiB"
}

// Fragmentation says when a member's database is worth a defragmentation that nobody asks for: at least Bytes of it
// are free, and that is Percent of it, or it has reached OfQuota percent of its quota. The zero value is never.
type Fragmentation struct {
	Percent int
	Bytes   int64
	OfQuota int
}

// DefaultFragmentation is what "on" stands for. Below 200 MB a defragmentation frees too little for what it costs,
// and the rest of a database that is more than half full soon grows into what is free.
func DefaultFragmentation() Fragmentation {
	return Fragmentation{Percent: 45, Bytes: 200e6, OfQuota: 80}
}

// On is true if there is such a case.
func (f Fragmentation) On() bool { return f != Fragmentation{} }

// String returns what [ParseFragmentation] reads.
func (f Fragmentation) String() string {
	if !f.On() {
		return "off"
	}
	format := resource.DecimalSI
	if f.Bytes%(1<<20) == 0 {
		format = resource.BinarySI
	}
	size := resource.NewQuantity(f.Bytes, format).String()
	if strings.ContainsAny(size, "kMGTPEi") {
		size += "B"
	}
	return fmt.Sprintf("%d%%,%s,%d%%", f.Percent, size, f.OfQuota)
}

// ParseFragmentation reads "off", "on", or something like "45%,200MB,80%".
func ParseFragmentation(s string) (Fragmentation, error) {
	switch s {
	case "", "off", "false": // YAML takes off and on for false and true.
		return Fragmentation{}, nil
	case "on", "true":
		return DefaultFragmentation(), nil
	}
	bad := fmt.Errorf("%q is not what a defragmentation waits for; use on, off, or three numbers such as "+
		"45%%,200MB,80%%: "+
		"the share of the database that is free, how much that is at least, and the share of its quota", s)
	parts := strings.Split(s, ",")
	if len(parts) != 3 {
		return Fragmentation{}, bad
	}
	var f Fragmentation
	for i, to := range map[int]*int{0: &f.Percent, 2: &f.OfQuota} {
		digits, percent := strings.CutSuffix(strings.TrimSpace(parts[i]), "%")
		n, err := strconv.Atoi(digits)
		if err != nil || !percent || n < 1 || n > 100 {
			return Fragmentation{}, bad
		}
		*to = n
	}
	size, err := ParseSize(strings.TrimSpace(parts[1]))
	if err != nil || size < 1 {
		return Fragmentation{}, bad
	}
	f.Bytes = size
	return f, nil
}

// MarshalText writes what [ParseFragmentation] reads.
func (f Fragmentation) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText reads what [ParseFragmentation] reads.
func (f *Fragmentation) UnmarshalText(text []byte) error {
	parsed, err := ParseFragmentation(string(text))
	if err == nil {
		*f = parsed
	}
	return err
}

// Window is a part of every day, in UTC. It may go past midnight. The zero value is no time at all.
type Window struct {
	// From and To are times since midnight. To is later than a day's end if the window goes past midnight.
	From, To time.Duration
}

const day = 24 * time.Hour

// Contains is true for a time of day in the window.
func (w Window) Contains(t time.Time) bool {
	t = t.UTC()
	at := time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute
	return at >= w.From && at < w.To || at+day < w.To
}

// String returns what [ParseWindow] reads.
func (w Window) String() string {
	if w == (Window{}) {
		return ""
	}
	clock := func(d time.Duration) string {
		if d > day {
			d -= day
		}
		return fmt.Sprintf("%02d:%02d", d/time.Hour, d%time.Hour/time.Minute)
	}
	return clock(w.From) + "-" + clock(w.To) + " UTC"
}

// ParseWindow reads a window such as "02:00-04:00 UTC". The time zone may be left out, and is always UTC.
func ParseWindow(s string) (Window, error) {
	if s == "" {
		return Window{}, nil
	}
	bad := fmt.Errorf("%q is not a part of the day; write it like 02:00-04:00 UTC", s)
	from, to, ok := strings.Cut(strings.TrimSpace(strings.TrimSuffix(s, "UTC")), "-")
	begin, err := clockTime(from)
	end, err2 := clockTime(to)
	if !ok || errors.Join(err, err2) != nil || begin == end || begin == day {
		return Window{}, bad
	}
	if end < begin {
		end += day
	}
	return Window{From: begin, To: end}, nil
}

func clockTime(s string) (time.Duration, error) {
	if s == "24:00" {
		return day, nil
	}
	t, err := time.Parse("15:04", s)
	return time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute, err
}

// MarshalText writes what [ParseWindow] reads.
func (w Window) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// UnmarshalText reads what [ParseWindow] reads.
func (w *Window) UnmarshalText(text []byte) error {
	parsed, err := ParseWindow(string(text))
	if err == nil {
		*w = parsed
	}
	return err
}
