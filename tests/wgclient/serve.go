// The action `serve`: requests in JSON on standard input, for tests in Python.

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

const (
	// One line of JSON, so about 12 MiB of data in base64.
	serveLineLimit = 16 << 20
	// Requests under way at once; the next line waits.
	serveParallel = 256
	serveTimeout  = 10 * time.Second
)

// request is a line on standard input. The parameters of `do` are additional fields.
type request struct {
	ID        int64  `json:"id"`
	Do        string `json:"do"`
	TimeoutMS int    `json:"timeout_ms"`
}

// reply is a line on standard output, in the order in which actions end.
type reply struct {
	ID    int64  `json:"id"`
	OK    any    `json:"ok,omitempty"`
	Error string `json:"error,omitempty"`
	// "timeout", or "" for every other error.
	Kind string `json:"kind,omitempty"`
}

// serve answers requests until input ends, all through one session.
func serve(ctx context.Context, s *session, input io.Reader, output io.Writer) error {
	server := &server{session: s, sockets: newSocketTable(), encoder: json.NewEncoder(output)}
	defer server.sockets.closeAll()
	slots := make(chan struct{}, serveParallel)
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	if err := server.answer(reply{OK: map[string]bool{"ready": true}}); err != nil {
		return err
	}
	lines := bufio.NewScanner(input)
	lines.Buffer(make([]byte, 64*1024), serveLineLimit)
	for lines.Scan() {
		line := append([]byte(nil), lines.Bytes()...)
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			server.handle(ctx, line)
		})
	}
	return lines.Err()
}

type server struct {
	session *session
	sockets *socketTable

	outputLock sync.Mutex
	encoder    *json.Encoder
}

func (v *server) answer(r reply) error {
	v.outputLock.Lock()
	defer v.outputLock.Unlock()
	return v.encoder.Encode(r)
}

func (v *server) handle(ctx context.Context, line []byte) {
	var r request
	if err := json.Unmarshal(line, &r); err != nil {
		v.answer(reply{Error: fmt.Sprintf("not a request: %v", err)})
		return
	}
	timeout := serveTimeout
	if r.TimeoutMS > 0 {
		timeout = time.Duration(r.TimeoutMS) * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	result, err := v.perform(ctx, r, line)
	answer := reply{ID: r.ID, OK: result}
	if err != nil {
		answer = reply{ID: r.ID, Error: err.Error()}
		if isTimeout(err) || errors.Is(err, context.DeadlineExceeded) {
			answer.Kind = "timeout"
		}
	}
	v.answer(answer)
}

func (v *server) perform(ctx context.Context, r request, line []byte) (any, error) {
	var chosen action
	if create, known := serveActions[r.Do]; known {
		chosen = create(v.sockets)
	} else if create, known := actions[r.Do]; known && r.Do != "idle" {
		chosen = create()
	} else {
		return nil, fmt.Errorf("do: %q is not known", r.Do)
	}
	if err := json.Unmarshal(line, chosen); err != nil {
		return nil, fmt.Errorf("%s: %w", r.Do, err)
	}
	result, err := chosen.run(ctx, v.session)
	if err == nil && result == nil {
		result = struct{}{}
	}
	return result, err
}
