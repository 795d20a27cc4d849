//go:build !noserver

package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

// secretWitness is a server behind a proxy that sees every secret that an agent sends or gets: API keys, TANs and payments. At each request
// it also notes the command lines of all processes.
type secretWitness struct {
	*httptest.Server
	t *testing.T

	mu       sync.Mutex
	secrets  map[string]secret
	commands map[string]bool
	onPaid   func(http.ResponseWriter, *http.Request) bool // if not nil, it may end a paid request before the server gets it
}

func newSecretWitness(t *testing.T, of *process) *secretWitness {
	t.Helper()
	target, err := url.Parse(of.URL)
	testkit.NoError(t, err)
	w := &secretWitness{t: t, secrets: map[string]secret{}, commands: map[string]bool{}}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.ModifyResponse = w.sawResponse
	w.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.saw(r)
		w.mu.Lock()
		onPaid := w.onPaid
		w.mu.Unlock()
		if onPaid == nil || r.Header.Get(x402.HeaderPaymentSignature) == "" || !onPaid(rw, r) {
			proxy.ServeHTTP(rw, r)
		}
	}))
	t.Cleanup(w.Close)
	return w
}

func (w *secretWitness) add(name, text string, places []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if text != "" {
		w.secrets[text] = secret{name, text, places}
	}
}

// known returns all secrets, and how many there are of each name.
func (w *secretWitness) known() (secrets []secret, counts map[string]int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	counts = map[string]int{}
	for _, one := range w.secrets {
		secrets = append(secrets, one)
		counts[one.name]++
	}
	return secrets, counts
}

// commandLines returns the command lines of all processes that ran at a request.
func (w *secretWitness) commandLines() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(slices.Collect(maps.Keys(w.commands)), "\n")
}

func (w *secretWitness) saw(r *http.Request) {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline") // none where there is no /proc
	for _, line := range lines {
		content, _ := os.ReadFile(line) // the process may have ended
		w.mu.Lock()
		w.commands[string(content)] = true
		w.mu.Unlock()
	}
	w.add("an API key", r.Header.Get("X-Api-Key"), keyPlaces)
	payment := r.Header.Get(x402.HeaderPaymentSignature)
	if payment == "" {
		return
	}
	w.add("a payment", payment, paymentPlaces)
	var payload any
	if content, err := base64.StdEncoding.DecodeString(payment); err != nil || json.Unmarshal(content, &payload) != nil {
		w.t.Errorf("the payment is not JSON: %v", err)
	}
	w.walk(payload)
}

// walk adds the signatures and the identifier in a payment.
func (w *secretWitness) walk(value any) {
	found, _ := value.(map[string]any)
	for name, each := range found {
		text, _ := each.(string)
		switch name {
		case "signature":
			w.add("a signature", text, paymentPlaces)
		case "id":
			w.add("a payment identifier", text, identifierPlaces)
		default:
			w.walk(each)
		}
	}
}

func (w *secretWitness) sawResponse(response *http.Response) error {
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	var found struct {
		Key string `json:"api_key"`
		TAN string `json:"tan"`
	}
	_ = json.Unmarshal(body, &found) // other documents have neither
	w.add("an API key", found.Key, keyPlaces)
	w.add("a TAN", found.TAN, keyPlaces)
	return nil
}
