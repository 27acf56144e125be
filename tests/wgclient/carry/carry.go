// Package carry passes connections on.
package carry

import (
	"errors"
	"io"
	"net"
)

// As much as is read at once.
const buffer = 256 * 1024

// Stream is a connection whose directions end by themselves.
type Stream interface {
	net.Conn
	CloseWrite() error
}

// Accept serves each connection in a goroutine and closes it then, until the listener is closed.
func Accept(listener net.Listener, serve func(net.Conn)) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			serve(conn)
		}()
	}
}

// Join passes both directions on until each has ended.
func Join(near, far Stream) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		pass(far, near)
	}()
	pass(near, far)
	<-done
}

// pass copies what is read, and its end; an error ends both connections.
func pass(to, from Stream) {
	_, err := io.CopyBuffer(onlyWriter{to}, onlyReader{from}, make([]byte, buffer))
	if err != nil && !errors.Is(err, net.ErrClosed) {
		to.Close()
		from.Close()
		return
	}
	to.CloseWrite()
}

// Without the short cuts of sockets, which are for two of the kernel's.
type onlyWriter struct{ io.Writer }
type onlyReader struct{ io.Reader }
