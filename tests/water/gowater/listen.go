// The commands `listen` and `relay`: servers with a module.

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/refraction-networking/water"
)

func prepareListen(set *flag.FlagSet) func(context.Context, []string) error {
	var module moduleFlags
	module.register(set)
	forward := set.String("forward", "", "HOST:PORT that gets the decoded data")
	linger := lingerFlag(set)
	return func(ctx context.Context, arguments []string) error {
		if *forward == "" {
			return errors.New("--forward is missing: HOST:PORT that gets the decoded data")
		}
		config, err := module.load(arguments[0])
		if err != nil {
			return err
		}
		if config.NetworkListener, err = announce(arguments[1]); err != nil {
			return err
		}
		listener, err := water.NewListenerWithContext(ctx, config)
		if err != nil {
			return err
		}
		for {
			conn, err := listener.AcceptWATER()
			if err != nil {
				return err
			}
			go forwardTo(conn, *forward, *linger)
		}
	}
}

func prepareRelay(set *flag.FlagSet) func(context.Context, []string) error {
	var module moduleFlags
	module.register(set)
	return func(ctx context.Context, arguments []string) error {
		config, err := module.load(arguments[0])
		if err != nil {
			return err
		}
		if config.NetworkListener, err = announce(arguments[1]); err != nil {
			return err
		}
		relay, err := water.NewRelayWithContext(ctx, config)
		if err != nil {
			return err
		}
		return relay.RelayTo("tcp", arguments[2])
	}
}

// forwardTo joins the connection to a plain TCP connection.
func forwardTo(conn net.Conn, to string, linger time.Duration) {
	upstream, err := net.Dial("tcp", to)
	if err != nil {
		fmt.Fprintln(os.Stderr, "gowater:", err)
		conn.Close()
		return
	}
	defer upstream.Close()
	if err := join(conn, upstream, sendingHalf{upstream.(*net.TCPConn)}, linger); err != nil {
		fmt.Fprintf(os.Stderr, "gowater: connection from %s: %v\n", conn.RemoteAddr(), err)
	}
}

// sendingHalf is the direction of a TCP connection that can be closed by itself.
type sendingHalf struct{ *net.TCPConn }

func (h sendingHalf) Close() error { return h.CloseWrite() }

// announcing is a listener that prints its address on standard error, and a line each time that an
// instance of the module waits for a connection. Making an instance while another is closed crashes
// this runtime, so the test needs to know when one has been made.
type announcing struct{ net.Listener }

func announce(address string) (net.Listener, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(os.Stderr, "listening on %s\n", listener.Addr())
	return announcing{listener}, nil
}

func (l announcing) Accept() (net.Conn, error) {
	fmt.Fprintln(os.Stderr, "waiting")
	return l.Listener.Accept()
}
