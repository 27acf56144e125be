// The action `answer`: a server with echoes, a web page and DNS inside a tunnel.

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"net"
	"net/http"
	"os"

	"golang.org/x/net/dns/dnsmessage"

	"watm/wgclient/carry"
)

// answer is the other role: inside the tunnel it serves echoes (TCP and UDP port 7), a web page
// (80), and DNS (53, both) for one name, whose address is its own. It prints its outer UDP port,
// and ends with stdin.
type answer struct {
	Name string `json:"name"`
	Page string `json:"page"`
}

type answering struct {
	ListenPort int `json:"listen_port"`
}

func newAnswer() action { return &answer{Name: "inside.test", Page: "inside"} }

func (a *answer) flags(set *flag.FlagSet) {
	set.StringVar(&a.Name, "name", a.Name, "the name that is known")
	set.StringVar(&a.Page, "page", a.Page, "what the web page says")
}

func (a *answer) run(ctx context.Context, s *session) (any, error) {
	begun, err := a.begin(s)
	if err != nil {
		return nil, err
	}
	if err := json.NewEncoder(os.Stdout).Encode(begun); err != nil {
		return nil, err
	}
	io.Copy(io.Discard, bufio.NewReader(os.Stdin))
	return struct{}{}, nil
}

// answerBeside does the same in `serve`, beside other actions.
type answerBeside struct{ answer }

func (a *answerBeside) run(_ context.Context, s *session) (any, error) { return a.begin(s) }

// begin serves until the session ends.
func (a *answer) begin(s *session) (any, error) {
	t, err := s.needTunnel()
	if err != nil {
		return nil, err
	}
	echoes, err := t.ListenTCP(7)
	if err != nil {
		return nil, err
	}
	go carry.Accept(echoes, func(conn net.Conn) { io.Copy(conn, conn) })
	datagrams, err := t.ListenUDP(7)
	if err != nil {
		return nil, err
	}
	go datagramsOf(datagrams, func(datagram []byte) []byte { return datagram })
	pages, err := t.ListenTCP(80)
	if err != nil {
		return nil, err
	}
	go http.Serve(pages, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, a.Page)
	}))
	names, err := t.ListenUDP(53)
	if err != nil {
		return nil, err
	}
	// Truncated, so that the client repeats the query over TCP.
	go datagramsOf(names, func(query []byte) []byte { return a.resolve(query, true, t.Local().As4()) })
	streams, err := t.ListenTCP(53)
	if err != nil {
		return nil, err
	}
	go carry.Accept(streams, func(conn net.Conn) {
		var length [2]byte
		if _, err := io.ReadFull(conn, length[:]); err != nil {
			return
		}
		query := make([]byte, int(length[0])<<8|int(length[1]))
		if _, err := io.ReadFull(conn, query); err != nil {
			return
		}
		reply := a.resolve(query, false, t.Local().As4())
		conn.Write(append([]byte{byte(len(reply) >> 8), byte(len(reply))}, reply...))
	})
	status, err := t.Status()
	if err != nil {
		return nil, err
	}
	return answering{ListenPort: status.ListenPort}, nil
}

func (a *answer) resolve(query []byte, short bool, address [4]byte) []byte {
	var message dnsmessage.Message
	if err := message.Unpack(query); err != nil || len(message.Questions) != 1 {
		return nil
	}
	question := message.Questions[0]
	reply := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: message.ID, Response: true, RecursionAvailable: true},
		Questions: message.Questions,
	}
	switch known := question.Name.String() == a.Name+"."; {
	case !known:
		reply.RCode = dnsmessage.RCodeNameError
	case question.Type == dnsmessage.TypeA && short:
		reply.Truncated = true
	case question.Type == dnsmessage.TypeA:
		header := dnsmessage.ResourceHeader{Name: question.Name, Class: dnsmessage.ClassINET, TTL: 60}
		reply.Answers = []dnsmessage.Resource{{Header: header, Body: &dnsmessage.AResource{A: address}}}
	}
	packed, err := reply.Pack()
	if err != nil {
		return nil
	}
	return packed
}

func datagramsOf(conn net.PacketConn, reply func([]byte) []byte) {
	buffer := make([]byte, 65535)
	for {
		size, from, err := conn.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) || err == io.EOF {
			return
		}
		if err != nil {
			continue
		}
		if said := reply(buffer[:size]); said != nil {
			conn.WriteTo(said, from)
		}
	}
}
