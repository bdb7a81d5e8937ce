package rollout

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
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

// units are those that a number of bytes may have.
var units = []struct {
	name  string
	bytes int64
}{
	{"k", 1e3}, {"M", 1e6}, {"G", 1e9}, {"Ki", 1 << 10}, {"Mi", 1 << 20}, {"Gi", 1 << 30}, // As Kubernetes writes them.
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"B", 1}, {"", 1},
}

// ParseSize reads a number of bytes, such as 200MB, 8GiB, 8Gi or 2147483648.
func ParseSize(s string) (int64, error) {
	for _, u := range units {
		digits, ok := strings.CutSuffix(s, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
		if err != nil || n > (1<<62)/u.bytes || n < -(1<<62)/u.bytes {
			break
		}
		return n * u.bytes, nil
	}
	return 0, fmt.Errorf("%q is not a number of bytes; write it like 200MB, 8GiB, 8Gi or 2147483648", s)
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
	size := strconv.FormatInt(f.Bytes, 10)
	for _, u := range units {
		if u.bytes >= 1e6 && f.Bytes > 0 && f.Bytes%u.bytes == 0 {
			size = strconv.FormatInt(f.Bytes/u.bytes, 10) + u.name
		}
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
