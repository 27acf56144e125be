// The command `services`: an echo and a sink without any transport.

package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"flag"
	"io"
	"net"
	"os"

	"watm/wgclient/pattern"
)

// One read of a service.
const serviceBuffer = 256 * 1024

// The services without any transport, at ports of their own, until standard
// input ends.
var services = map[string]func(net.Conn) error{
	"echo": echoBack,
	"sink": takeIn,
}

func prepareServices(*flag.FlagSet) func(context.Context, []string) error {
	return func(context.Context, []string) error {
		addresses := map[string]string{}
		for name, serve := range services {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				return err
			}
			addresses[name] = listener.Addr().String()
			go serveAll(listener, serve)
		}
		if err := json.NewEncoder(os.Stdout).Encode(addresses); err != nil {
			return err
		}
		_, err := io.Copy(io.Discard, os.Stdin)
		return err
	}
}

func serveAll(listener net.Listener, serve func(net.Conn) error) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			// A client may leave at any time.
			serve(conn)
			conn.Close()
		}()
	}
}

func echoBack(conn net.Conn) error {
	buffer := make([]byte, serviceBuffer)
	for {
		size, err := conn.Read(buffer)
		if err != nil {
			return err
		}
		if _, err := conn.Write(buffer[:size]); err != nil {
			return err
		}
	}
}

// takeIn reads a number of bytes (8 bytes, little-endian) and then as much of
// the pattern. It answers with the number (8 bytes), and 1 for the right content
// or 0 (1 byte). The client closes.
func takeIn(conn net.Conn) error {
	reader := bufio.NewReaderSize(conn, serviceBuffer)
	head := make([]byte, 8)
	if _, err := io.ReadFull(reader, head); err != nil {
		return err
	}
	total := binary.LittleEndian.Uint64(head)
	buffer := make([]byte, serviceBuffer)
	received, right := uint64(0), byte(1)
	for received < total {
		size, err := reader.Read(buffer[:min(uint64(len(buffer)), total-received)])
		if err != nil {
			return err
		}
		if pattern.Check(buffer[:size], received) != nil {
			right = 0
		}
		received += uint64(size)
	}
	verdict := binary.LittleEndian.AppendUint64(nil, received)
	if _, err := conn.Write(append(verdict, right)); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, reader)
	return err
}
