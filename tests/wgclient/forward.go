package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"net"
	"os"
)

// forward carries what connects to a port of this machine to one destination inside the tunnel. It
// says which port that is, and ends with stdin.
type forward struct {
	To     string `json:"to"`
	Listen string `json:"listen"`
}

func newForward() action { return &forward{Listen: "127.0.0.1:0"} }

func (a *forward) flags(set *flag.FlagSet) {
	set.StringVar(&a.To, "to", "", "the destination, address:port")
	set.StringVar(&a.Listen, "listen", a.Listen, "the address and port of this machine")
}

func (a *forward) run(_ context.Context, s *session) (any, error) {
	listener, err := net.Listen("tcp", a.Listen)
	if err != nil {
		return nil, err
	}
	go accept(listener, func(near net.Conn) {
		far, err := s.dialTCPUnbounded(context.Background(), 0, a.To)
		if err != nil {
			return
		}
		defer far.Close()
		done := make(chan struct{})
		go func() {
			defer close(done)
			copyStream(far, near.(*net.TCPConn))
		}()
		copyStream(near.(*net.TCPConn), far)
		<-done
	})
	port := listener.Addr().(*net.TCPAddr).Port
	if err := json.NewEncoder(os.Stdout).Encode(answering{ListenPort: port}); err != nil {
		return nil, err
	}
	io.Copy(io.Discard, bufio.NewReader(os.Stdin))
	return struct{}{}, listener.Close()
}

// copyStream passes on what is read, and the end; with an error it ends both.
func copyStream(to, from streamConn) {
	_, err := io.CopyBuffer(onlyWriter{to}, onlyReader{from}, make([]byte, 4*bulkChunk))
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
