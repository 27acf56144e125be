// Actions on whole connections: many in a row, half-closed ones, and idle ones.

package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"

	"watm/wgclient/latency"
	"watm/wgclient/pattern"
)

// connect opens a connection, echoes one message and closes, again and again.
type connect struct {
	To       string `json:"to"`
	Count    int    `json:"count"`
	Parallel int    `json:"parallel"`
	Size     int    `json:"size"`
}

type connectResult struct {
	Connections int     `json:"connections"`
	Seconds     float64 `json:"seconds"`
	PerSecond   float64 `json:"per_second"`
	latency.Summary
}

func newConnect() action { return &connect{To: "10.9.8.7:7", Count: 100, Parallel: 1, Size: 100} }

func (a *connect) flags(set *flag.FlagSet) {
	set.StringVar(&a.To, "to", a.To, "echo service, address:port")
	set.IntVar(&a.Count, "count", a.Count, "connections in all")
	set.IntVar(&a.Parallel, "parallel", a.Parallel, "connections side by side")
	set.IntVar(&a.Size, "size", a.Size, "bytes of the one message")
}

func (a *connect) run(ctx context.Context, s *session) (any, error) {
	var taken atomic.Int64
	start := time.Now()
	samples, err := inParallel(a.Parallel, func(int) ([]time.Duration, error) {
		var own []time.Duration
		for taken.Add(1) <= int64(a.Count) {
			began := time.Now()
			if err := a.once(ctx, s); err != nil {
				return nil, err
			}
			own = append(own, time.Since(began))
		}
		return own, nil
	})
	if err != nil {
		return nil, err
	}
	seconds := time.Since(start).Seconds()
	return connectResult{len(samples), seconds, float64(len(samples)) / seconds, latency.Summarize(samples)}, nil
}

func (a *connect) once(ctx context.Context, s *session) error {
	conn, err := s.dialTCP(ctx, 0, a.To)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = latency.PingPong(conn, 1, a.Size)
	return err
}

// halfClose sends, ends its own direction and reads the other to its end.
type halfClose struct {
	To   string `json:"to"`
	Size int    `json:"size"`
	Data string `json:"data"` // instead of Size bytes of the pattern
}

type halfCloseResult struct {
	Sent     int    `json:"sent"`
	Received int    `json:"received"`
	SHA256   string `json:"sha256"` // of what was received
	Text     string `json:"text"`   // the same, its first 4096 bytes
}

func newHalfClose() action { return &halfClose{To: "10.9.8.7:7", Size: 1000} }

func (a *halfClose) flags(set *flag.FlagSet) {
	set.StringVar(&a.To, "to", a.To, "service, address:port")
	set.IntVar(&a.Size, "size", a.Size, "bytes of the pattern to send")
	set.StringVar(&a.Data, "data", a.Data, "text to send instead")
}

func (a *halfClose) run(ctx context.Context, s *session) (any, error) {
	data := []byte(a.Data)
	if a.Data == "" {
		for len(data) < a.Size {
			data = append(data, pattern.At(uint64(len(data)), a.Size-len(data))...)
		}
	}
	conn, err := s.dialTCP(ctx, 0, a.To)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	failed := make(chan error, 1)
	go func() {
		if _, err := conn.Write(data); err != nil {
			failed <- err
			return
		}
		failed <- conn.CloseWrite()
	}()
	answer, err := io.ReadAll(conn)
	if err := errors.Join(err, <-failed); err != nil {
		return nil, err
	}
	digest := sha256.Sum256(answer)
	return halfCloseResult{len(data), len(answer), hex.EncodeToString(digest[:]), string(answer[:min(len(answer), 4096)])}, nil
}

// idle opens flows, prints a line of JSON, holds them until stdin ends and then checks that each
// still echoes.
type idle struct {
	To    string `json:"to"`
	Flows int    `json:"flows"`
	UDP   bool   `json:"udp"`
}

type idleResult struct {
	Flows int `json:"flows"`
	Alive int `json:"alive"`
}

func newIdle() action { return &idle{To: "10.9.8.7:7", Flows: 10} }

func (a *idle) flags(set *flag.FlagSet) {
	set.StringVar(&a.To, "to", a.To, "echo service, address:port")
	set.IntVar(&a.Flows, "flows", a.Flows, "flows to hold")
	set.BoolVar(&a.UDP, "udp", a.UDP, "UDP instead of TCP")
}

func (a *idle) run(ctx context.Context, s *session) (any, error) {
	// Handshakes side by side, but no flood of SYNs.
	const dialling = 16
	var taken atomic.Int64
	conns, err := inParallel(min(dialling, a.Flows), func(int) ([]net.Conn, error) {
		var own []net.Conn
		for taken.Add(1) <= int64(a.Flows) {
			conn, err := a.open(ctx, s)
			if err != nil {
				return own, err
			}
			own = append(own, conn)
		}
		return own, nil
	})
	defer func() {
		for _, conn := range conns {
			conn.Close()
		}
	}()
	if err != nil {
		return nil, err
	}
	if err := json.NewEncoder(os.Stdout).Encode(map[string]int{"opened": len(conns)}); err != nil {
		return nil, err
	}
	io.Copy(io.Discard, bufio.NewReader(os.Stdin))
	alive := 0
	for _, conn := range conns {
		if err := conn.SetDeadline(deadlineIn(ctx, 5*time.Second)); err != nil {
			return nil, err
		}
		if err := touch(conn); err == nil {
			alive++
		}
	}
	return idleResult{len(conns), alive}, nil
}

func (a *idle) open(ctx context.Context, s *session) (net.Conn, error) {
	var conn net.Conn
	var err error
	if a.UDP {
		conn, err = s.dialUDP(0, a.To)
	} else {
		conn, err = s.dialTCPUnbounded(ctx, 0, a.To)
	}
	if err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(deadlineIn(ctx, 10*time.Second)); err != nil {
		return nil, err
	}
	if err := touch(conn); err != nil {
		return nil, fmt.Errorf("the first echo: %w", err)
	}
	return conn, nil
}

// touch echoes one small message.
func touch(conn net.Conn) error {
	_, err := latency.PingPong(conn, 1, 16)
	return err
}
