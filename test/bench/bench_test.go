//go:build linux

package main

import (
	"bufio"
	"bytes"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
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

func TestTypeID(t *testing.T) {
	t.Parallel()
	// The example of the TypeID specification.
	id := uuid.MustParse("01890a5d-ac96-774b-bcce-b302099a8057")
	if got, want := typeID("prefix_", id), "prefix_01h455vb4pex5vsknk084sn02q"; got != want {
		t.Errorf("the id is %s, want %s", got, want)
	}
}
