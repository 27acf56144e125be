// Actions of `serve` on named connections.

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"watm/wgclient/carry"
	"watm/wgclient/latency"
	"watm/wgclient/tunnel"
)

// socketTable has the named connections of `serve`.
type socketTable struct {
	lock  sync.Mutex
	conns map[string]net.Conn
}

func newSocketTable() *socketTable { return &socketTable{conns: map[string]net.Conn{}} }

func (t *socketTable) add(name string, conn net.Conn) error {
	t.lock.Lock()
	defer t.lock.Unlock()
	if _, taken := t.conns[name]; taken {
		return fmt.Errorf("socket %q is open already", name)
	}
	t.conns[name] = conn
	return nil
}

func (t *socketTable) get(name string) (net.Conn, error) {
	t.lock.Lock()
	defer t.lock.Unlock()
	conn, known := t.conns[name]
	if !known {
		return nil, fmt.Errorf("no socket %q is open", name)
	}
	return conn, nil
}

func (t *socketTable) take(name string) (net.Conn, error) {
	conn, err := t.get(name)
	t.lock.Lock()
	defer t.lock.Unlock()
	delete(t.conns, name)
	return conn, err
}

func (t *socketTable) closeAll() {
	t.lock.Lock()
	defer t.lock.Unlock()
	for _, conn := range t.conns {
		conn.Close()
	}
}

// Actions of `serve` alone, on the sockets or the tunnel that a process keeps.
var serveActions = map[string]func(*socketTable) action{
	"answer":      func(*socketTable) action { return &answerBeside{*newAnswer().(*answer)} },
	"open":        func(t *socketTable) action { return &openSocket{socketTable: t, Network: "tcp"} },
	"write":       func(t *socketTable) action { return &writeSocket{socketTable: t} },
	"read":        func(t *socketTable) action { return &readSocket{socketTable: t, Max: 65536} },
	"read-all":    func(t *socketTable) action { return &readAll{socketTable: t, Max: 8 << 20} },
	"close-write": func(t *socketTable) action { return &endSocket{socketTable: t, how: closeWrite} },
	"close":       func(t *socketTable) action { return &endSocket{socketTable: t, how: closeSocket} },
	"abort":       func(t *socketTable) action { return &endSocket{socketTable: t, how: abortSocket} },
	"inject":      func(*socketTable) action { return &inject{} },
	"capture":     func(*socketTable) action { return &capture{On: true} },
	"captured":    func(*socketTable) action { return &captured{} },
	"rebind":      func(*socketTable) action { return &rebind{} },
	"server":      func(*socketTable) action { return &setServer{} },
	"handshake":   func(*socketTable) action { return &handshake{} },
	"status":      func(*socketTable) action { return &status{} },
}

// noFlags is embedded by actions without a form on the command line.
type noFlags struct{}

func (noFlags) flags(*flag.FlagSet) {}

type openSocket struct {
	noFlags
	*socketTable `json:"-"`
	Name         string `json:"name"`
	Network      string `json:"network"`
	To           string `json:"to"`
	LocalPort    uint16 `json:"local_port"`
}

func (a *openSocket) run(ctx context.Context, s *session) (any, error) {
	var conn net.Conn
	var err error
	switch a.Network {
	case "tcp":
		conn, err = s.dialTCPUnbounded(ctx, a.LocalPort, a.To)
	case "udp":
		conn, err = s.dialUDP(a.LocalPort, a.To)
	default:
		err = fmt.Errorf("network %q is neither tcp nor udp", a.Network)
	}
	if err != nil {
		return nil, err
	}
	if err := a.add(a.Name, conn); err != nil {
		conn.Close()
		return nil, err
	}
	return map[string]string{"local": conn.LocalAddr().String()}, nil
}

type writeSocket struct {
	noFlags
	*socketTable `json:"-"`
	Name         string `json:"name"`
	Data         []byte `json:"data"`
}

func (a *writeSocket) run(ctx context.Context, _ *session) (any, error) {
	conn, err := a.get(a.Name)
	if err != nil {
		return nil, err
	}
	if err := conn.SetWriteDeadline(deadlineOf(ctx)); err != nil {
		return nil, err
	}
	written, err := conn.Write(a.Data)
	if err != nil {
		return nil, fmt.Errorf("after %d bytes: %w", written, err)
	}
	return map[string]int{"written": written}, nil
}

type readSocket struct {
	noFlags
	*socketTable `json:"-"`
	Name         string `json:"name"`
	Max          int    `json:"max"`
	// True to read all of Max bytes unless the stream ends before.
	Exactly bool `json:"exactly"`
}

type readResult struct {
	Data []byte `json:"data"`
	EOF  bool   `json:"eof"`
}

func (a *readSocket) run(ctx context.Context, _ *session) (any, error) {
	conn, err := a.get(a.Name)
	if err != nil {
		return nil, err
	}
	if a.Max < 1 || a.Max > 8<<20 {
		return nil, errors.New("max: 1 to 8388608 bytes")
	}
	if err := conn.SetReadDeadline(deadlineOf(ctx)); err != nil {
		return nil, err
	}
	data := make([]byte, a.Max)
	var size int
	if a.Exactly {
		size, err = io.ReadFull(conn, data)
	} else {
		size, err = conn.Read(data)
	}
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return readResult{data[:size], true}, nil
	}
	if err != nil {
		return nil, err
	}
	return readResult{data[:size], false}, nil
}

type readAll struct {
	noFlags
	*socketTable `json:"-"`
	Name         string `json:"name"`
	Max          int64  `json:"max"`
}

func (a *readAll) run(ctx context.Context, _ *session) (any, error) {
	conn, err := a.get(a.Name)
	if err != nil {
		return nil, err
	}
	if err := conn.SetReadDeadline(deadlineOf(ctx)); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(conn, a.Max))
	if err != nil {
		return nil, err
	}
	return readResult{data, int64(len(data)) < a.Max}, nil
}

type ending int

const (
	closeWrite ending = iota
	closeSocket
	abortSocket
)

type endSocket struct {
	noFlags
	*socketTable `json:"-"`
	Name         string `json:"name"`
	how          ending
}

func (a *endSocket) run(context.Context, *session) (any, error) {
	if a.how == closeWrite {
		conn, err := a.get(a.Name)
		if err != nil {
			return nil, err
		}
		stream, ok := conn.(carry.Stream)
		if !ok {
			return nil, fmt.Errorf("socket %q has no direction to close", a.Name)
		}
		return nil, stream.CloseWrite()
	}
	conn, err := a.take(a.Name)
	if err != nil {
		return nil, err
	}
	if a.how == abortSocket {
		switch stream := conn.(type) {
		case *tunnel.TCPConn:
			stream.Abort()
		case *net.TCPConn:
			stream.SetLinger(0)
		}
	}
	return nil, conn.Close()
}

type inject struct {
	noFlags
	Packet []byte `json:"packet"`
}

func (a *inject) run(_ context.Context, s *session) (any, error) {
	t, err := s.needTunnel()
	if err != nil {
		return nil, err
	}
	return nil, t.Inject(a.Packet)
}

type capture struct {
	noFlags
	On bool `json:"on"`
}

func (a *capture) run(_ context.Context, s *session) (any, error) {
	t, err := s.needTunnel()
	if err != nil {
		return nil, err
	}
	t.Capture(a.On)
	return nil, nil
}

type captured struct{ noFlags }

func (*captured) run(_ context.Context, s *session) (any, error) {
	t, err := s.needTunnel()
	if err != nil {
		return nil, err
	}
	return map[string][][]byte{"packets": t.TakeCaptured()}, nil
}

type rebind struct {
	noFlags
	Port int `json:"port"`
}

func (a *rebind) run(_ context.Context, s *session) (any, error) {
	t, err := s.needTunnel()
	if err != nil {
		return nil, err
	}
	return nil, t.Rebind(a.Port)
}

type setServer struct {
	noFlags
	Address netip.AddrPort `json:"address"`
}

func (a *setServer) run(_ context.Context, s *session) (any, error) {
	t, err := s.needTunnel()
	if err != nil {
		return nil, err
	}
	return nil, t.SetServer(a.Address)
}

type handshake struct{ noFlags }

func (*handshake) run(ctx context.Context, s *session) (any, error) {
	t, err := s.needTunnel()
	if err != nil {
		return nil, err
	}
	took, err := t.Handshake(time.Until(deadlineOf(ctx)))
	if err != nil {
		return nil, err
	}
	return map[string]float64{"milliseconds": latency.Microseconds(took) / 1e3}, nil
}

type status struct{ noFlags }

func (*status) run(_ context.Context, s *session) (any, error) {
	t, err := s.needTunnel()
	if err != nil {
		return nil, err
	}
	return t.Status()
}

// deadlineOf is the end that every request has.
func deadlineOf(ctx context.Context) time.Time {
	end, _ := ctx.Deadline()
	return end
}
