// A client of HTTPS that renews its certificate while it runs, and both ends of TLS with certain groups
// for the key exchange: goclient group ADDRESS ROOT [GROUP...], goclient server FILE [GROUP...].
//
// goclient VERSION ROOT reads lines from its standard input, each a URL and the file of a certificate
// with its key. It shows that certificate from then on, asks for the page on a new connection, and
// prints one line: "full" or "resumed" with the page, or "failed" with the error. All connections share
// one cache of sessions.
package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strings"
)

func main() {
	switch os.Args[1] {
	case "group":
		root, err := os.ReadFile(os.Args[3])
		if err != nil {
			log.Fatal(err)
		}
		group(os.Args[2], root, os.Args[4:])
		return
	case "server":
		serve(os.Args[2], os.Args[3:])
		return
	}
	version := map[string]uint16{"1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}[os.Args[1]]
	root, err := os.ReadFile(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(root)

	var shown tls.Certificate
	transport := &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{
			RootCAs:            roots,
			MinVersion:         version,
			MaxVersion:         version,
			ClientSessionCache: tls.NewLRUClientSessionCache(0),
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				return &shown, nil
			},
		},
	}
	client := &http.Client{Transport: transport}

	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		url, file, _ := strings.Cut(lines.Text(), " ")
		if shown, err = tls.LoadX509KeyPair(file, file); err != nil {
			log.Fatal(err)
		}
		fmt.Println(ask(client, url))
	}
}

func ask(client *http.Client, url string) string {
	response, err := client.Get(url)
	if err != nil {
		return fmt.Sprint("failed ", err)
	}
	defer response.Body.Close()
	page, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Sprint("failed ", err)
	}
	if response.TLS.DidResume {
		return fmt.Sprintf("resumed %s", page)
	}
	return fmt.Sprintf("full %s", page)
}
