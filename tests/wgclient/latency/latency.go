// Package latency sums up how long things took.
package latency

import (
	"slices"
	"time"
)

// Summary is in microseconds, percentiles by nearest rank; zeros of no samples.
type Summary struct {
	P50 float64 `json:"p50_us"`
	P99 float64 `json:"p99_us"`
	Max float64 `json:"max_us"`
}

// Summarize leaves the samples as they are.
func Summarize(samples []time.Duration) Summary {
	if len(samples) == 0 {
		return Summary{}
	}
	sorted := slices.Sorted(slices.Values(samples))
	rank := func(percent int) float64 {
		return Microseconds(sorted[max(0, (len(sorted)*percent+99)/100-1)])
	}
	return Summary{P50: rank(50), P99: rank(99), Max: rank(100)}
}

// Microseconds of a duration, with its nanoseconds behind the point.
func Microseconds(d time.Duration) float64 {
	return float64(d.Nanoseconds()) / 1e3
}
