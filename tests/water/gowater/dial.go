// The commands `dial` and `fixed`: a connection through a module for standard input and output.

package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/refraction-networking/water"
)

func prepareDial(set *flag.FlagSet) func(context.Context, []string) error {
	var module moduleFlags
	module.register(set)
	linger := lingerFlag(set)
	return func(ctx context.Context, arguments []string) error {
		config, err := module.load(arguments[0])
		if err != nil {
			return err
		}
		dialer, err := water.NewDialerWithContext(ctx, config)
		if err != nil {
			return err
		}
		conn, err := dialer.DialContext(ctx, "tcp", arguments[1])
		if err != nil {
			return fmt.Errorf("dial %s: %w", arguments[1], err)
		}
		return joinStandard(conn, *linger)
	}
}

func prepareFixed(set *flag.FlagSet) func(context.Context, []string) error {
	var module moduleFlags
	var reach reach
	module.register(set)
	reach.register(set)
	linger := lingerFlag(set)
	return func(ctx context.Context, arguments []string) error {
		config, err := module.load(arguments[0])
		if err != nil {
			return err
		}
		config.DialedAddressValidator = reach.validate
		config.NetworkDialerFunc = reach.dial
		dialer, err := water.NewFixedDialerWithContext(ctx, config)
		if err != nil {
			return err
		}
		conn, err := dialer.DialFixedContext(ctx)
		if err != nil {
			return fmt.Errorf("fixed dial: %w", err)
		}
		return joinStandard(conn, *linger)
	}
}

// joinStandard carries standard input to the connection and the connection to
// standard output, until both have ended.
func joinStandard(conn net.Conn, linger time.Duration) error {
	fmt.Fprintf(os.Stderr, "connected %s %s\n", conn.LocalAddr(), conn.RemoteAddr())
	return join(conn, os.Stdin, os.Stdout, linger)
}
