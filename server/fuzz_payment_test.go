package server_test

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-chat/parley/x402/x402test"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

// FuzzHeaders puts anything among the headers of a paid request, as bytes on the connection. Whatever comes, the request is
// replied once, without a 500, and charged only with a 200.
func FuzzHeaders(f *testing.F) {
	for _, lines := range []string{
		"", "X-API-KEY: x", "PAYMENT-SIGNATURE: x", "X-PAYMENT: x", "Content-Length: 0", "Content-Length: 5\r\nContent-Length: 6",
		"Transfer-Encoding: chunked", "Transfer-Encoding: xchunked", "Content-Type: text/html", "Content-Encoding: gzip", "Expect: 100-continue",
		"Host: a\r\nHost: b", "X-Request-Id: \x7f", "X-Request-Id: ../../x", ": no name", " folded", "Nothing", "A:b\r\n\r\nGET /health HTTP/1.1",
		"X-Forwarded-For: ::1", "Forwarded: for=\"[::1]:0\"", "X-HTTP-Method-Override: GET", "Connection: keep-alive, PAYMENT-SIGNATURE",
		"Upgrade: h2c\r\nHTTP2-Settings: AA", "Range: bytes=0-1", "If-None-Match: *", "Accept: \xff\xfe",
		"Cookie: " + strings.Repeat("a=b;", 500),
		"Origin: null", "Idempotency-Key: x", strings.Repeat("X: y\r\n", 300) + "Z: z", "X-Long: " + strings.Repeat("x", 40<<10),
	} {
		f.Add(lines, false)
		f.Add(lines, true)
	}
	w := newWorld(f)
	from, to := w.agent("from"), w.agent("to")
	address, err := url.Parse(w.url)
	testkit.NoError(f, err)
	const send = "POST /chat/private/send"
	price, calls := testkit.Price(send), 0
	var mu sync.Mutex
	f.Fuzz(func(t *testing.T, lines string, first bool) {
		mu.Lock() // one at a time: balances are compared
		defer mu.Unlock()
		calls++ // an Idempotency-Key would return the response of an equal request
		body := `{"recipient_agent_id":` + quote(to.ID) + `,"content":"among any headers, ` + strconv.Itoa(calls) + `"}`
		fixed := fmt.Sprintf("Connection: close\r\nContent-Type: application/json\r\nX-API-KEY: %s\r\nPAYMENT-SIGNATURE: "+
			"%s\r\nContent-Length: %d\r\n",
			from.Key, testkit.Header(t, testkit.Payment(t, from.Wallet, testkit.Offer(price))), len(body))
		if lines += "\r\n"; lines == "\r\n" {
			lines = ""
		}
		if first {
			fixed = lines + fixed
		} else {
			fixed += lines
		}
		revenue := w.Revenue()
		connection, err := net.Dial("tcp", address.Host)
		testkit.NoError(t, err)
		defer func() { _ = connection.Close() }()
		_ = connection.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err := fmt.Fprintf(connection, "%s HTTP/1.1\r\nHost: parley.test\r\n%s\r\n%s", send, fixed, body); err != nil {
			t.Skip("the server hung up before it had everything")
		}
		reader := bufio.NewReader(connection)
		_ = connection.SetReadDeadline(time.Now().Add(time.Second))
		_, err = reader.Peek(1)
		waits := errors.Is(err, os.ErrDeadlineExceeded) // for more of a body than there is
		if waits {
			_ = connection.(*net.TCPConn).CloseWrite()
		}
		_ = connection.SetReadDeadline(time.Now().Add(10 * time.Second))
		statuses, said := readAll(reader)
		charged := w.Revenue() - revenue
		ok, open := 0, waits
		for i, status := range statuses {
			if status == http.StatusOK && i == 0 {
				ok++
			}
			// 501 is net/http's word on a Transfer-Encoding, 505 on a version.
			if status >= 500 && !waits && status != http.StatusNotImplemented && status != http.StatusHTTPVersionNotSupported {
				open = true
				t.Errorf("%q: %d %s", lines, status, said)
			}
		}
		if !open && len(statuses) > 0 && (charged > 0) != (ok > 0) || charged != 0 && charged != price {
			t.Errorf("%q: %v, and %d was charged: %s", lines, statuses, charged, said)
		}
	})
}

// readAll reads every response on a connection.
func readAll(reader *bufio.Reader) (statuses []int, bodies string) {
	for {
		response, err := http.ReadResponse(reader, nil)
		if err != nil {
			return statuses, bodies
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if response.StatusCode != http.StatusContinue {
			statuses = append(statuses, response.StatusCode)
			bodies += string(body)
		}
		if err != nil {
			return statuses, bodies
		}
	}
}

// FuzzPayments changes a good payment: members of its JSON, bytes of the JSON, bytes of the base64, the header's name. What
// still is a good payment is charged exactly once, and nothing else is.
func FuzzPayments(f *testing.F) {
	for member := range byte(40) {
		for how := range byte(10) {
			f.Add([]byte{member, how}, []byte("x"), byte(0))
		}
	}
	for mode := range byte(10) {
		f.Add([]byte{}, []byte{}, mode)
		f.Add([]byte{mode}, []byte("\x00\xff{}[]\"0"), mode)
	}
	f.Add([]byte("A1*z*\xb2"), []byte("0"), byte(0)) // longer than the headers may be
	f.Add([]byte("\xce\xce\xce\xce\xce\xce\xce\xce"), []byte("x"), byte(0))
	w := newWorld(f)
	from, to := w.agent("from"), w.agent("to")
	const send = "POST /chat/private/send"
	price := testkit.Price(send)
	var mu sync.Mutex
	f.Fuzz(func(t *testing.T, edits, noise []byte, mode byte) {
		mu.Lock()
		defer mu.Unlock()
		w := w.forTest(t)
		payload := testkit.Payment(t, from.Wallet, testkit.Offer(price),
			testkit.Identified("an_identifier_of_its_own_"+fmt.Sprint(time.Now().UnixNano())))
		name := x402.HeaderPaymentSignature
		header := testkit.Header(t, payload)
		if mode&1 > 0 {
			var err error
			if header, err = x402test.EncodePaymentPayloadV1(payload, testkit.PlayMoney.V1Name); err != nil {
				t.Fatal(err)
			}
			if mode&2 == 0 { // else it is in the wrong header
				name = x402.HeaderPaymentV1
			}
		}
		raw, err := base64.StdEncoding.DecodeString(header)
		testkit.NoError(t, err)
		for pair := range slices.Chunk(edits[:min(len(edits), 8)], 2) {
			if len(pair) == 2 && len(raw) < 8<<10 { // an edit may repeat a text 256 times
				raw = editJSON(t, raw, int(pair[0]), pair[1], noise)
			}
		}
		if mode&4 > 0 && len(noise) > 0 { // bytes of the JSON
			at := int(noise[0]) * len(raw) / 256
			raw = slices.Concat(raw[:at], noise[1:], raw[min(len(raw), at+len(noise)):])
		}
		header = base64.StdEncoding.EncodeToString(raw)
		if mode&8 > 0 && len(noise) > 0 { // bytes of the base64
			at := int(noise[0]) * len(header) / 256
			header = header[:at] + string(bytes.Map(printable, noise[1:])) + header[at:]
		}
		if len(header) > 48<<10 {
			t.Skip("net/http returns 431 by itself")
		}
		revenue, balance := w.Revenue(), w.Ledger.Balance(testkit.Address(from.Wallet))
		a, err := w.try(http.MethodPost, "/chat/private/send", `{"recipient_agent_id":`+quote(to.ID)+`,"content":"paid by anything"}`,
			"X-API-KEY", from.Key, name, header)
		if err != nil {
			t.Skipf("the request cannot be sent: %v", err)
		}
		charged := w.Revenue() - revenue
		switch {
		case a.Status >= http.StatusInternalServerError:
			t.Errorf("%.600q: %v", raw, a)
		case (a.Status == http.StatusOK) != (charged == price), charged != 0 && charged != price,
			balance-w.Ledger.Balance(testkit.Address(from.Wallet)) != charged:
			t.Errorf("%.600q: %v, and %d was charged", raw, a, charged)
		}
	})
}

// editJSON changes the member with this number; JSON that is none any more stays as it is.
func editJSON(t testing.TB, raw []byte, number int, how byte, noise []byte) []byte {
	t.Helper()
	var value any
	if json.Unmarshal(raw, &value) != nil {
		return raw
	}
	type place struct {
		object map[string]any
		name   string
	}
	var places []place
	var walk func(value any)
	walk = func(value any) {
		if object, ok := value.(map[string]any); ok {
			for _, name := range slices.Sorted(maps.Keys(object)) {
				places = append(places, place{object, name})
				walk(object[name])
			}
		}
	}
	walk(value)
	if len(places) == 0 {
		return raw
	}
	at := places[number%len(places)]
	text, _ := at.object[at.name].(string)
	switch how % 14 {
	case 0:
		delete(at.object, at.name)
	case 1:
		at.object[at.name] = nil
	case 2:
		at.object[at.name] = string(noise)
	case 3:
		at.object[at.name] = text + string(noise)
	case 4:
		at.object[at.name] = strings.ToUpper(text)
	case 5:
		at.object[at.name] = []any{at.object[at.name]}
	case 6:
		at.object[at.name] = map[string]any{at.name: at.object[at.name]}
	case 7:
		at.object[at.name] = 1e300
	case 8:
		at.object[at.name] = -1
	case 9:
		at.object[at.name+string(noise)] = at.object[at.name]
	case 10:
		at.object[at.name] = strings.Repeat(text+"0", 1+int(how))
	case 11:
		at.object[at.name] = places[int(how)%len(places)].object[places[int(how)%len(places)].name]
	case 12:
		at.object[at.name] = json.Number(strings.Repeat("9", 1+int(how)))
	case 13:
		at.object[strings.ToUpper(at.name)] = "twice, to some readers"
	}
	changed, err := json.Marshal(value)
	if err != nil { // a value that holds itself, or text that is no UTF-8
		return raw
	}
	return changed
}
