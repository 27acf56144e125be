// The actions `bulk-up` and `bulk-down`: transfers with a check of every byte.

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"watm/wgclient/carry"
	"watm/wgclient/pattern"
)

// One write: large enough that its cost does not show.
const bulkChunk = 64 * 1024

// bulkUp sends the pattern to a sink and FIN. The sink answers with the number
// of bytes (8 bytes, little-endian) and 1 if they were the pattern.
type bulkUp struct{ bulk }

// bulkDown sends a number of bytes (8 bytes, little-endian) to a source, which
// answers with as much of the pattern and FIN.
type bulkDown struct{ bulk }

type bulk struct {
	To          string `json:"to"`
	Bytes       int64  `json:"bytes"`
	Connections int    `json:"connections"`
}

type bulkResult struct {
	Bytes   int64   `json:"bytes"`
	Seconds float64 `json:"seconds"`
	// Millions of bytes a second.
	MBPerSecond float64 `json:"mb_per_second"`
}

func newBulkUp() action   { return &bulkUp{bulk{"10.9.8.7:9", 100_000_000, 1}} }
func newBulkDown() action { return &bulkDown{bulk{"10.9.8.7:19", 100_000_000, 1}} }

func (a *bulk) flags(set *flag.FlagSet) {
	set.StringVar(&a.To, "to", a.To, "service, address:port")
	set.Int64Var(&a.Bytes, "bytes", a.Bytes, "bytes on each connection")
	set.IntVar(&a.Connections, "connections", a.Connections, "connections side by side")
}

func (a *bulkUp) run(ctx context.Context, s *session) (any, error) {
	return a.measure(ctx, s, func(conn carry.Stream) error {
		for sent := int64(0); sent < a.Bytes; {
			piece := pattern.At(uint64(sent), int(min(bulkChunk, a.Bytes-sent)))
			if _, err := conn.Write(piece); err != nil {
				return fmt.Errorf("after %d bytes: %w", sent, err)
			}
			sent += int64(len(piece))
		}
		if err := conn.CloseWrite(); err != nil {
			return err
		}
		verdict := make([]byte, 9)
		if _, err := io.ReadFull(conn, verdict); err != nil {
			return fmt.Errorf("the sink's answer: %w", err)
		}
		if count := binary.LittleEndian.Uint64(verdict); count != uint64(a.Bytes) {
			return fmt.Errorf("the sink got %d bytes of %d", count, a.Bytes)
		}
		if verdict[8] != 1 {
			return errors.New("the sink got other content")
		}
		return nil
	})
}

func (a *bulkDown) run(ctx context.Context, s *session) (any, error) {
	return a.measure(ctx, s, func(conn carry.Stream) error {
		if _, err := conn.Write(binary.LittleEndian.AppendUint64(nil, uint64(a.Bytes))); err != nil {
			return err
		}
		buffer := make([]byte, 4*bulkChunk)
		var received uint64
		for {
			size, err := conn.Read(buffer)
			if err == io.EOF {
				break
			}
			if err != nil {
				return fmt.Errorf("after %d bytes: %w", received, err)
			}
			if err := pattern.Check(buffer[:size], received); err != nil {
				return err
			}
			received += uint64(size)
		}
		if received != uint64(a.Bytes) {
			return fmt.Errorf("%d bytes of %d came", received, a.Bytes)
		}
		return nil
	})
}

// measure runs the transfer on every connection; the clock runs from the first
// dial to the last answer.
func (a *bulk) measure(ctx context.Context, s *session, transfer func(carry.Stream) error) (any, error) {
	if a.Bytes < 0 {
		return nil, errors.New("fewer than 0 bytes")
	}
	start := time.Now()
	_, err := inParallel(a.Connections, func(int) ([]struct{}, error) {
		conn, err := s.dialTCP(ctx, 0, a.To)
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		return nil, transfer(conn)
	})
	if err != nil {
		return nil, err
	}
	seconds := time.Since(start).Seconds()
	total := a.Bytes * int64(a.Connections)
	return bulkResult{total, seconds, float64(total) / seconds / 1e6}, nil
}
