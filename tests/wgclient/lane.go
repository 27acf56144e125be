// One direction of an emulated path: delays, losses and a bottleneck. `path.go` uses two.

package main

import (
	"container/heap"
	"math/rand/v2"
	"sync"
	"time"

	"golang.zx2c4.com/wireguard/conn"
)

// The most datagrams in one direction, besides those that its rate lets through at once.
const lanePackets = 1 << 14

// lane is one direction of a path.
type lane struct {
	lock       sync.Mutex // IPv4 and IPv6 are received side by side
	conditions conditions
	chance     *rand.Rand
	// Datagrams that were accepted so far.
	count uint64
	// When the bottleneck will be free.
	free time.Time
	// When the last datagram that keeps its place is due.
	last time.Time
	// End of a stall.
	stalled time.Time
	queue   delayedQueue
	// True during a burst of losses.
	losing bool
	// Signals that the head of the queue, or its time, has changed.
	changed chan struct{}
}

type delayed struct {
	due    time.Time
	number uint64
	route  *route
	packet []byte
}

func newLane(c conditions, seed, number uint64) *lane {
	return &lane{conditions: c, chance: rand.New(rand.NewPCG(seed, number)), changed: make(chan struct{}, 1)}
}

// change sets new conditions for datagrams that come from now on. A stall holds those on their way
// too.
func (l *lane) change(c conditions, stall time.Duration) {
	l.lock.Lock()
	defer l.lock.Unlock()
	l.conditions = c
	if stall > 0 {
		l.stalled = time.Now().Add(stall)
	}
	l.wake()
}

// receive reads datagrams until the bind is closed. Each has the route of its source.
func (l *lane) receive(receive conn.ReceiveFunc, batch int, of func(conn.Endpoint) *route) {
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
			if route := of(from[index]); route != nil {
				l.accept(route, buffers[index][:sizes[index]], now)
			}
		}
	}
}

// accept queues copies of a datagram, or drops it.
func (l *lane) accept(route *route, packet []byte, now time.Time) {
	l.lock.Lock()
	defer l.lock.Unlock()
	if l.loses() {
		return
	}
	now, fits := l.bottleneck(len(packet), now)
	if !fits {
		return
	}
	due := l.due(now)
	l.count++
	accepted := delayed{due, l.count, route, append([]byte(nil), packet...)}
	l.push(accepted)
	if l.happens(l.conditions.Duplicated) {
		l.push(accepted)
	}
}

// bottleneck returns when a datagram has passed the bottleneck, and false if the queue in front of it
// is full.
func (l *lane) bottleneck(size int, now time.Time) (time.Time, bool) {
	if l.conditions.Mbits == 0 {
		return now, true
	}
	if l.free.Before(now) {
		l.free = now
	}
	longest := l.conditions.Queue
	if longest == 0 {
		longest = l.conditions.RoundTrip + 20*time.Millisecond
	}
	if l.free.Sub(now) > longest {
		return now, false
	}
	l.free = l.free.Add(time.Duration(float64(size) * 8e3 / l.conditions.Mbits))
	return l.free, true
}

// due returns when a datagram arrives at the other end.
func (l *lane) due(now time.Time) time.Time {
	c := &l.conditions
	if l.happens(c.Overtaking) {
		return now
	}
	due := now.Add(c.RoundTrip/2 + c.Jitter.of(l.count, l.chance))
	if c.Reordering {
		return due
	}
	if due.Before(l.last) {
		return l.last
	}
	l.last = due
	return due
}

// loses says if the next datagram is lost: by itself, or by the model of Gilbert, whose state of loss
// begins so often that the share of all that is lost is the same, and ends after a burst's mean length.
func (l *lane) loses() bool {
	c := &l.conditions
	switch {
	case c.Burst <= 1 || c.Loss >= 1:
		return l.happens(c.Loss)
	case l.losing:
		l.losing = !l.happens(1 / c.Burst)
	default:
		l.losing = l.happens(c.Loss / (c.Burst * (1 - c.Loss)))
	}
	return l.losing
}

func (l *lane) happens(share float64) bool {
	return share > 0 && l.chance.Float64() < share
}

func (l *lane) push(accepted delayed) {
	if len(l.queue) >= lanePackets {
		return
	}
	heap.Push(&l.queue, accepted)
	if l.queue[0].number == l.count {
		l.wake()
	}
}

func (l *lane) wake() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// deliver sends the datagrams that are due.
func (l *lane) deliver(send func(*route, [][]byte)) {
	var packets [][]byte
	for {
		var to *route
		var wait time.Duration
		to, packets, wait = l.pop(packets[:0])
		switch {
		case len(packets) > 0:
			send(to, packets)
		case wait > 0:
			select {
			case <-time.After(wait):
			case <-l.changed:
			}
		default:
			<-l.changed
		}
	}
}

// pop appends a batch of datagrams that are due, all of one route. If none is, it returns the
// remaining time of the head of the queue, or 0 if the queue is empty.
func (l *lane) pop(packets [][]byte) (*route, [][]byte, time.Duration) {
	l.lock.Lock()
	defer l.lock.Unlock()
	now := time.Now()
	if len(l.queue) > 0 && now.Before(l.stalled) {
		return nil, packets, l.stalled.Sub(now)
	}
	var to *route
	for len(l.queue) > 0 && len(packets) < conn.IdealBatchSize {
		head := &l.queue[0]
		if wait := head.due.Sub(now); wait > 0 {
			return to, packets, wait
		}
		if len(packets) > 0 && head.route != to {
			break
		}
		to = head.route
		packets = append(packets, heap.Pop(&l.queue).(delayed).packet)
	}
	return to, packets, 0
}

// delayedQueue is a heap: the datagram that is due first is the head. Of those due at once it is the
// one that came first.
type delayedQueue []delayed

func (q delayedQueue) Len() int { return len(q) }

func (q delayedQueue) Less(i, j int) bool {
	if q[i].due.Equal(q[j].due) {
		return q[i].number < q[j].number
	}
	return q[i].due.Before(q[j].due)
}

func (q delayedQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }

func (q *delayedQueue) Push(x any) { *q = append(*q, x.(delayed)) }

func (q *delayedQueue) Pop() any {
	last := len(*q) - 1
	x := (*q)[last]
	(*q)[last] = delayed{}
	*q = (*q)[:last]
	return x
}
