// Connections from inside the tunnel.

package tunnel

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// TCPConn is a connection inside the tunnel that can also be reset.
type TCPConn struct {
	*gonet.TCPConn
	endpoint tcpip.Endpoint
}

// Abort sends RST.
func (c *TCPConn) Abort() { c.endpoint.Abort() }

// DialTCP connects from localPort (0: any) to an inner destination.
func (t *Tunnel) DialTCP(ctx context.Context, localPort uint16, to netip.AddrPort) (*TCPConn, error) {
	var queue waiter.Queue
	endpoint, failure := t.stack.NewEndpoint(tcp.ProtocolNumber, protocolOf(to.Addr()), &queue)
	if failure != nil {
		return nil, errors.New(failure.String())
	}
	connected := false
	defer func() {
		if !connected {
			endpoint.Close()
		}
	}()
	if localPort != 0 {
		if failure := endpoint.Bind(tcpip.FullAddress{NIC: nic, Port: localPort}); failure != nil {
			return nil, fmt.Errorf("bind to port %d: %s", localPort, failure)
		}
	}
	writable, notify := waiter.NewChannelEntry(waiter.WritableEvents)
	queue.EventRegister(&writable)
	defer queue.EventUnregister(&writable)

	failure = endpoint.Connect(fullAddress(to))
	if _, started := failure.(*tcpip.ErrConnectStarted); started {
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("connect to %v: %w", to, ctx.Err())
		case <-notify:
		}
		failure = endpoint.LastError()
	}
	if failure != nil {
		return nil, fmt.Errorf("connect to %v: %s", to, failure)
	}
	connected = true
	return &TCPConn{gonet.NewTCPConn(&queue, endpoint), endpoint}, nil
}

// DialUDP makes a connected UDP socket from localPort (0: any).
func (t *Tunnel) DialUDP(localPort uint16, to netip.AddrPort) (net.Conn, error) {
	var local *tcpip.FullAddress
	if localPort != 0 {
		local = &tcpip.FullAddress{NIC: nic, Port: localPort}
	}
	remote := fullAddress(to)
	return gonet.DialUDP(t.stack, local, &remote, protocolOf(to.Addr()))
}

// Ping sends one echo request with size bytes of payload and waits for its
// reply; the payload is compared.
func (t *Tunnel) Ping(to netip.Addr, sequence uint16, payload []byte, timeout time.Duration) (time.Duration, error) {
	transport, request, reply := icmp.ProtocolNumber4, byte(header.ICMPv4Echo), byte(header.ICMPv4EchoReply)
	if to.Is6() {
		transport, request, reply = icmp.ProtocolNumber6, byte(header.ICMPv6EchoRequest), byte(header.ICMPv6EchoReply)
	}
	var queue waiter.Queue
	endpoint, failure := t.stack.NewEndpoint(transport, protocolOf(to), &queue)
	if failure != nil {
		return 0, errors.New(failure.String())
	}
	if failure := endpoint.Connect(fullAddress(netip.AddrPortFrom(to, 0))); failure != nil {
		endpoint.Close()
		return 0, fmt.Errorf("ping %v: %s", to, failure)
	}
	socket := gonet.NewUDPConn(&queue, endpoint)
	defer socket.Close()

	message := make([]byte, 8, 8+len(payload))
	message[0] = request
	binary.BigEndian.PutUint16(message[6:], sequence)
	message = append(message, payload...)
	start := time.Now()
	if err := socket.SetReadDeadline(start.Add(timeout)); err != nil {
		return 0, err
	}
	if _, err := socket.Write(message); err != nil {
		return 0, err
	}
	answer := make([]byte, len(message)+1)
	for {
		size, err := socket.Read(answer)
		if err != nil {
			return 0, fmt.Errorf("ping %v: %w", to, err)
		}
		if size < 8 || answer[0] != reply || binary.BigEndian.Uint16(answer[6:]) != sequence {
			continue
		}
		if string(answer[8:size]) != string(payload) {
			return 0, fmt.Errorf("ping %v: the reply's payload differs", to)
		}
		return time.Since(start), nil
	}
}

func protocolOf(address netip.Addr) tcpip.NetworkProtocolNumber {
	if address.Is6() {
		return ipv6.ProtocolNumber
	}
	return ipv4.ProtocolNumber
}

func fullAddress(to netip.AddrPort) tcpip.FullAddress {
	return tcpip.FullAddress{NIC: nic, Addr: tcpip.AddrFromSlice(to.Addr().AsSlice()), Port: to.Port()}
}
