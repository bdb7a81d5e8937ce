package apiproxy

import (
	"fmt"
	"slices"
	"time"
)

// Record is one request and what became of it.
type Record struct {
	Request
	// At is when it came.
	At time.Time
	// Status is the code that the client was answered, 0 while it waits or when it never
	// was. For a watch it is that of its beginning.
	Status int
	// Ended is when the answer had been given, or given up; zero while it is awaited, and
	// while a watch is open.
	Ended time.Time
	// Forwarded is when it was passed on to the API server; zero when it has not been. A
	// request that is held or delayed is passed on later than it came, or never.
	Forwarded time.Time
	// Bytes are those of the bodies, of the request and of what the client was answered so far.
	Bytes int
	// Verdict is the status code of the API server's own answer, whatever the client was
	// told; 0 when there is none (yet).
	Verdict int
}

// Open reports whether the request is under way.
func (r Record) Open() bool { return r.Ended.IsZero() }

// String is the record in one line.
func (r Record) String() string {
	switch {
	case r.Status != 0:
		return fmt.Sprintf("%s: %d", r.Request.String(), r.Status)
	case r.Open():
		return r.Request.String() + ": no answer yet"
	default:
		return r.Request.String() + ": no answer"
	}
}

func (p *Proxy) begin(request *Request) *Record {
	p.mu.Lock()
	defer p.mu.Unlock()
	record := &Record{Request: *request, At: time.Now(), Bytes: len(request.Body)}
	p.records = append(p.records, record)
	return record
}

// passing notes that the request goes to the API server now.
func (p *Proxy) passing(record *Record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	record.Forwarded = time.Now()
}

// judged notes the API server's answer.
func (p *Proxy) judged(record *Record, status int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	record.Verdict = status
}

func (p *Proxy) answered(record *Record, status int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	record.Status = status
}

// sent counts what the client was sent of an answer's body.
func (p *Proxy) sent(record *Record, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	record.Bytes += n
}

func (p *Proxy) end(record *Record) {
	p.mu.Lock()
	record.Ended = time.Now()
	done := *record
	p.mu.Unlock()
	if p.config.OnAnswer != nil {
		p.config.OnAnswer(done)
	}
}

// Records are the requests that match, in the order in which they came; nil matches all.
func (p *Proxy) Records(match Match) []Record {
	p.mu.Lock()
	defer p.mu.Unlock()
	var found []Record
	for _, record := range p.records {
		if match == nil || match(&record.Request) {
			found = append(found, *record)
		}
	}
	return found
}

// Forget drops the records of requests that had ended by then.
func (p *Proxy) Forget(by time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.records = slices.DeleteFunc(p.records, func(r *Record) bool { return !r.Open() && r.Ended.Before(by) })
}

// Count counts records by what they ask, as "list pods": for messages and assertions.
func Count(records []Record) map[string]int {
	counts := map[string]int{}
	for i := range records {
		counts[records[i].Kind()]++
	}
	return counts
}

// Since leaves the records of requests that came at that time or later.
func Since(records []Record, at time.Time) []Record {
	return slices.DeleteFunc(records, func(r Record) bool { return r.At.Before(at) })
}
