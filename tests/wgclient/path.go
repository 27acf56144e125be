// The action `path`: an emulated network between clients and a server.

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"golang.zx2c4.com/wireguard/conn"
)

// path is an emulated network between clients and a server, for --direct. Its clients share its rate
// and its queue. It prints its UDP port and ends with stdin. Each line on stdin has flags that change the conditions from then on. Trains
// of datagrams stay together, as far as the kernel puts them together.
type path struct {
	To   string `json:"to"`
	Seed uint64 `json:"seed"`
	conditions
}

// conditions say what happens to the datagrams of each direction.
type conditions struct {
	RoundTrip  time.Duration `json:"round_trip"`
	Loss       float64       `json:"loss"`
	Burst      float64       `json:"burst"`
	Mbits      float64       `json:"mbits"`
	Queue      time.Duration `json:"queue"`
	Jitter     jitter        `json:"jitter"`
	Reordering bool          `json:"reordering"`
	Overtaking float64       `json:"overtaking"`
	Duplicated float64       `json:"duplicated"`
}

func newPath() action { return &path{Seed: 1} }

func (a *path) flags(set *flag.FlagSet) {
	set.StringVar(&a.To, "to", "", "the server, address:port")
	set.Uint64Var(&a.Seed, "chance", a.Seed, "seed of everything random")
	a.conditions.flags(set)
}

func (c *conditions) flags(set *flag.FlagSet) {
	set.DurationVar(&c.RoundTrip, "round-trip", c.RoundTrip, "both ways together")
	set.Float64Var(&c.Loss, "lost", c.Loss, "share of datagrams that are lost, each way, 0 to 1")
	set.Float64Var(&c.Burst, "burst", c.Burst, "mean number of datagrams in a row that are lost; up to 1: each by itself")
	set.Float64Var(&c.Mbits, "mbits", c.Mbits, "highest rate each way, in Mbit/s of UDP payload; 0: no bound")
	set.DurationVar(&c.Queue, "queue", c.Queue, "longest wait for that rate, after which datagrams are lost; 0: a round trip and 20 ms")
	set.TextVar(&c.Jitter, "jitter", c.Jitter, "extra delay of each datagram, each way: 2ms-20ms at random, 1ms,8ms by turns; 0: none")
	set.BoolVar(&c.Reordering, "reordering", c.Reordering, "let datagrams with a shorter delay overtake others")
	set.Float64Var(&c.Overtaking, "overtaking", c.Overtaking, "share of datagrams that have no delay and overtake all others, 0 to 1")
	set.Float64Var(&c.Duplicated, "duplicated", c.Duplicated, "share of datagrams that arrive twice, 0 to 1")
}

func (a *path) run(_ context.Context, s *session) (any, error) {
	if !s.options.direct {
		return nil, errors.New("only with --direct")
	}
	server, err := netip.ParseAddrPort(a.To)
	if err != nil {
		return nil, fmt.Errorf("--to: %w", err)
	}
	near := conn.NewDefaultBind()
	fromClients, port, err := near.Open(0)
	if err != nil {
		return nil, err
	}
	up, down := newLane(a.conditions, a.Seed, 1), newLane(a.conditions, a.Seed, 2)
	all := &routes{server: server.String(), down: down, known: map[string]*route{}}
	defer all.close()
	for _, receive := range fromClients {
		go up.receive(receive, near.BatchSize(), all.of)
	}
	go up.deliver(func(to *route, packets [][]byte) { to.far.Send(packets, to.server) })
	go down.deliver(func(to *route, packets [][]byte) { near.Send(packets, to.client) })
	output := json.NewEncoder(os.Stdout)
	if err := output.Encode(answering{ListenPort: int(port)}); err != nil {
		return nil, err
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if err := a.change(lines.Text(), up, down); err != nil {
			return nil, err
		}
		if err := output.Encode(struct{}{}); err != nil {
			return nil, err
		}
	}
	return struct{}{}, near.Close()
}

// route is the way of one client's datagrams: each client has a socket of its own towards the server.
type route struct {
	client conn.Endpoint
	far    conn.Bind
	server conn.Endpoint
}

// routes are those of the clients that have been heard from.
type routes struct {
	server string
	down   *lane
	lock   sync.Mutex // IPv4 and IPv6 are received side by side
	known  map[string]*route
}

// of returns the route of a client, and opens it for a client that is new. It returns nil, and the
// datagram is lost, if there is no socket for it.
func (r *routes) of(client conn.Endpoint) *route {
	r.lock.Lock()
	defer r.lock.Unlock()
	name := client.DstToString()
	if one := r.known[name]; one != nil {
		return one
	}
	one := &route{client: client, far: conn.NewDefaultBind()}
	fromServer, _, err := one.far.Open(0)
	if err != nil {
		return nil
	}
	if one.server, err = one.far.ParseEndpoint(r.server); err != nil {
		one.far.Close()
		return nil
	}
	for _, receive := range fromServer {
		go r.down.receive(receive, one.far.BatchSize(), func(conn.Endpoint) *route { return one })
	}
	r.known[name] = one
	return one
}

func (r *routes) close() {
	r.lock.Lock()
	defer r.lock.Unlock()
	for _, one := range r.known {
		one.far.Close()
	}
}

// change parses the flags in line and applies them to both directions.
func (a *path) change(line string, lanes ...*lane) error {
	set := flag.NewFlagSet("path", flag.ContinueOnError)
	a.conditions.flags(set)
	stall := set.Duration("stall", 0, "deliver nothing for this long, and then all that came")
	if err := set.Parse(strings.Fields(line)); err != nil {
		return err
	}
	if set.NArg() > 0 {
		return fmt.Errorf("%q is not an option", set.Arg(0))
	}
	for _, l := range lanes {
		l.change(a.conditions, *stall)
	}
	return nil
}

// jitter is the extra delay of each datagram: random between two bounds, or each of a list in turn.
type jitter struct {
	from, to time.Duration
	turns    []time.Duration
}

// UnmarshalText reads "2ms-20ms", "1ms,8ms" or "0".
func (j *jitter) UnmarshalText(text []byte) error {
	*j = jitter{}
	from, to, isRange := strings.Cut(string(text), "-")
	if isRange {
		var errFrom, errTo error
		j.from, errFrom = time.ParseDuration(from)
		j.to, errTo = time.ParseDuration(to)
		if err := errors.Join(errFrom, errTo); err != nil {
			return err
		}
		if j.to < j.from {
			return fmt.Errorf("%s is shorter than %s", to, from)
		}
		return nil
	}
	for part := range strings.SplitSeq(string(text), ",") {
		turn, err := time.ParseDuration(part)
		if err != nil {
			return err
		}
		j.turns = append(j.turns, turn)
	}
	return nil
}

// MarshalText writes what UnmarshalText reads.
func (j jitter) MarshalText() ([]byte, error) {
	if len(j.turns) == 0 {
		return fmt.Appendf(nil, "%s-%s", j.from, j.to), nil
	}
	parts := make([]string, len(j.turns))
	for index, turn := range j.turns {
		parts[index] = turn.String()
	}
	return []byte(strings.Join(parts, ",")), nil
}

// of returns the extra delay of datagram number count.
func (j *jitter) of(count uint64, chance *rand.Rand) time.Duration {
	if len(j.turns) > 0 {
		return j.turns[count%uint64(len(j.turns))]
	}
	if j.to == 0 {
		return 0
	}
	return j.from + time.Duration(chance.Int64N(int64(j.to-j.from)+1))
}
