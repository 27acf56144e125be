// Single actions with a tunnel: DNS, ping, handshakes, and raw datagrams.

package main

import (
	"context"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"watm/wgclient/latency"
	"watm/wgclient/pattern"
)

// dns asks a name server for a name's addresses.
type dns struct {
	Name   string `json:"name"`
	Server string `json:"server"`
	IPv6   bool   `json:"ipv6"`
	TCP    bool   `json:"tcp"`
}

type dnsResult struct {
	Code      string   `json:"code"`
	Addresses []string `json:"addresses"`
}

func newDNS() action { return &dns{Server: "10.0.0.53:53"} }

func (a *dns) flags(set *flag.FlagSet) {
	set.StringVar(&a.Name, "name", a.Name, "the name")
	set.StringVar(&a.Server, "dns-server", a.Server, "the name server, address:port")
	set.BoolVar(&a.IPv6, "ipv6", a.IPv6, "ask for AAAA instead of A")
	set.BoolVar(&a.TCP, "tcp", a.TCP, "over TCP")
}

func (a *dns) run(ctx context.Context, s *session) (any, error) {
	name, err := dnsmessage.NewName(strings.TrimSuffix(a.Name, ".") + ".")
	if err != nil {
		return nil, fmt.Errorf("name %q: %w", a.Name, err)
	}
	kind := dnsmessage.TypeA
	if a.IPv6 {
		kind = dnsmessage.TypeAAAA
	}
	query := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: uint16(time.Now().UnixNano()), RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: name, Type: kind, Class: dnsmessage.ClassINET}},
	}
	packed, err := query.Pack()
	if err != nil {
		return nil, err
	}
	var answer []byte
	if a.TCP {
		answer, err = a.overTCP(ctx, s, packed)
	} else {
		answer, err = a.overUDP(ctx, s, packed)
	}
	if err != nil {
		return nil, err
	}
	var reply dnsmessage.Message
	if err := reply.Unpack(answer); err != nil {
		return nil, fmt.Errorf("the answer: %w", err)
	}
	if reply.ID != query.ID || !reply.Response {
		return nil, errors.New("the answer belongs to another query")
	}
	result := dnsResult{Code: reply.RCode.String(), Addresses: []string{}}
	for _, record := range reply.Answers {
		switch body := record.Body.(type) {
		case *dnsmessage.AResource:
			result.Addresses = append(result.Addresses, netip.AddrFrom4(body.A).String())
		case *dnsmessage.AAAAResource:
			result.Addresses = append(result.Addresses, netip.AddrFrom16(body.AAAA).String())
		}
	}
	return result, nil
}

func (a *dns) overUDP(ctx context.Context, s *session, query []byte) ([]byte, error) {
	conn, err := s.dialUDP(0, a.Server)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	// Asked again like any resolver does, since UDP may lose it.
	for range 3 {
		if _, err := conn.Write(query); err != nil {
			return nil, err
		}
		if err := conn.SetReadDeadline(deadlineIn(ctx, 5*time.Second)); err != nil {
			return nil, err
		}
		answer := make([]byte, 4096)
		size, err := conn.Read(answer)
		if err == nil {
			return answer[:size], nil
		}
		if !isTimeout(err) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("no answer from %s to 3 queries", a.Server)
}

func (a *dns) overTCP(ctx context.Context, s *session, query []byte) ([]byte, error) {
	conn, err := s.dialTCP(ctx, 0, a.Server)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	framed := append([]byte{byte(len(query) >> 8), byte(len(query))}, query...)
	if _, err := conn.Write(framed); err != nil {
		return nil, err
	}
	return readFramed(conn)
}

// ping sends ICMP or ICMPv6 echo requests, one after the other.
type ping struct {
	To     string `json:"to"`
	Count  int    `json:"count"`
	Size   int    `json:"size"`
	WaitMS int    `json:"wait_ms"`
}

type pingResult struct {
	Replies int `json:"replies"`
	Lost    int `json:"lost"`
	latency.Summary
}

func newPing() action { return &ping{To: "10.9.8.7", Count: 4, Size: 56, WaitMS: 2000} }

func (a *ping) flags(set *flag.FlagSet) {
	set.StringVar(&a.To, "to", a.To, "address")
	set.IntVar(&a.Count, "count", a.Count, "requests")
	set.IntVar(&a.Size, "size", a.Size, "bytes of payload")
	set.IntVar(&a.WaitMS, "wait-ms", a.WaitMS, "lost after this many milliseconds")
}

func (a *ping) run(ctx context.Context, s *session) (any, error) {
	t, err := s.needTunnel()
	if err != nil {
		return nil, err
	}
	to, err := netip.ParseAddr(a.To)
	if err != nil {
		return nil, err
	}
	var samples []time.Duration
	lost := 0
	for sequence := range a.Count {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		payload := pattern.At(uint64(sequence), a.Size)
		took, err := t.Ping(to, uint16(sequence), payload, time.Until(deadlineIn(ctx, time.Duration(a.WaitMS)*time.Millisecond)))
		switch {
		case isTimeout(err):
			lost++
		case err != nil:
			return nil, err
		default:
			samples = append(samples, took)
		}
	}
	return pingResult{len(samples), lost, latency.Summarize(samples)}, nil
}

// handshakes opens new tunnels of the same key, one after the other.
type handshakes struct {
	Count   int `json:"count"`
	PauseMS int `json:"pause_ms"`
	WaitMS  int `json:"wait_ms"`
}

type handshakesResult struct {
	Milliseconds []float64 `json:"milliseconds"`
	latency.Summary
}

func newHandshakes() action { return &handshakes{Count: 1, PauseMS: 20, WaitMS: 15_000} }

func (a *handshakes) flags(set *flag.FlagSet) {
	set.IntVar(&a.Count, "count", a.Count, "handshakes, each in a new tunnel")
	set.IntVar(&a.PauseMS, "pause-ms", a.PauseMS, "milliseconds between them; under 17 they look like replays")
	set.IntVar(&a.WaitMS, "wait-ms", a.WaitMS, "give up after this many milliseconds")
}

func (a *handshakes) run(ctx context.Context, s *session) (any, error) {
	if _, err := s.needTunnel(); err != nil {
		return nil, err
	}
	result := handshakesResult{Milliseconds: []float64{}}
	var samples []time.Duration
	for range a.Count {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		took, err := a.once(ctx, s)
		if err != nil {
			return nil, fmt.Errorf("handshake %d: %w", len(samples)+1, err)
		}
		samples = append(samples, took)
		result.Milliseconds = append(result.Milliseconds, latency.Microseconds(took)/1e3)
		time.Sleep(time.Duration(a.PauseMS) * time.Millisecond)
	}
	result.Summary = latency.Summarize(samples)
	return result, nil
}

func (a *handshakes) once(ctx context.Context, s *session) (time.Duration, error) {
	t, err := s.options.openTunnel()
	if err != nil {
		return 0, err
	}
	defer t.Close()
	return t.Handshake(time.Until(deadlineIn(ctx, time.Duration(a.WaitMS)*time.Millisecond)))
}

// raw sends a datagram to the server outside any tunnel and shows what comes
// back.
type raw struct {
	Hex    string `json:"hex"`
	WaitMS int    `json:"wait_ms"`
}

type rawResult struct {
	// Hexadecimal; empty if nothing came in time.
	Answer string `json:"answer"`
}

func newRaw() action { return &raw{WaitMS: 200} }

func (a *raw) flags(set *flag.FlagSet) {
	set.StringVar(&a.Hex, "hex", a.Hex, "the datagram, hexadecimal")
	set.IntVar(&a.WaitMS, "wait-ms", a.WaitMS, "wait for an answer this many milliseconds")
}

func (a *raw) run(ctx context.Context, s *session) (any, error) {
	datagram, err := hex.DecodeString(a.Hex)
	if err != nil {
		return nil, err
	}
	conn, err := net.Dial("udp", s.options.server)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if _, err := conn.Write(datagram); err != nil {
		return nil, err
	}
	if err := conn.SetReadDeadline(deadlineIn(ctx, time.Duration(a.WaitMS)*time.Millisecond)); err != nil {
		return nil, err
	}
	answer := make([]byte, 65536)
	size, err := conn.Read(answer)
	if err != nil && !isTimeout(err) {
		return nil, err
	}
	return rawResult{hex.EncodeToString(answer[:size])}, nil
}
