// The action `forward`: a port forward into the tunnel.

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"io"
	"net"
	"os"

	"watm/wgclient/carry"
)

// forward carries what connects to a port of this machine to one destination inside the tunnel. It
// prints the port, and ends with stdin.
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
	go carry.Accept(listener, func(near net.Conn) {
		far, err := s.dialTCPUnbounded(context.Background(), 0, a.To)
		if err != nil {
			return
		}
		defer far.Close()
		carry.Join(near.(*net.TCPConn), far)
	})
	port := listener.Addr().(*net.TCPAddr).Port
	if err := json.NewEncoder(os.Stdout).Encode(answering{ListenPort: port}); err != nil {
		return nil, err
	}
	io.Copy(io.Discard, bufio.NewReader(os.Stdin))
	return struct{}{}, listener.Close()
}
