// The workloads of the command `client`.

package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"watm/wgclient/latency"
	"watm/wgclient/pattern"
)

// client performs one request at a time. It dials and closes one after the
// other, never side by side: the runtime crashes otherwise.
type client struct {
	dial     dialFunc
	deadline time.Time
	held     []net.Conn
}

type dialFunc func(to string) (net.Conn, error)

func (c *client) open(to string) (net.Conn, error) {
	conn, err := c.dial(to)
	if err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(c.deadline); err != nil {
		return nil, err
	}
	return conn, nil
}

// sideBySide opens connections, works on all of them at once and closes them.
func (c *client) sideBySide(r request, work func(net.Conn) error) (seconds float64, err error) {
	conns := make([]net.Conn, r.Connections)
	for index := range conns {
		conn, err := c.open(r.To)
		if err != nil {
			return 0, err
		}
		defer conn.Close()
		conns[index] = conn
	}
	failures := make([]error, len(conns))
	var group sync.WaitGroup
	start := time.Now()
	for index, conn := range conns {
		group.Go(func() { failures[index] = work(conn) })
	}
	group.Wait()
	return time.Since(start).Seconds(), errors.Join(failures...)
}

type echoResult struct {
	Messages  int     `json:"messages"`
	PerSecond float64 `json:"per_second"`
	latency.Summary
}

// echo sends one message at a time on each connection and waits for it.
func (c *client) echo(r request) (any, error) {
	var lock sync.Mutex
	var samples []time.Duration
	seconds, err := c.sideBySide(r, func(conn net.Conn) error {
		own, err := latency.PingPong(conn, r.Count, r.Size)
		lock.Lock()
		defer lock.Unlock()
		samples = append(samples, own...)
		return err
	})
	if err != nil {
		return nil, err
	}
	return echoResult{len(samples), float64(len(samples)) / seconds, latency.Summarize(samples)}, nil
}

type streamResult struct {
	Bytes uint64 `json:"bytes"`
	// From the first byte to the sink's answer; the slowest connection's.
	Seconds float64 `json:"seconds"`
	// Millions of bits a second of all connections.
	MbitPerSecond float64 `json:"mbit_per_second"`
	// The number of connections that carried everything, and the error of the first other one.
	Survived int    `json:"survived"`
	Death    string `json:"death,omitempty"`
}

// stream sends bytes to the sink on each connection, size of them at a time.
// Wrong content is an error; a connection that dies is a result.
func (c *client) stream(r request) (any, error) {
	if r.Size > pattern.Longest {
		return nil, fmt.Errorf("a piece has at most %d bytes", pattern.Longest)
	}
	result := streamResult{Bytes: r.Bytes}
	var lock sync.Mutex
	_, err := c.sideBySide(r, func(conn net.Conn) error {
		verdict, took, err := sendAll(conn, r.Bytes, r.Size)
		lock.Lock()
		defer lock.Unlock()
		if err != nil {
			result.Death = err.Error()
			return nil
		}
		if count := binary.LittleEndian.Uint64(verdict); count != r.Bytes || verdict[8] != 1 {
			return fmt.Errorf("the sink got %d bytes, the content right: %d", count, verdict[8])
		}
		result.Survived++
		result.Seconds = max(result.Seconds, took.Seconds())
		return nil
	})
	if err != nil {
		return nil, err
	}
	if result.Survived == r.Connections && result.Seconds > 0 {
		result.MbitPerSecond = float64(r.Bytes*uint64(r.Connections)) * 8 / result.Seconds / 1e6
	}
	return result, nil
}

func sendAll(conn net.Conn, total uint64, size int) (verdict []byte, took time.Duration, err error) {
	if _, err := conn.Write(binary.LittleEndian.AppendUint64(nil, total)); err != nil {
		return nil, 0, err
	}
	start := time.Now()
	for sent := uint64(0); sent < total; {
		piece := pattern.At(sent, int(min(uint64(size), total-sent)))
		if _, err := conn.Write(piece); err != nil {
			return nil, 0, fmt.Errorf("after %d bytes: %w", sent, err)
		}
		sent += uint64(len(piece))
	}
	verdict = make([]byte, 9)
	if _, err := io.ReadFull(conn, verdict); err != nil {
		return nil, 0, fmt.Errorf("the sink's answer: %w", err)
	}
	return verdict, time.Since(start), nil
}

type connectResult struct {
	Connections int     `json:"connections"`
	PerSecond   float64 `json:"per_second"`
	// From the dial to the first byte that came back.
	latency.Summary
}

// connect opens a connection, echoes one byte and closes, again and again.
func (c *client) connect(r request) (any, error) {
	samples := make([]time.Duration, 0, r.Count)
	start := time.Now()
	for range r.Count {
		began := time.Now()
		conn, err := c.open(r.To)
		if err != nil {
			return nil, err
		}
		_, err = latency.PingPong(conn, 1, 1)
		samples = append(samples, time.Since(began))
		conn.Close()
		if err != nil {
			return nil, err
		}
	}
	seconds := time.Since(start).Seconds()
	return connectResult{r.Count, float64(r.Count) / seconds, latency.Summarize(samples)}, nil
}

// hold opens connections that stay until the process ends, in addition to
// those that are held already, and checks that every one echoes.
func (c *client) hold(r request) (any, error) {
	for range r.Count {
		conn, err := c.open(r.To)
		if err != nil {
			return nil, err
		}
		c.held = append(c.held, conn)
		if _, err := latency.PingPong(conn, 1, 16); err != nil {
			return nil, fmt.Errorf("connection %d: %w", len(c.held), err)
		}
	}
	for index, conn := range c.held {
		if err := conn.SetDeadline(c.deadline); err != nil {
			return nil, err
		}
		if _, err := latency.PingPong(conn, 1, 16); err != nil {
			return nil, fmt.Errorf("connection %d of %d, idle: %w", index+1, len(c.held), err)
		}
		if err := conn.SetDeadline(time.Time{}); err != nil {
			return nil, err
		}
	}
	return map[string]int{"held": len(c.held)}, nil
}
