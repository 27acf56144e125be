// The device between wireguard-go and the TCP/IP stack, with an optional impaired path.

package tunnel

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"golang.zx2c4.com/wireguard/tun"
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/channel"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

const (
	// A batch lets wireguard-go encrypt and send whole trains, as it does on a
	// real TUN device with offloads.
	linkBatch = 128
	// The most packets on their way from the TCP/IP stack to the device, for eight flows with full
	// windows of 2 MiB. More are lost.
	linkQueue = 16384
	// Packets on the simulated path: 100 ms at 1 Gbit/s of full-sized packets.
	pathQueue = 16384
	// Inbound packets kept for a test that looks at them one by one.
	captureLimit = 4096
)

// Path impairs what the client sends: the whole round trip's delay is put on
// this one direction, so a server without any notion of it sees a long path.
type Path struct {
	Delay time.Duration
	// Share of packets to lose, 0 to 1.
	Loss float64
	Seed uint64
}

type delayedPacket struct {
	due  time.Time
	data []byte
}

// link joins wireguard-go (it reads and writes IP packets here) and gVisor's
// TCP/IP stack.
type link struct {
	endpoint *channel.Endpoint
	mtu      int
	events   chan tun.Event
	ctx      context.Context
	cancel   context.CancelFunc
	closing  sync.Once

	delayed chan delayedPacket // nil without an impaired path

	captureLock sync.Mutex
	capturing   bool
	captured    [][]byte
}

func newLink(mtu int, path Path) *link {
	ctx, cancel := context.WithCancel(context.Background())
	l := &link{
		endpoint: channel.New(linkQueue, uint32(mtu), ""),
		mtu:      mtu,
		events:   make(chan tun.Event, 1),
		ctx:      ctx,
		cancel:   cancel,
	}
	l.events <- tun.EventUp
	if path.Delay > 0 || path.Loss > 0 {
		l.delayed = make(chan delayedPacket, pathQueue)
		go l.impair(path)
	}
	return l
}

// impair moves packets from the stack to the delay queue, losing some. A full
// queue loses packets too, as a router's does.
func (l *link) impair(path Path) {
	dice := rand.New(rand.NewPCG(path.Seed, 0))
	for {
		packet := l.endpoint.ReadContext(l.ctx)
		if packet == nil {
			return
		}
		view := packet.ToView()
		data := append([]byte(nil), view.AsSlice()...)
		view.Release()
		packet.DecRef()
		if dice.Float64() < path.Loss {
			continue
		}
		select {
		case l.delayed <- delayedPacket{time.Now().Add(path.Delay), data}:
		default:
		}
	}
}

// inject puts a packet into the queue of those that leave the stack.
func (l *link) inject(data []byte) error {
	packet := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(data)})
	defer packet.DecRef()
	var list stack.PacketBufferList
	list.PushBack(packet)
	if sent, err := l.endpoint.WritePackets(list); err != nil || sent != 1 {
		return fmt.Errorf("the interface's queue of %d packets is full", linkQueue)
	}
	return nil
}

func (l *link) setCapture(on bool) {
	l.captureLock.Lock()
	defer l.captureLock.Unlock()
	l.capturing = on
	l.captured = nil
}

func (l *link) takeCaptured() [][]byte {
	l.captureLock.Lock()
	defer l.captureLock.Unlock()
	packets := l.captured
	l.captured = nil
	return packets
}

func (l *link) capture(packet []byte) {
	l.captureLock.Lock()
	defer l.captureLock.Unlock()
	if l.capturing && len(l.captured) < captureLimit {
		l.captured = append(l.captured, append([]byte(nil), packet...))
	}
}

// Read implements tun.Device: it waits for one packet and takes all that are waiting.
func (l *link) Read(buffers [][]byte, sizes []int, offset int) (int, error) {
	if l.delayed != nil {
		return l.readDelayed(buffers, sizes, offset)
	}
	packet := l.endpoint.ReadContext(l.ctx)
	if packet == nil {
		return 0, os.ErrClosed
	}
	count := 0
	for {
		view := packet.ToView()
		sizes[count] = copy(buffers[count][offset:], view.AsSlice())
		view.Release()
		packet.DecRef()
		count++
		if count == len(buffers) {
			return count, nil
		}
		if packet = l.endpoint.Read(); packet == nil {
			return count, nil
		}
	}
}

func (l *link) readDelayed(buffers [][]byte, sizes []int, offset int) (int, error) {
	select {
	case packet := <-l.delayed:
		if wait := time.Until(packet.due); wait > 0 {
			select {
			case <-time.After(wait):
			case <-l.ctx.Done():
				return 0, os.ErrClosed
			}
		}
		sizes[0] = copy(buffers[0][offset:], packet.data)
	case <-l.ctx.Done():
		return 0, os.ErrClosed
	}
	return 1, nil
}

// Write implements tun.Device: packets from the tunnel enter the stack.
func (l *link) Write(buffers [][]byte, offset int) (int, error) {
	for _, data := range buffers {
		packet := data[offset:]
		if len(packet) == 0 {
			continue
		}
		l.capture(packet)
		var protocol tcpip.NetworkProtocolNumber
		switch packet[0] >> 4 {
		case 4:
			protocol = header.IPv4ProtocolNumber
		case 6:
			protocol = header.IPv6ProtocolNumber
		default:
			continue
		}
		inbound := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(packet)})
		l.endpoint.InjectInbound(protocol, inbound)
		inbound.DecRef()
	}
	return len(buffers), nil
}

// Close implements tun.Device.
func (l *link) Close() error {
	l.closing.Do(func() {
		l.cancel()
		l.endpoint.Close()
		close(l.events)
	})
	return nil
}

func (l *link) File() *os.File           { return nil }
func (l *link) MTU() (int, error)        { return l.mtu, nil }
func (l *link) Name() (string, error)    { return "wgclient", nil }
func (l *link) Events() <-chan tun.Event { return l.events }
func (l *link) BatchSize() int           { return linkBatch }
