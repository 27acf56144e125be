// Command wgclient is a WireGuard client without a TUN device and without
// root, for tests and measurements: see README.md.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

// An action is one thing to do with a session. Its fields are its parameters:
// flags on the command line, JSON in `serve`.
type action interface {
	flags(set *flag.FlagSet)
	run(ctx context.Context, s *session) (any, error)
}

// Every call makes a new action with its defaults.
var actions = map[string]func() action{
	"answer":     newAnswer,
	"bulk-down":  newBulkDown,
	"bulk-up":    newBulkUp,
	"connect":    newConnect,
	"dns":        newDNS,
	"echo":       newEcho,
	"forward":    newForward,
	"halfclose":  newHalfClose,
	"handshakes": newHandshakes,
	"http":       newHTTP,
	"idle":       newIdle,
	"path":       newPath,
	"ping":       newPing,
	"raw":        newRaw,
	"udp-echo":   newUDPEcho,
}

func main() {
	if err := runCommand(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "wgclient:", err)
		os.Exit(1)
	}
}

func runCommand(arguments []string) error {
	names := append(slices.Sorted(maps.Keys(actions)), "serve")
	if len(arguments) == 0 {
		return fmt.Errorf("name a command: %s", strings.Join(names, ", "))
	}
	name := arguments[0]
	set := flag.NewFlagSet(name, flag.ContinueOnError)
	var options sessionOptions
	options.flags(set)
	limit := 2 * time.Minute
	if name == "serve" {
		limit = 0
	}
	timeout := set.Duration("timeout", limit, "give up after this long, 0: never")
	create, known := actions[name]
	var chosen action
	if known {
		chosen = create()
		chosen.flags(set)
	} else if name != "serve" {
		return fmt.Errorf("%q is not one of %s", name, strings.Join(names, ", "))
	}
	if err := set.Parse(arguments[1:]); err != nil {
		return err
	}
	if set.NArg() > 0 {
		return fmt.Errorf("%q is not an option", set.Arg(0))
	}
	s, err := options.open()
	if err != nil {
		return err
	}
	defer s.close()

	ctx := context.Background()
	if *timeout > 0 {
		limited, cancel := context.WithTimeout(ctx, *timeout)
		defer cancel()
		ctx = limited
	}
	if !known {
		return serve(ctx, s, os.Stdin, os.Stdout)
	}
	result, err := chosen.run(ctx, s)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}
