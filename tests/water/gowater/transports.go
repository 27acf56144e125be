// Ways to connect for the command `client`: TCP, a native copy, or a module.

package main

import (
	"context"
	"errors"
	"io"
	"net"

	"github.com/refraction-networking/water"
)

// One read of the native copy, as large as one read of a module of this project.
const hopBuffer = 64 * 1024

// chooseDial returns the function that connects: plain TCP, plain TCP with a copy through another
// loopback connection as in every module of this runtime, or a module.
func chooseDial(ctx context.Context, kind string, module *moduleFlags) (dialFunc, error) {
	switch kind {
	case "raw":
		return dialRaw, nil
	case "hop":
		return dialHop, nil
	}
	config, err := module.load(kind)
	if err != nil {
		return nil, err
	}
	dialer, err := water.NewDialerWithContext(ctx, config)
	if err != nil {
		return nil, err
	}
	return func(to string) (net.Conn, error) { return dialer.DialContext(ctx, "tcp", to) }, nil
}

func dialRaw(to string) (net.Conn, error) { return net.Dial("tcp", to) }

func dialHop(to string) (net.Conn, error) {
	outer, err := net.Dial("tcp", to)
	if err != nil {
		return nil, err
	}
	inner, caller, err := tcpPair()
	if err != nil {
		outer.Close()
		return nil, err
	}
	go hop(outer.(*net.TCPConn), inner)
	go hop(inner, outer.(*net.TCPConn))
	return caller, nil
}

func hop(to, from *net.TCPConn) {
	// Without the methods that let the kernel do the copying.
	type writer struct{ io.Writer }
	type reader struct{ io.Reader }
	io.CopyBuffer(writer{to}, reader{from}, make([]byte, hopBuffer))
	to.CloseWrite()
}

// tcpPair is a connection of this process to itself.
func tcpPair() (one, other *net.TCPConn, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	defer listener.Close()
	dialled, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		return nil, nil, err
	}
	accepted, err := listener.Accept()
	if err != nil {
		dialled.Close()
		return nil, nil, err
	}
	if accepted.RemoteAddr().String() != dialled.LocalAddr().String() {
		return nil, nil, errors.Join(errors.New("somebody else connected"), dialled.Close(), accepted.Close())
	}
	return accepted.(*net.TCPConn), dialled.(*net.TCPConn), nil
}
