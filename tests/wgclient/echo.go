// The actions `echo` and `udp-echo`: round trips over TCP and UDP.

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"watm/wgclient/latency"
	"watm/wgclient/pattern"
)

// echo sends one message at a time over TCP and waits for it to come back.
type echo struct {
	To          string `json:"to"`
	Messages    int    `json:"messages"`
	Size        int    `json:"size"`
	Connections int    `json:"connections"`
}

type echoResult struct {
	Messages  int     `json:"messages"`
	Seconds   float64 `json:"seconds"`
	PerSecond float64 `json:"per_second"`
	latency.Summary
}

func newEcho() action { return &echo{To: "10.9.8.7:7", Messages: 1000, Size: 1000, Connections: 1} }

func (a *echo) flags(set *flag.FlagSet) {
	set.StringVar(&a.To, "to", a.To, "echo service, address:port")
	set.IntVar(&a.Messages, "messages", a.Messages, "messages on each connection")
	set.IntVar(&a.Size, "size", a.Size, "bytes a message")
	set.IntVar(&a.Connections, "connections", a.Connections, "connections side by side")
}

func (a *echo) run(ctx context.Context, s *session) (any, error) {
	if a.Size < 1 {
		return nil, errors.New("a message has at least 1 byte")
	}
	start := time.Now()
	samples, err := inParallel(a.Connections, func(int) ([]time.Duration, error) {
		conn, err := s.dialTCP(ctx, 0, a.To)
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		return latency.PingPong(conn, a.Messages, a.Size)
	})
	if err != nil {
		return nil, err
	}
	seconds := time.Since(start).Seconds()
	return echoResult{len(samples), seconds, float64(len(samples)) / seconds, latency.Summarize(samples)}, nil
}

// udpEcho keeps a window of datagrams on their way.
type udpEcho struct {
	To       string `json:"to"`
	Messages int    `json:"messages"`
	Size     int    `json:"size"`
	Window   int    `json:"window"`
	// A datagram without an answer for this long counts as lost.
	WaitMS int `json:"wait_ms"`
}

type udpEchoResult struct {
	echoResult
	Lost int `json:"lost"`
}

func newUDPEcho() action {
	return &udpEcho{To: "10.9.8.7:7", Messages: 1000, Size: 100, Window: 1, WaitMS: 1000}
}

func (a *udpEcho) flags(set *flag.FlagSet) {
	set.StringVar(&a.To, "to", a.To, "echo service, address:port")
	set.IntVar(&a.Messages, "messages", a.Messages, "datagrams")
	set.IntVar(&a.Size, "size", a.Size, "bytes a datagram, at least 8")
	set.IntVar(&a.Window, "window", a.Window, "datagrams on their way at once")
	set.IntVar(&a.WaitMS, "wait-ms", a.WaitMS, "lost after this many milliseconds")
}

func (a *udpEcho) run(ctx context.Context, s *session) (any, error) {
	const sequenceSize = 8
	if a.Size < sequenceSize || a.Size > 65507 || a.Window < 1 {
		return nil, fmt.Errorf("a datagram has %d to 65507 bytes, a window at least 1", sequenceSize)
	}
	conn, err := s.dialUDP(0, a.To)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	wait := time.Duration(a.WaitMS) * time.Millisecond

	sentAt := make(map[uint64]time.Time, a.Window)
	samples := make([]time.Duration, 0, a.Messages)
	message := make([]byte, a.Size)
	answer := make([]byte, a.Size+1)
	lost, next := 0, uint64(0)
	start := time.Now()
	for next < uint64(a.Messages) || len(sentAt) > 0 {
		for next < uint64(a.Messages) && len(sentAt) < a.Window {
			binary.LittleEndian.PutUint64(message, next)
			for filled := sequenceSize; filled < a.Size; {
				filled += copy(message[filled:], pattern.At(next+uint64(filled), a.Size-filled))
			}
			sentAt[next] = time.Now()
			if _, err := conn.Write(message); err != nil {
				return nil, err
			}
			next++
		}
		if err := conn.SetReadDeadline(deadlineIn(ctx, wait)); err != nil {
			return nil, err
		}
		size, err := conn.Read(answer)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if isTimeout(err) {
			lost += len(sentAt)
			clear(sentAt)
			continue
		}
		if err != nil {
			return nil, err
		}
		if size != a.Size {
			return nil, fmt.Errorf("a datagram of %d bytes came back with %d", a.Size, size)
		}
		sequence := binary.LittleEndian.Uint64(answer)
		sent, expected := sentAt[sequence]
		if !expected {
			continue // given up before
		}
		delete(sentAt, sequence)
		samples = append(samples, time.Since(sent))
		if err := pattern.Check(answer[sequenceSize:size], sequence+sequenceSize); err != nil {
			return nil, err
		}
	}
	seconds := time.Since(start).Seconds()
	done := echoResult{len(samples), seconds, float64(len(samples)) / seconds, latency.Summarize(samples)}
	return udpEchoResult{done, lost}, nil
}

func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.Is(err, os.ErrDeadlineExceeded) || (errors.As(err, &timeout) && timeout.Timeout())
}
