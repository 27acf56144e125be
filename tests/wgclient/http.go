// The action `http`: requests with names resolved inside the tunnel.

package main

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"time"

	"watm/wgclient/latency"
)

// httpGet fetches a URL.
type httpGet struct {
	URL string `json:"url"`
	// The source of a name's address: this address, or this name server.
	Address   string `json:"address"`
	DNSServer string `json:"dns_server"`
	CAFile    string `json:"ca_file"`
	Insecure  bool   `json:"insecure"`
	HTTP2     bool   `json:"http2"`
	// The number of requests, and true to use one connection.
	Count     int  `json:"count"`
	KeepAlive bool `json:"keep_alive"`
}

type httpResult struct {
	Status   int    `json:"status"`
	Protocol string `json:"protocol"`
	Bytes    int    `json:"bytes"`
	SHA256   string `json:"sha256"`
	Text     string `json:"text"` // its first 4096 bytes
	Issuer   string `json:"issuer,omitempty"`
	// The total of all requests. The other fields are about the last.
	Requests  int     `json:"requests"`
	Seconds   float64 `json:"seconds"`
	PerSecond float64 `json:"per_second"`
	latency.Summary
}

func newHTTP() action { return &httpGet{Count: 1} }

func (a *httpGet) flags(set *flag.FlagSet) {
	set.StringVar(&a.URL, "url", a.URL, "what to get")
	set.StringVar(&a.Address, "to-address", a.Address, "the address of the URL's host name")
	set.StringVar(&a.DNSServer, "dns-server", a.DNSServer, "resolve names at this server, address:port")
	set.StringVar(&a.CAFile, "ca-file", a.CAFile, "trust the certificates in this file (PEM) alone")
	set.BoolVar(&a.Insecure, "insecure", a.Insecure, "accept any certificate")
	set.BoolVar(&a.HTTP2, "http2", a.HTTP2, "offer HTTP/2 over TLS")
	set.IntVar(&a.Count, "count", a.Count, "requests, one after the other")
	set.BoolVar(&a.KeepAlive, "keep-alive", a.KeepAlive, "all of them over one connection")
}

func (a *httpGet) run(ctx context.Context, s *session) (any, error) {
	security := &tls.Config{InsecureSkipVerify: a.Insecure}
	if a.CAFile != "" {
		text, err := os.ReadFile(a.CAFile)
		if err != nil {
			return nil, err
		}
		security.RootCAs = x509.NewCertPool()
		if !security.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s holds no certificate in PEM", a.CAFile)
		}
	}
	client := http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, network, to string) (net.Conn, error) {
			resolved, err := a.resolve(ctx, s, to)
			if err != nil {
				return nil, err
			}
			return s.dial(ctx, network, resolved)
		},
		TLSClientConfig:   security,
		ForceAttemptHTTP2: a.HTTP2,
		DisableKeepAlives: !a.KeepAlive,
	}}
	defer client.CloseIdleConnections()
	var result *httpResult
	var samples []time.Duration
	start := time.Now()
	for range max(1, a.Count) {
		began := time.Now()
		var err error
		if result, err = a.get(ctx, &client); err != nil {
			return nil, err
		}
		samples = append(samples, time.Since(began))
	}
	result.Requests = len(samples)
	result.Seconds = time.Since(start).Seconds()
	result.PerSecond = float64(len(samples)) / result.Seconds
	result.Summary = latency.Summarize(samples)
	return result, nil
}

// get makes one request.
func (a *httpGet) get(ctx context.Context, client *http.Client) (*httpResult, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, a.URL, nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	digest := sha256.Sum256(body)
	result := &httpResult{
		Status:   response.StatusCode,
		Protocol: response.Proto,
		Bytes:    len(body),
		SHA256:   hex.EncodeToString(digest[:]),
		Text:     strings.ToValidUTF8(string(body[:min(len(body), 4096)]), "?"),
	}
	if response.TLS != nil && len(response.TLS.PeerCertificates) > 0 {
		result.Issuer = response.TLS.PeerCertificates[0].Issuer.String()
	}
	return result, nil
}

// resolve turns host:port into address:port.
func (a *httpGet) resolve(ctx context.Context, s *session, to string) (string, error) {
	host, port, err := net.SplitHostPort(to)
	if err != nil {
		return "", err
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return to, nil
	}
	if a.Address != "" {
		return net.JoinHostPort(a.Address, port), nil
	}
	if a.DNSServer == "" {
		return "", fmt.Errorf("%q is a name: give --to-address or --dns-server", host)
	}
	answer, err := (&dns{Name: host, Server: a.DNSServer}).run(ctx, s)
	if err != nil {
		return "", err
	}
	found := answer.(dnsResult)
	if len(found.Addresses) == 0 {
		return "", fmt.Errorf("%s has no address: %s", host, found.Code)
	}
	return net.JoinHostPort(found.Addresses[0], port), nil
}

// readFramed reads a message behind its length in two bytes, as DNS over TCP
// has it.
func readFramed(from io.Reader) ([]byte, error) {
	var prefix [2]byte
	if _, err := io.ReadFull(from, prefix[:]); err != nil {
		return nil, err
	}
	message := make([]byte, int(prefix[0])<<8|int(prefix[1]))
	if len(message) == 0 {
		return nil, errors.New("an empty message")
	}
	_, err := io.ReadFull(from, message)
	return message, err
}
