//go:build attack

package attack

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// secureRate is how many connections with TLS an attack opens in a second at most: a handshake takes about a millisecond of both sides.
const secureRate = 150

// fields encodes the headers of a request with HTTP/2.
func fields(method, path string, more ...hpack.HeaderField) []byte {
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, field := range append([]hpack.HeaderField{
		{Name: ":method", Value: method}, {Name: ":scheme", Value: "https"}, {Name: ":authority", Value: "parley"}, {Name: ":path", Value: path},
	}, more...) {
		_ = encoder.WriteField(field)
	}
	return block.Bytes()
}

// TestHostileStreams: with HTTP/2, responses that are not read, bodies and headers that lack their end, on 16 streams of each connection of
// four addresses, take little memory and keep nobody at other addresses out.
func TestHostileStreams(t *testing.T) {
	x := newTrial(t)
	x.s.secure(t.TempDir(), time.Hour)
	x.onlyOtherAddress()
	typed := hpack.HeaderField{Name: "content-type", Value: "application/json"}
	get, post := fields(http.MethodGet, "/openapi.json"), fields(http.MethodPost, sendPath, typed)
	long := fields(http.MethodPost, sendPath, typed, hpack.HeaderField{Name: "x-long", Value: strings.Repeat("~", 28<<10)})
	for _, attack := range []struct {
		name  string
		begin func(f *http2.Framer, stream uint32) error
	}{
		{"responses of 250 KB that are not read", func(f *http2.Framer, stream uint32) error {
			return f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: get, EndHeaders: true, EndStream: true})
		}},
		{"bodies of 15 KB without their end", func(f *http2.Framer, stream uint32) error {
			err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: post, EndHeaders: true})
			if err == nil {
				err = f.WriteData(stream, false, []byte(`{"content":"`+strings.Repeat("a", 15<<10)))
			}
			return err
		}},
		{"headers of 28 KB and no body", func(f *http2.Framer, stream uint32) error {
			return x.headers(f, stream, long, true)
		}},
		{"headers of 28 KB without their end", func(f *http2.Framer, stream uint32) error {
			return x.headers(f, stream, long, false)
		}},
	} {
		x.measure(attack.name+", HTTP/2, from 4 addresses", func(ctx context.Context) {
			x.reopened(ctx, 1000, 4, secureRate, func(raw net.Conn) {
				connection := tls.Client(raw, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}) //nolint:gosec // the test's own server
				_ = connection.SetDeadline(time.Now().Add(time.Minute))
				if _, err := io.WriteString(connection, http2.ClientPreface); err != nil {
					return
				}
				framer := http2.NewFramer(connection, nil)
				err := framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
				for stream := uint32(1); stream < 32 && err == nil; stream += 2 {
					err = attack.begin(framer, stream)
				}
				_, _ = io.Copy(io.Discard, connection) // also after an error: the server may only have ended a stream
				x.tally.add(0, "", 0, "")
			})
		})
	}
	x.check()
}

// headers writes a block of headers in frames of 16 KiB.
func (x *trial) headers(f *http2.Framer, stream uint32, block []byte, end bool) error {
	const frame = 16 << 10
	first := block[:min(frame, len(block))]
	err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: first})
	for rest := block[len(first):]; err == nil && len(rest) > 0; {
		part := rest[:min(frame, len(rest))]
		rest = rest[len(part):]
		err = f.WriteContinuation(stream, end && len(rest) == 0, part)
	}
	return err
}
