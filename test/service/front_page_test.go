package service

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/parley-chat/parley/internal/testkit"
)

// TestFrontPage: GET / tells programs in JSON, or in text if they ask for it, and browsers in HTML, what this is and where to start.
func TestFrontPage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	get := func(accept string) testkit.Reply {
		t.Helper()
		r := w.document(http.MethodGet, "/", "identity", "Accept", accept)
		if r.Status != http.StatusOK || !strings.Contains(strings.Join(r.Header.Values("Vary"), ","), "Accept") {
			t.Fatalf("GET / with Accept %q: %d, headers %v, want 200 that varies by Accept", accept, r.Status, r.Header)
		}
		return r
	}
	etags := map[string]string{}
	for accept, want := range map[string]string{
		"":                                  "application/json",
		"*/*":                               "application/json", // curl, and fetch of Node
		"application/json":                  "application/json",
		"application/json, text/plain, */*": "application/json", // axios
		"image/png":                         "application/json", // none of the formats: a program that reads nothing else still gets the links
		"text/plain":                        "text/plain; charset=utf-8",
		"text/*":                            "text/plain; charset=utf-8",
		"text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8": "text/html; charset=utf-8", // browsers
		"text/html;q=0.5, application/json":                                                     "application/json",
		strings.Repeat("a/b,", 500):                                                             "application/json",
	} {
		r := get(accept)
		if got := r.Header.Get("Content-Type"); got != want {
			t.Errorf("GET / with Accept %.60q is %q, want %q", accept, got, want)
		}
		for _, link := range []string{"http://parley.test/llms.txt", "http://parley.test/skill.md", "http://parley.test/openapi.json",
			"http://parley.test/health"} {
			if !strings.Contains(string(r.Body), link) {
				t.Errorf("GET / as %s has no link to %s", want, link)
			}
		}
		etags[want] = r.Header.Get("ETag")
		again := w.document(http.MethodGet, "/", "identity", "Accept", accept, "If-None-Match", r.Header.Get("ETag"))
		again.Want(t, "the same asked for again", http.StatusNotModified)
		if again.Header.Get("Vary") == "" {
			t.Error("a 304 does not vary")
		}
		head := w.document(http.MethodHead, "/", "identity", "Accept", accept)
		if head.Status != http.StatusOK || len(head.Body) != 0 || head.Header.Get("Content-Type") != want ||
			head.Header.Get("ETag") != r.Header.Get("ETag") {
			t.Errorf("HEAD /: %d, %d bytes, headers %v, want those of GET and no body", head.Status, len(head.Body), head.Header)
		}
	}
	if len(etags) != 3 || etags["application/json"] == etags["text/plain; charset=utf-8"] {
		t.Errorf("the ETags of the formats are %v, want one for each", etags)
	}
	var named struct {
		Name    string
		Payment struct {
			Network string
			Lowest  string `json:"lowest_price"`
		}
	}
	if err := json.Unmarshal(get("*/*").Body, &named); err != nil || named.Name != "Parley" || named.Payment.Network != "eip155:84532" ||
		named.Payment.Lowest == "" {
		t.Errorf("GET / as JSON says %+v (%v)", named, err)
	}
	page := get("text/html")
	policy := page.Header.Get("Content-Security-Policy")
	if !strings.HasPrefix(policy, "default-src 'none'; style-src 'sha256-") || !strings.Contains(policy, "frame-ancestors 'none'") {
		t.Errorf("the page's Content-Security-Policy is %q", policy)
	}
	if strings.Contains(string(page.Body), "<script") || strings.Contains(string(page.Body), "ZgotmplZ") || len(page.Body) > 8<<10 {
		t.Errorf("the page has a script, an unsafe value, or %d bytes:\n%s", len(page.Body), page.Body)
	}
	post := w.call(http.MethodPost, "/", "{}")
	post.Want(t, "POST /", http.StatusMethodNotAllowed, "method_not_allowed")
	if allow := post.Header.Get("Allow"); !strings.Contains(allow, "GET") || !strings.Contains(allow, "HEAD") {
		t.Errorf("POST / allows %q", allow)
	}
}
