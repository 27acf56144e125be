// Listeners inside the tunnel.

package tunnel

import (
	"net"
	"net/netip"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
)

// Local is the first inner address.
func (t *Tunnel) Local() netip.Addr { return t.local[0] }

// ListenTCP takes connections on at the first inner address.
func (t *Tunnel) ListenTCP(port uint16) (net.Listener, error) {
	return gonet.ListenTCP(t.stack, t.at(port), protocolOf(t.Local()))
}

// ListenUDP takes datagrams on at the first inner address.
func (t *Tunnel) ListenUDP(port uint16) (net.PacketConn, error) {
	local := t.at(port)
	return gonet.DialUDP(t.stack, &local, nil, protocolOf(t.Local()))
}

func (t *Tunnel) at(port uint16) tcpip.FullAddress {
	return fullAddress(netip.AddrPortFrom(t.Local(), port))
}
