//go:build linux

package main

import (
	"bufio"
	"bytes"
	"encoding/xml"
	"net/http"
	"slices"
	"strings"
	"testing"
)

func TestReadResponse(t *testing.T) {
	t.Parallel()
	var body bytes.Buffer
	r := bufio.NewReader(strings.NewReader("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello" +
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n10\r\n0123456789abcdef\r\n0\r\n\r\n" +
		"HTTP/1.1 402 Payment Required\r\nContent-Length: 4\r\n\r\npay!"))
	for range 2 {
		if err := readResponse(r, http.StatusOK, &body); err != nil {
			t.Errorf("read a response of 200: %v", err)
		}
	}
	if err := readResponse(r, http.StatusOK, &body); err == nil || err.Error() != "status 402: pay!" {
		t.Errorf("another status says %v, want status and body", err)
	}
	if err := readResponse(r, http.StatusOK, &body); err == nil {
		t.Error("a response is read where none is")
	}
}

func TestDrawPeers(t *testing.T) {
	t.Parallel()
	var compared []comparison
	for i, clients := range []int{1, 16, 64} {
		c := comparison{clients: clients}
		for n, name := range []string{"constant response", "send", "own <account>", "unread"} {
			var seen result
			seen[perSecond], seen[cpu] = float64(100+i*n*50), 1/float64(n+i+1)
			c.sides, c.rounds = append(c.sides, side{name: name}), append(c.rounds, []result{seen})
		}
		compared = append(compared, c)
	}
	var picture bytes.Buffer
	drawPeers(&picture, []panel{{"A <facilitator>", compared}}, "1 × a processor & more")
	var shown struct {
		Title string `xml:"title"`
		Desc  string `xml:"desc"`
		Text  []struct {
			Of string `xml:",chardata"`
		} `xml:"text"`
	}
	if err := xml.Unmarshal(picture.Bytes(), &shown); err != nil {
		t.Fatalf("the picture is not XML: %v\n%s", err, &picture)
	}
	var texts []string
	for _, text := range shown.Text {
		texts = append(texts, text.Of)
	}
	for _, want := range []string{"A <facilitator>", "own <account>", "4 at 64", "1 × a processor & more"} {
		if !slices.Contains(texts, want) {
			t.Errorf("the picture lacks the text %q: %q", want, texts)
		}
	}
	if want := "unread with 16 clients 2.50 times the rate;"; !strings.Contains(shown.Desc, want) {
		t.Errorf("the description lacks %q: %s", want, shown.Desc)
	}
	if shown.Title == "" || strings.Contains(picture.String(), "NaN") {
		t.Errorf("the picture has no title, or a number that is none:\n%s", &picture)
	}
}
