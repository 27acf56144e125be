// Package latency measures and summarizes durations.
package latency

import (
	"fmt"
	"io"
	"slices"
	"time"

	"watm/wgclient/pattern"
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

// PingPong sends messages of the pattern to an echo, one after the other, and returns what each took.
func PingPong(conn io.ReadWriter, messages, size int) ([]time.Duration, error) {
	samples := make([]time.Duration, 0, messages)
	answer := make([]byte, size)
	message := make([]byte, size)
	var offset uint64
	for range messages {
		for filled := 0; filled < size; {
			filled += copy(message[filled:], pattern.At(offset+uint64(filled), size-filled))
		}
		sent := time.Now()
		if _, err := conn.Write(message); err != nil {
			return nil, err
		}
		if _, err := io.ReadFull(conn, answer); err != nil {
			return nil, fmt.Errorf("message %d: %w", len(samples), err)
		}
		samples = append(samples, time.Since(sent))
		if err := pattern.Check(answer, offset); err != nil {
			return nil, err
		}
		offset += uint64(size)
	}
	return samples, nil
}
