// Command gowater is a program on the Go runtime of WATER, for tests and
// measurements: see README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"

	// The drivers of the two versions of the interface.
	_ "github.com/refraction-networking/water/transport/v0"
	_ "github.com/refraction-networking/water/transport/v1"
)

// A command's positional arguments come first; it registers its flags and returns the function to
// run after they are parsed.
type command struct {
	arguments []string
	prepare   func(set *flag.FlagSet) func(ctx context.Context, arguments []string) error
}

var commands = map[string]command{
	"client":   {[]string{"raw|hop|MODULE"}, prepareClient},
	"dial":     {[]string{"MODULE", "HOST:PORT"}, prepareDial},
	"fixed":    {[]string{"MODULE"}, prepareFixed},
	"listen":   {[]string{"MODULE", "ADDRESS"}, prepareListen},
	"relay":    {[]string{"MODULE", "ADDRESS", "HOST:PORT"}, prepareRelay},
	"services": {nil, prepareServices},
}

func main() {
	// Log records of the runtime, such as the reason why a module ended.
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo})))
	if err := runCommand(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "gowater:", err)
		os.Exit(1)
	}
}

func runCommand(arguments []string) error {
	if len(arguments) == 0 {
		return fmt.Errorf("name a command: %s", strings.Join(slices.Sorted(maps.Keys(commands)), ", "))
	}
	name := arguments[0]
	chosen, known := commands[name]
	if !known {
		return fmt.Errorf("%q is not one of %s", name, strings.Join(slices.Sorted(maps.Keys(commands)), ", "))
	}
	usage := strings.Join(append([]string{"gowater", name}, chosen.arguments...), " ")
	positional, flags := arguments[1:], []string(nil)
	if first := slices.IndexFunc(positional, func(text string) bool { return strings.HasPrefix(text, "-") }); first >= 0 {
		positional, flags = positional[:first], positional[first:]
	}
	if len(positional) != len(chosen.arguments) {
		return errors.New("usage: " + usage + " [flags]")
	}
	set := flag.NewFlagSet(usage, flag.ContinueOnError)
	run := chosen.prepare(set)
	if err := set.Parse(flags); err != nil {
		return err
	}
	if set.NArg() > 0 {
		return fmt.Errorf("%q is not an option", set.Arg(0))
	}
	return run(context.Background(), positional)
}
