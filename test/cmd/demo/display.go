package main

import "time"

// display shows the demo to somebody. Calls may come from several goroutines.
type display interface {
	// Say prints lines that stay.
	Say(lines ...line)
	// Progress says what is being done, until the next call of it or of Show.
	Progress(text string)
	// Show says how the cluster is; the next call replaces it.
	Show(v view)
	// Close ends the display; what was said stays. Nothing may be shown after it.
	Close()
}

// event is a line that tells what happened, and when since the start of the demo.
func event(at time.Duration, who string, how style, what string) line {
	return line{{pad(seconds(at), 8), dim}, {pad(who, 12) + " ", bold}, {what, how}}
}
