// The session of a command: a tunnel, or the machine's own network.

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"watm/wgclient/carry"
	"watm/wgclient/tunnel"
)

// session is the origin of connections: a tunnel, or with --direct the machine's own network, so
// that the same code measures both.
type session struct {
	options sessionOptions
	tunnel  *tunnel.Tunnel // nil with --direct
}

type sessionOptions struct {
	server        string
	privateKey    string
	peerPublicKey string
	presharedKey  string
	addresses     string
	listenPort    int
	mtu           int
	keepalive     int
	path          tunnel.Path
	verbose       bool
	direct        bool
}

func (o *sessionOptions) flags(set *flag.FlagSet) {
	set.StringVar(&o.server, "server", "", "the server's UDP address, host:port")
	set.StringVar(&o.privateKey, "private-key", "", "this client's private key, base64")
	set.StringVar(&o.peerPublicKey, "peer-public-key", "", "the server's public key, base64")
	set.StringVar(&o.presharedKey, "psk", "", "pre-shared key, base64")
	set.StringVar(&o.addresses, "address", "10.0.0.1", "inner addresses, comma-separated")
	set.IntVar(&o.listenPort, "listen-port", 0, "this client's UDP port, 0: any")
	set.IntVar(&o.mtu, "mtu", 1420, "largest inner packet in bytes")
	set.IntVar(&o.keepalive, "keepalive", 0, "persistent keepalive in seconds, 0: off")
	set.DurationVar(&o.path.Delay, "delay", 0, "round trip to add to the path")
	set.Float64Var(&o.path.Loss, "loss", 0, "share of the client's packets to lose, 0 to 1")
	set.Uint64Var(&o.path.Seed, "seed", 1, "seed of --loss")
	set.BoolVar(&o.verbose, "verbose", false, "wireguard-go's log on stderr")
	set.BoolVar(&o.direct, "direct", false, "no tunnel: use the machine's own network")
}

func (o sessionOptions) open() (*session, error) {
	s := &session{options: o}
	if o.direct {
		return s, nil
	}
	opened, err := o.openTunnel()
	if err != nil {
		return nil, err
	}
	s.tunnel = opened
	return s, nil
}

func (o sessionOptions) openTunnel() (*tunnel.Tunnel, error) {
	if o.server == "" {
		return nil, errors.New("--server is missing: the server's UDP address, host:port")
	}
	server, err := net.ResolveUDPAddr("udp", o.server)
	if err != nil {
		return nil, fmt.Errorf("--server %q: %w", o.server, err)
	}
	var addresses []netip.Addr
	for text := range strings.SplitSeq(o.addresses, ",") {
		text, _, _ = strings.Cut(strings.TrimSpace(text), "/")
		address, err := netip.ParseAddr(text)
		if err != nil {
			return nil, fmt.Errorf("--address: %w", err)
		}
		addresses = append(addresses, address)
	}
	endpoint := server.AddrPort()
	return tunnel.Open(tunnel.Config{
		Server:        netip.AddrPortFrom(endpoint.Addr().Unmap(), endpoint.Port()),
		PrivateKey:    o.privateKey,
		PeerPublicKey: o.peerPublicKey,
		PresharedKey:  o.presharedKey,
		Addresses:     addresses,
		ListenPort:    o.listenPort,
		MTU:           o.mtu,
		Keepalive:     o.keepalive,
		Path:          o.path,
		Verbose:       o.verbose,
	})
}

func (s *session) close() {
	if s.tunnel != nil {
		s.tunnel.Close()
	}
}

// needTunnel returns an error with --direct, for actions that need a tunnel.
func (s *session) needTunnel() (*tunnel.Tunnel, error) {
	if s.tunnel == nil {
		return nil, errors.New("not with --direct")
	}
	return s.tunnel, nil
}

// dialTCP connects from localPort (0: any) and lets the context's deadline
// hold for everything that is done with the connection.
func (s *session) dialTCP(ctx context.Context, localPort uint16, to string) (carry.Stream, error) {
	conn, err := s.dialTCPUnbounded(ctx, localPort, to)
	if err != nil {
		return nil, err
	}
	if deadline, bounded := ctx.Deadline(); bounded {
		if err := conn.SetDeadline(deadline); err != nil {
			return nil, err
		}
	}
	return conn, nil
}

func (s *session) dialTCPUnbounded(ctx context.Context, localPort uint16, to string) (carry.Stream, error) {
	target, err := netip.ParseAddrPort(to)
	if err != nil {
		return nil, fmt.Errorf("destination %q: %w", to, err)
	}
	if s.tunnel != nil {
		return s.tunnel.DialTCP(ctx, localPort, target)
	}
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{Port: int(localPort)}}
	conn, err := dialer.DialContext(ctx, "tcp", target.String())
	if err != nil {
		return nil, err
	}
	return conn.(*net.TCPConn), nil
}

func (s *session) dialUDP(localPort uint16, to string) (net.Conn, error) {
	target, err := netip.ParseAddrPort(to)
	if err != nil {
		return nil, fmt.Errorf("destination %q: %w", to, err)
	}
	if s.tunnel != nil {
		return s.tunnel.DialUDP(localPort, target)
	}
	return net.DialUDP("udp", &net.UDPAddr{Port: int(localPort)}, net.UDPAddrFromAddrPort(target))
}

// dial is dialTCP and dialUDP in the form that net/http wants.
func (s *session) dial(ctx context.Context, network, to string) (net.Conn, error) {
	if strings.HasPrefix(network, "udp") {
		return s.dialUDP(0, to)
	}
	return s.dialTCP(ctx, 0, to)
}

// deadlineIn is now + wait, but never after the context's end.
func deadlineIn(ctx context.Context, wait time.Duration) time.Time {
	due := time.Now().Add(wait)
	if end, bounded := ctx.Deadline(); bounded && end.Before(due) {
		return end
	}
	return due
}
