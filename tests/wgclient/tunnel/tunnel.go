// Package tunnel is a WireGuard client in user space: wireguard-go for the
// protocol, gVisor for TCP/IP inside it. It needs no TUN device and no root.
package tunnel

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
)

const nic = 1

// Config is one client's side of one tunnel. Keys are base64, as wg(8) prints
// them.
type Config struct {
	Server        netip.AddrPort
	PrivateKey    string
	PeerPublicKey string
	PresharedKey  string // empty: none
	Addresses     []netip.Addr
	ListenPort    int // UDP, 0: any
	MTU           int
	Keepalive     int // seconds, 0: off
	Path          Path
	Verbose       bool
}

// Tunnel is up from Open to Close. The handshake happens when the first packet
// needs it, or on Handshake.
type Tunnel struct {
	device *device.Device
	peer   device.NoisePublicKey
	link   *link
	stack  *stack.Stack
	local  []netip.Addr
}

// Status is wireguard-go's state of the peer.
type Status struct {
	Endpoint      string `json:"endpoint"`
	ListenPort    int    `json:"listen_port"`
	LastHandshake int64  `json:"last_handshake_ns"` // Unix time, 0: never
	SentBytes     uint64 `json:"sent_bytes"`
	ReceivedBytes uint64 `json:"received_bytes"`
}

// Open brings a tunnel up. Errors name the field that is wrong.
func Open(config Config) (*Tunnel, error) {
	settings, err := config.settings()
	if err != nil {
		return nil, err
	}
	l := newLink(config.MTU, config.Path)
	network, err := newStack(l, config.Addresses)
	if err != nil {
		l.Close()
		return nil, err
	}
	level := device.LogLevelSilent
	if config.Verbose {
		level = device.LogLevelVerbose
	}
	logger := device.NewLogger(level, "")
	if config.Verbose {
		logger.Verbosef = func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
		logger.Errorf = logger.Verbosef
	}
	t := &Tunnel{
		device: device.NewDevice(l, conn.NewDefaultBind(), logger),
		link:   l,
		stack:  network,
		local:  config.Addresses,
	}
	peer, _ := decodeKey("peer public key", config.PeerPublicKey) // settings checked it
	t.peer = device.NoisePublicKey(peer)
	if err := t.device.IpcSet(settings); err != nil {
		t.Close()
		return nil, fmt.Errorf("wireguard-go refused the configuration: %w", err)
	}
	if err := t.device.Up(); err != nil {
		t.Close()
		return nil, fmt.Errorf("bring the device up: %w", err)
	}
	return t, nil
}

// Close ends the tunnel without a message to the server, since WireGuard has none.
func (t *Tunnel) Close() {
	t.device.Close()
	t.stack.Close()
}

// Handshake performs a handshake now and returns its duration. A handshake less than 17 ms after
// another one of the same key looks like a replay to the server, since wireguard-go coarsens its
// timestamps.
func (t *Tunnel) Handshake(timeout time.Duration) (time.Duration, error) {
	before, err := t.Status()
	if err != nil {
		return 0, err
	}
	start := time.Now()
	if err := t.device.LookupPeer(t.peer).SendHandshakeInitiation(false); err != nil {
		return 0, fmt.Errorf("send a handshake initiation: %w", err)
	}
	for time.Since(start) < timeout {
		now, err := t.Status()
		if err != nil {
			return 0, err
		}
		if now.LastHandshake != before.LastHandshake {
			return time.Since(start), nil
		}
		time.Sleep(100 * time.Microsecond)
	}
	return 0, fmt.Errorf("no handshake within %v", timeout)
}

// Rebind moves the client to another UDP port of its own, 0: any, as a phone does that
// changes networks.
func (t *Tunnel) Rebind(port int) error {
	return t.device.IpcSet(fmt.Sprintf("listen_port=%d\n", port))
}

// SetServer sends to another address of the server from now on.
func (t *Tunnel) SetServer(server netip.AddrPort) error {
	return t.device.IpcSet(fmt.Sprintf("public_key=%s\nupdate_only=true\nendpoint=%s\n", hex.EncodeToString(t.peer[:]), server))
}

// Inject sends one IP packet through the tunnel unchanged, bypassing the stack: for other sources,
// and for protocols that the stack lacks.
func (t *Tunnel) Inject(packet []byte) error {
	if len(packet) == 0 || len(packet) > t.link.mtu {
		return fmt.Errorf("an injected packet has 1 to %d bytes, not %d", t.link.mtu, len(packet))
	}
	return t.link.inject(packet)
}

// Capture starts (and empties) or ends the record of inbound IP packets.
func (t *Tunnel) Capture(on bool) { t.link.setCapture(on) }

// TakeCaptured returns and forgets the inbound IP packets recorded so far.
func (t *Tunnel) TakeCaptured() [][]byte { return t.link.takeCaptured() }

// Status asks wireguard-go.
func (t *Tunnel) Status() (Status, error) {
	text, err := t.device.IpcGet()
	if err != nil {
		return Status{}, err
	}
	var status Status
	var seconds, nanoseconds int64
	for line := range strings.SplitSeq(text, "\n") {
		key, value, _ := strings.Cut(line, "=")
		switch key {
		case "endpoint":
			status.Endpoint = value
		case "listen_port":
			status.ListenPort, err = strconv.Atoi(value)
		case "last_handshake_time_sec":
			seconds, err = strconv.ParseInt(value, 10, 64)
		case "last_handshake_time_nsec":
			nanoseconds, err = strconv.ParseInt(value, 10, 64)
		case "tx_bytes":
			status.SentBytes, err = strconv.ParseUint(value, 10, 64)
		case "rx_bytes":
			status.ReceivedBytes, err = strconv.ParseUint(value, 10, 64)
		}
		if err != nil {
			return Status{}, fmt.Errorf("wireguard-go's %s: %w", key, err)
		}
	}
	status.LastHandshake = seconds*int64(time.Second) + nanoseconds
	return status, nil
}

// settings writes the configuration in the form of wireguard's cross-platform
// userspace interface.
func (c Config) settings() (string, error) {
	if !c.Server.IsValid() {
		return "", errors.New("no server address")
	}
	if len(c.Addresses) == 0 {
		return "", errors.New("no inner address")
	}
	private, err := decodeKey("private key", c.PrivateKey)
	if err != nil {
		return "", err
	}
	public, err := decodeKey("peer public key", c.PeerPublicKey)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	fmt.Fprintf(&text, "private_key=%x\nlisten_port=%d\npublic_key=%x\n", private, c.ListenPort, public)
	if c.PresharedKey != "" {
		shared, err := decodeKey("preshared key", c.PresharedKey)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&text, "preshared_key=%x\n", shared)
	}
	fmt.Fprintf(&text, "endpoint=%s\nallowed_ip=0.0.0.0/0\nallowed_ip=::/0\n", c.Server)
	if c.Keepalive > 0 {
		fmt.Fprintf(&text, "persistent_keepalive_interval=%d\n", c.Keepalive)
	}
	return text.String(), nil
}

func decodeKey(name, text string) ([32]byte, error) {
	var key [32]byte
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(data) != len(key) {
		return key, fmt.Errorf("the %s is not 32 bytes in base64", name)
	}
	copy(key[:], data)
	return key, nil
}

func newStack(l *link, addresses []netip.Addr) (*stack.Stack, error) {
	s := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, ipv6.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol, icmp.NewProtocol4, icmp.NewProtocol6},
		HandleLocal:        true,
	})
	sack := tcpip.TCPSACKEnabled(true)
	if err := s.SetTransportProtocolOption(tcp.ProtocolNumber, &sack); err != nil {
		return nil, fmt.Errorf("switch SACK on: %v", err)
	}
	// gVisor's RACK can hang uploads that run side by side.
	recovery := tcpip.TCPRecovery(0)
	if err := s.SetTransportProtocolOption(tcp.ProtocolNumber, &recovery); err != nil {
		return nil, fmt.Errorf("switch RACK off: %v", err)
	}
	if err := s.CreateNIC(nic, l.endpoint); err != nil {
		return nil, fmt.Errorf("create the interface: %v", err)
	}
	for _, address := range addresses {
		protocol, route := ipv4.ProtocolNumber, header.IPv4EmptySubnet
		if address.Is6() {
			protocol, route = ipv6.ProtocolNumber, header.IPv6EmptySubnet
		}
		own := tcpip.ProtocolAddress{
			Protocol:          protocol,
			AddressWithPrefix: tcpip.AddrFromSlice(address.AsSlice()).WithPrefix(),
		}
		if err := s.AddProtocolAddress(nic, own, stack.AddressProperties{}); err != nil {
			return nil, fmt.Errorf("add the inner address %v: %v", address, err)
		}
		s.AddRoute(tcpip.Route{Destination: route, NIC: nic})
	}
	return s, nil
}
