// Command netstack carries what connects to a port of this machine to one destination inside a
// WireGuard tunnel, by wireguard-go's own tun/netstack as it is. It is a peer of `make bench-tunnel`,
// and ends with stdin.
package main

import (
	"encoding/base64"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun/netstack"

	"watm/wgclient/carry"
)

const mtu = 1420

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "netstack:", err)
		os.Exit(1)
	}
}

func run() error {
	server := flag.String("server", "", "the server's UDP address, address:port")
	private := flag.String("private-key", "", "this client's private key, base64")
	public := flag.String("peer-public-key", "", "the server's public key, base64")
	address := flag.String("address", "10.0.0.1", "the inner address")
	to := flag.String("to", "", "the destination, address:port")
	listen := flag.String("listen", "127.0.0.1:0", "the address and port of this machine")
	flag.Parse()

	inner, err := netip.ParseAddr(*address)
	if err != nil {
		return fmt.Errorf("--address: %w", err)
	}
	destination, err := netip.ParseAddrPort(*to)
	if err != nil {
		return fmt.Errorf("--to: %w", err)
	}
	settings, err := settings(*server, *private, *public)
	if err != nil {
		return err
	}
	tun, network, err := netstack.CreateNetTUN([]netip.Addr{inner}, nil, mtu)
	if err != nil {
		return err
	}
	wireguard := device.NewDevice(tun, conn.NewDefaultBind(), device.NewLogger(device.LogLevelSilent, ""))
	defer wireguard.Close()
	if err := wireguard.IpcSet(settings); err != nil {
		return fmt.Errorf("wireguard-go refused the configuration: %w", err)
	}
	if err := wireguard.Up(); err != nil {
		return fmt.Errorf("bring the device up: %w", err)
	}
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	go carry.Accept(listener, func(near net.Conn) {
		far, err := network.DialTCPAddrPort(destination)
		if err != nil {
			return
		}
		defer far.Close()
		carry.Join(near.(*net.TCPConn), far)
	})
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// settings is the configuration in the form of WireGuard's cross-platform userspace interface.
func settings(server, private, public string) (string, error) {
	keys := make([][]byte, 2)
	for i, text := range []string{private, public} {
		key, err := base64.StdEncoding.DecodeString(text)
		if err != nil || len(key) != 32 {
			return "", fmt.Errorf("%s is not 32 bytes in base64", []string{"--private-key", "--peer-public-key"}[i])
		}
		keys[i] = key
	}
	const form = "private_key=%x\npublic_key=%x\nendpoint=%s\nallowed_ip=0.0.0.0/0\nallowed_ip=::/0\n"
	return fmt.Sprintf(form, keys[0], keys[1], server), nil
}
