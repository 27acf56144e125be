// Copies between connections and their ends. `dial` and `listen` use it.

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

// The time for the module to read the last data. The runtime's Close drops unread data, and does
// not report when all is read.
const settling = 500 * time.Millisecond

// A connection of this runtime cannot close one direction. So an end of input
// is followed by a time in which the other end may answer and close.
func lingerFlag(set *flag.FlagSet) *time.Duration {
	return set.Duration("linger", time.Second, "how long the connection goes on after its input has ended")
}

// join carries input to the connection and the connection to output, which it
// closes at the connection's end. It returns when both directions have ended.
func join(conn net.Conn, input io.Reader, output io.WriteCloser, linger time.Duration) error {
	sent := make(chan error, 1)
	go func() {
		_, err := io.Copy(conn, input)
		sent <- errors.Join(err, conn.SetReadDeadline(time.Now().Add(linger)))
	}()
	_, received := io.Copy(output, conn)
	if errors.Is(received, os.ErrDeadlineExceeded) {
		received = nil // it lingered long enough
	}
	err := errors.Join(received, output.Close(), <-sent)
	if err == nil {
		time.Sleep(settling)
	}
	return errors.Join(err, closeWithin(conn, linger))
}

// closeWithin closes a connection, which never returns if the module does not read the control
// pipe. A connection that has ended is no error.
func closeWithin(conn net.Conn, limit time.Duration) error {
	closed := make(chan struct{})
	go func() {
		conn.Close()
		close(closed)
	}()
	select {
	case <-closed:
		return nil
	case <-time.After(limit):
		return fmt.Errorf("the module did not end within %s", limit)
	}
}
