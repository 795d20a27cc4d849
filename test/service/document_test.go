package service

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/server/edge"
)

// document gets a document in a coding.
func (w *world) document(method, path, coding string, headers ...string) testkit.Reply {
	w.T.Helper()
	return w.call(method, path, "", slices.Concat([]string{"Accept-Encoding", coding}, headers)...)
}

// TestDocumentsAreCompressed: a client that accepts gzip gets the same document compressed, under an ETag of its own.
func TestDocumentsAreCompressed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, path := range []string{"/", "/openapi.yaml", "/openapi.json", "/llms.txt", "/skill.md", "/.well-known/agent-card.json"} {
		plain := w.document(http.MethodGet, path, "identity")
		for coding, compressed := range map[string]bool{"gzip": true, "br, GZIP;q=0.5": true, "deflate, gzip ;q=1": true, "gzip;q=0": false,
			"gzip; q=0.000": false, "br": false, "*": false, "x": false} {
			got := w.document(http.MethodGet, path, coding)
			body, etag, length := got.Body, got.Header.Get("ETag"), got.Header.Get("Content-Length")
			if (got.Header.Get("Content-Encoding") == "gzip") != compressed || (etag != plain.Header.Get("ETag")) != compressed {
				t.Errorf("%s with %q has the headers %v", path, coding, got.Header)
			}
			if compressed {
				reader, err := gzip.NewReader(bytes.NewReader(body))
				if err != nil || len(body) >= len(plain.Body) {
					t.Fatalf("%s with %q: %d bytes instead of %d (%v)", path, coding, len(body), len(plain.Body), err)
				}
				if body, err = io.ReadAll(reader); err != nil {
					t.Fatal(err)
				}
			}
			if !bytes.Equal(body, plain.Body) || length != strconv.Itoa(len(got.Body)) ||
				!slices.Contains(got.Header.Values("Vary"), "Accept-Encoding") {
				t.Errorf("%s with %q is not the document: %v", path, coding, got.Header)
			}
			again := w.document(http.MethodGet, path, coding, "If-None-Match", "W/"+etag)
			if again.Want(t, "the same asked for again", http.StatusNotModified); !slices.Contains(again.Header.Values("Vary"), "Accept-Encoding") {
				t.Errorf("%s with %q: a 304 does not vary", path, coding)
			}
			if head := w.document(http.MethodHead, path, coding); head.Header.Get("ETag") != etag || head.Header.Get("Content-Length") != length {
				t.Errorf("%s with %q: HEAD has the headers %v", path, coding, head.Header)
			}
		}
	}
}

// TestDocumentsTakeTokensBySize: a document takes one token, and one more for each 8 KiB that are sent. With the tokens of an address a
// client gets the contract often enough.
func TestDocumentsTakeTokensBySize(t *testing.T) {
	t.Parallel()
	for coding, least := range map[string]int{"identity": 40, "gzip": 160} {
		t.Run(coding, func(t *testing.T) {
			t.Parallel()
			burst := edge.DefaultLimits().Address.Burst
			w := newWorld(t, withLimits(edge.Limits{Address: few(burst)}))
			left, fetched := burst, 0
			for ; left > 0; fetched++ {
				head := w.document(http.MethodHead, "/openapi.json", coding)
				cached := w.document(http.MethodGet, "/openapi.json", coding, "If-None-Match", head.Header.Get("ETag"))
				if left -= 2; left <= 0 {
					break
				}
				got := w.document(http.MethodGet, "/openapi.json", coding)
				if head.Status != http.StatusOK || cached.Status != http.StatusNotModified || got.Status != http.StatusOK {
					t.Fatalf("with %d tokens, after %d documents: %v, %v, %v", left, fetched, head, cached, got)
				}
				left -= 1 + len(got.Body)/(8<<10)
			}
			w.wantLimited("without tokens", w.document(http.MethodGet, "/openapi.json", coding), "address")
			if fetched < least {
				t.Errorf("an address gets %d documents at once, want %d", fetched, least)
			}
		})
	}
}

// TestHead: HEAD of each free GET operation and document returns what GET returns, without the body.
func TestHead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	paths := []string{"/", "/openapi.yaml", "/openapi.json", "/llms.txt", "/skill.md", "/sdk.md", "/parley.mjs", "/parley.py", "/favicon.svg",
		"/.well-known/agent-card.json", "/.well-known/agent-skills/index.json"}
	for _, route := range testkit.Operations {
		if route.Method == http.MethodGet && route.Operation.Extensions["x-payment-info"] == nil {
			paths = append(paths, route.Path)
		}
	}
	check := func(path string, status int) {
		t.Helper()
		get, head := w.document(http.MethodGet, path, "identity"), w.document(http.MethodHead, path, "identity")
		if get.Status != status || head.Status != status || len(head.Body) != 0 || head.Header.Get("Content-Length") == "" {
			t.Errorf("%s: GET %d with %v, HEAD %d with a body of %d bytes", path, get.Status, get.Header, head.Status, len(head.Body))
		}
		for _, header := range []http.Header{get.Header, head.Header} {
			for _, changing := range []string{"Date", "X-Request-Id", "Ratelimit"} {
				header.Del(changing)
			}
			if path == "/health" { // the time in it is a number, which can be shorter
				header.Del("Content-Length")
			}
		}
		if diff := cmp.Diff(get.Header, head.Header); diff != "" {
			t.Errorf("%s: the headers of HEAD (-GET +HEAD):\n%s", path, diff)
		}
	}
	for _, path := range paths {
		check(path, http.StatusOK)
	}
	check("/nothing", http.StatusNotFound)
}
