package main

import (
	"slices"
	"time"
)

// latencies are summed up in microseconds, percentiles by nearest rank.
type latencies struct {
	P50 float64 `json:"p50_us"`
	P99 float64 `json:"p99_us"`
	Max float64 `json:"max_us"`
}

func summarize(samples []time.Duration) latencies {
	if len(samples) == 0 {
		return latencies{}
	}
	sorted := slices.Sorted(slices.Values(samples))
	rank := func(percent int) float64 {
		return microseconds(sorted[max(0, (len(sorted)*percent+99)/100-1)])
	}
	return latencies{P50: rank(50), P99: rank(99), Max: rank(100)}
}

func microseconds(d time.Duration) float64 {
	return float64(d.Nanoseconds()) / 1e3
}
