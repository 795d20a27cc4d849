//go:build acme && !noserver

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store/storetest"
)

// domain is what the certificates are for.
const domain = "parley.test"

// pebble is an ACME server of Let's Encrypt for tests. It connects to this machine for every domain.
type pebble struct {
	directory string // URL
	caFile    string // of its own certificate
	roots     *x509.CertPool
}

func port(t *testing.T, address string) int {
	t.Helper()
	_, text, err := net.SplitHostPort(address)
	number, parsed := strconv.Atoi(text)
	if err != nil || parsed != nil {
		t.Fatal(err, parsed)
	}
	return number
}

// startPebble starts pebble, which finds the server at the addresses.
func startPebble(t *testing.T, tlsAddress, httpAddress string) *pebble {
	t.Helper()
	ca, folder := newAuthority(t), t.TempDir()
	ca.write(t, folder)
	writePEM(t, filepath.Join(folder, "ca.pem"), "CERTIFICATE", ca.certificate.Raw)
	listen, management := testkit.FreeAddress(t), testkit.FreeAddress(t)
	config, err := json.Marshal(map[string]any{"pebble": map[string]any{
		"listenAddress": listen, "managementListenAddress": management, "certificate": filepath.Join(folder, "cert.pem"),
		"privateKey": filepath.Join(folder, "key.pem"),
		"tlsPort":    port(t, tlsAddress), "httpPort": port(t, httpAddress), "retryAfter": map[string]int{"authz": 1, "order": 1},
	}})
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, "config.json"), config, 0o600)
	}
	testkit.NoError(t, err)
	var logs testkit.Buffer
	cmd := exec.CommandContext(context.Background(), "../../bin/pebble", "-config", filepath.Join(folder, "config.json"), "-dnsserver",
		nameServer(t))
	cmd.Env = append(os.Environ(), "PEBBLE_VA_NOSLEEP=1")
	cmd.Stdout, cmd.Stderr = &logs, &logs
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v; run make acme", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("pebble says:\n%s", &logs)
		}
	})
	p := &pebble{directory: "https://" + listen + "/dir", caFile: filepath.Join(folder, "ca.pem"), roots: x509.NewCertPool()}
	eventually(t, "pebble starts", func() bool {
		response, err := ca.client(t).Get("https://" + management + "/roots/0")
		if err != nil {
			return false
		}
		defer response.Body.Close()
		root, err := io.ReadAll(response.Body)
		return err == nil && p.roots.AppendCertsFromPEM(root)
	})
	return p
}

// nameServer is a DNS server that knows every name as this machine. It returns its address.
func nameServer(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0") // pebble asks over TCP
	testkit.NoError(t, err)
	server := &dns.Server{Listener: listener, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, question *dns.Msg) {
		answer := new(dns.Msg).SetReply(question)
		if asked := question.Question[0]; asked.Qtype == dns.TypeA {
			header := dns.RR_Header{Name: asked.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 1}
			answer.Answer = []dns.RR{&dns.A{Hdr: header, A: net.IPv4(127, 0, 0, 1)}}
		}
		_ = w.WriteMsg(answer)
	})}
	go func() { _ = server.ActivateAndServe() }()
	t.Cleanup(func() { _ = server.Shutdown() })
	return listener.Addr().String()
}

// transport reaches the domain at an address and trusts the certificates of pebble.
func (p *pebble) transport(t *testing.T, address string) *http.Transport {
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: p.roots, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", address)
		},
	}
	t.Cleanup(transport.CloseIdleConnections)
	return transport
}

// serial returns the number of the domain's certificate, or "" if there is none yet.
func (p *pebble) serial(address string) string {
	conn, err := tls.Dial("tcp", address, &tls.Config{RootCAs: p.roots, ServerName: domain, MinVersion: tls.VersionTLS12})
	if err != nil {
		return ""
	}
	defer func() { _ = conn.Close() }()
	return fmt.Sprint(conn.ConnectionState().PeerCertificates[0].SerialNumber)
}

// TestACME: the server gets a certificate from an ACME server, by TLS-ALPN-01 on the port that it serves, or by HTTP-01. An agent pays
// for calls through it. After a restart the certificate is still there.
func TestACME(t *testing.T) {
	t.Parallel()
	for _, challenge := range []string{"TLS-ALPN-01", "HTTP-01"} {
		t.Run(challenge, func(t *testing.T) {
			t.Parallel()
			address, redirects, nowhere := testkit.FreeAddress(t), testkit.FreeAddress(t), testkit.FreeAddress(t)
			settings := []string{"--listen", address, "--base-url", "https://" + domain, "--tls-domain", domain, "--tls-directory",
				filepath.Join(folder(t), "certificates")}
			var ca *pebble
			if challenge == "HTTP-01" {
				ca = startPebble(t, nowhere, redirects)
				settings = append(settings, "--tls-http-listen", redirects)
			} else {
				ca = startPebble(t, address, nowhere)
			}
			settings = append(settings, "--tls-acme-url", ca.directory)
			database := storetest.URL(t)
			server, admin := serveIn(t, []string{"SSL_CERT_FILE=" + ca.caFile}, database, settings...)
			if !testkit.Eventually(time.Minute, func() bool { return ca.serial(address) != "" }) {
				t.Fatalf("the server gets no certificate:\n%s", server.logs)
			}
			serial := ca.serial(address)
			pays(t, domain, ca.transport(t, address))
			reply, err := testkit.Request(t.Context(), http.DefaultClient, http.MethodGet, admin+"/metrics", "")
			if err != nil || !strings.Contains(string(reply.Body), "\nparley_tls_certificate_expires_seconds 7.") {
				t.Errorf("the metric does not show 90 days: %v", err)
			}
			server.stop(t)
			server, _ = serveIn(t, []string{"SSL_CERT_FILE=" + ca.caFile}, database, settings...)
			if got := ca.serial(address); got != serial {
				t.Errorf("after a restart the certificate is %q, want %s\n%s", got, serial, server.logs)
			}
		})
	}
}
