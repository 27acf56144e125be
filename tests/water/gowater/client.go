// The command `client`, which `make bench-water` measures.

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"
)

// A request is a line of JSON on standard input, and a reply one on standard output. README.md
// lists them.
type request struct {
	Do          string `json:"do"`
	To          string `json:"to"`
	Count       int    `json:"count"`
	Size        int    `json:"size"`
	Bytes       uint64 `json:"bytes"`
	Connections int    `json:"connections"`
	TimeoutMS   int    `json:"timeout_ms"`
}

type reply struct {
	OK    any    `json:"ok,omitempty"`
	Error string `json:"error,omitempty"`
}

var workloads = map[string]func(*client, request) (any, error){
	"connect": (*client).connect,
	"echo":    (*client).echo,
	"hold":    (*client).hold,
	"stream":  (*client).stream,
}

func prepareClient(set *flag.FlagSet) func(context.Context, []string) error {
	var module moduleFlags
	module.register(set)
	return func(ctx context.Context, arguments []string) error {
		dial, err := chooseDial(ctx, arguments[0], &module)
		if err != nil {
			return err
		}
		client := &client{dial: dial}
		replies := json.NewEncoder(os.Stdout)
		if err := replies.Encode(reply{OK: "ready"}); err != nil {
			return err
		}
		lines := bufio.NewScanner(os.Stdin)
		for lines.Scan() {
			var r request
			if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
				return fmt.Errorf("not a request: %w", err)
			}
			result, err := client.perform(r)
			answer := reply{OK: result}
			if err != nil {
				answer = reply{Error: err.Error()}
			}
			if err := replies.Encode(answer); err != nil {
				return err
			}
		}
		return lines.Err()
	}
}

func (c *client) perform(r request) (any, error) {
	work, known := workloads[r.Do]
	if !known {
		return nil, fmt.Errorf("do: %q is not known", r.Do)
	}
	if r.TimeoutMS < 1 {
		return nil, fmt.Errorf("timeout_ms: %d is not at least 1", r.TimeoutMS)
	}
	r.Count, r.Size, r.Connections = max(1, r.Count), max(1, r.Size), max(1, r.Connections)
	c.deadline = time.Now().Add(time.Duration(r.TimeoutMS) * time.Millisecond)
	return work(c, r)
}
