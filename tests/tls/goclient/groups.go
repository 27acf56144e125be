// The actions `group` and `server`: both ends of a connection with certain groups for the key
// exchange.

package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
)

var groups = map[string]tls.CurveID{
	"X25519MLKEM768": tls.X25519MLKEM768,
	"X25519":         tls.X25519,
	"P-256":          tls.CurveP256,
	"P-384":          tls.CurveP384,
}

// named returns the groups of these names. Without names it returns nil, which is Go's default.
func named(names []string) (ids []tls.CurveID) {
	for _, name := range names {
		id, ok := groups[name]
		if !ok {
			log.Fatal("no such group: ", name)
		}
		ids = append(ids, id)
	}
	return ids
}

// group connects to an address whose certificate is for localhost, exchanges a line with its echo,
// and prints the group of the key exchange.
func group(address string, root []byte, names []string) {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(root)
	config := &tls.Config{RootCAs: roots, ServerName: "localhost", CurvePreferences: named(names)}
	connection, err := tls.Dial("tcp", address, config)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Fprintln(connection, "hello")
	line, err := bufio.NewReader(connection).ReadString('\n')
	if err != nil || line != "hello\n" {
		log.Fatal(line, err)
	}
	fmt.Println(connection.ConnectionState().CurveID)
}

// serve prints its port, echoes, and prints the group of the key exchange of each connection.
func serve(file string, names []string) {
	pair, err := tls.LoadX509KeyPair(file, file)
	if err != nil {
		log.Fatal(err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{pair}, CurvePreferences: named(names)}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	for {
		connection, err := listener.Accept()
		if err != nil {
			log.Fatal(err)
		}
		go func(connection *tls.Conn) {
			defer connection.Close()
			if err := connection.Handshake(); err != nil {
				fmt.Println("failed", err)
				return
			}
			fmt.Println(connection.ConnectionState().CurveID)
			io.Copy(connection, connection)
		}(connection.(*tls.Conn))
	}
}
