package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.zx2c4.com/wireguard/conn"
)

// What fits into the queue of one direction, besides what its rate lets through at once.
const pathPackets = 1 << 14

// path is a network between a client and a server, for --direct: datagrams come out on the other
// side after half of a round trip, in order, at no more than a rate, and some do not. It says which
// UDP port it has, and ends with stdin. Trains of datagrams stay together, as far as the kernel puts
// them together.
type path struct {
	To        string        `json:"to"`
	RoundTrip time.Duration `json:"round_trip"`
	Loss      float64       `json:"loss"`
	Mbits     float64       `json:"mbits"`
	Seed      uint64        `json:"seed"`
}

func newPath() action { return &path{} }

func (a *path) flags(set *flag.FlagSet) {
	set.StringVar(&a.To, "to", "", "the server, address:port")
	set.DurationVar(&a.RoundTrip, "round-trip", 0, "both ways together")
	set.Float64Var(&a.Loss, "lost", 0, "share of datagrams that are lost, each way, 0 to 1")
	set.Float64Var(&a.Mbits, "mbits", 0, "the most that goes through, each way, in Mbit/s of UDP payload; 0: no bound")
	set.Uint64Var(&a.Seed, "chance", 1, "seed of what is lost")
}

func (a *path) run(_ context.Context, s *session) (any, error) {
	if !s.options.direct {
		return nil, errors.New("only with --direct")
	}
	server, err := netip.ParseAddrPort(a.To)
	if err != nil {
		return nil, fmt.Errorf("--to: %w", err)
	}
	near, far := conn.NewDefaultBind(), conn.NewDefaultBind()
	fromClient, port, err := near.Open(0)
	if err != nil {
		return nil, err
	}
	fromServer, _, err := far.Open(0)
	if err != nil {
		return nil, err
	}
	serverEndpoint, err := far.ParseEndpoint(server.String())
	if err != nil {
		return nil, err
	}
	var client atomic.Pointer[conn.Endpoint]
	up, down := a.lane(1), a.lane(2)
	for _, receive := range fromClient {
		go up.take(receive, near.BatchSize(), func(from conn.Endpoint) { client.Store(&from) })
	}
	for _, receive := range fromServer {
		go down.take(receive, far.BatchSize(), func(conn.Endpoint) {})
	}
	go up.give(func(packets [][]byte) { far.Send(packets, serverEndpoint) })
	go down.give(func(packets [][]byte) {
		if to := client.Load(); to != nil {
			near.Send(packets, *to)
		}
	})
	if err := json.NewEncoder(os.Stdout).Encode(answering{ListenPort: int(port)}); err != nil {
		return nil, err
	}
	io.Copy(io.Discard, bufio.NewReader(os.Stdin))
	return struct{}{}, errors.Join(near.Close(), far.Close())
}

// lane is one direction.
type lane struct {
	delay time.Duration
	loss  float64
	// Time that a byte takes at the rate.
	perByte float64
	// How long the queue before the bottleneck may be: a round trip of the path, and 20 ms.
	longest time.Duration
	lock    sync.Mutex // what comes by IPv4 and by IPv6 is taken side by side
	chance  *rand.Rand
	// When the bottleneck will be free.
	free   time.Time
	queued chan delayed
}

type delayed struct {
	due    time.Time
	packet []byte
}

func (a *path) lane(number uint64) *lane {
	l := &lane{
		delay:   a.RoundTrip / 2,
		loss:    a.Loss,
		longest: a.RoundTrip + 20*time.Millisecond,
		chance:  rand.New(rand.NewPCG(a.Seed, number)),
		queued:  make(chan delayed, pathPackets),
	}
	if a.Mbits > 0 {
		l.perByte = 8e3 / a.Mbits
	}
	return l
}

// take receives until the bind is closed.
func (l *lane) take(receive conn.ReceiveFunc, batch int, heard func(conn.Endpoint)) {
	buffers, sizes, from := make([][]byte, batch), make([]int, batch), make([]conn.Endpoint, batch)
	for index := range buffers {
		buffers[index] = make([]byte, 1<<16)
	}
	for {
		count, err := receive(buffers, sizes, from)
		if err != nil {
			return
		}
		now := time.Now()
		for index := range count {
			if sizes[index] == 0 {
				continue
			}
			heard(from[index])
			l.pass(buffers[index][:sizes[index]], now)
		}
	}
}

// pass queues a copy of the packet, or loses it.
func (l *lane) pass(packet []byte, now time.Time) {
	l.lock.Lock()
	defer l.lock.Unlock()
	if l.loss > 0 && l.chance.Float64() < l.loss {
		return
	}
	if l.perByte > 0 {
		if l.free.Before(now) {
			l.free = now
		}
		if l.free.Sub(now) > l.longest {
			return
		}
		l.free = l.free.Add(time.Duration(float64(len(packet)) * l.perByte))
		now = l.free
	}
	select {
	case l.queued <- delayed{now.Add(l.delay), append([]byte(nil), packet...)}:
	default:
	}
}

// give sends what is due.
func (l *lane) give(send func([][]byte)) {
	var packets [][]byte
	next := <-l.queued
	for {
		if wait := time.Until(next.due); wait > 0 {
			time.Sleep(wait)
		}
		now := time.Now()
		packets = append(packets[:0], next.packet)
		waiting := false
		for !waiting && len(packets) < conn.IdealBatchSize {
			select {
			case next = <-l.queued:
				if next.due.After(now) {
					waiting = true
				} else {
					packets = append(packets, next.packet)
				}
			default:
				waiting = true
				next = delayed{}
			}
		}
		send(packets)
		if !waiting || next.packet == nil {
			next = <-l.queued
		}
	}
}
