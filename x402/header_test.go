package x402

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// noError ends the test if something failed.
func noError(t testing.TB, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func encoded(raw string) string { return base64.StdEncoding.EncodeToString([]byte(raw)) }

func TestPaymentRequiredRoundTrip(t *testing.T) {
	t.Parallel()
	want := &PaymentRequired{
		X402Version: 2,
		Error:       "PAYMENT-SIGNATURE header is required",
		Resource: ResourceInfo{
			URL: "https://host.example/chat/private/send", Description: "Send a private message – once", MimeType: "application/json",
			ServiceName: "Parley", Tags: []string{"chat"}, IconURL: "https://host.example/favicon.ico",
		},
		Accepts:    []PaymentRequirements{knownNetwork(t, NetworkBase).Requirements(5000, vectorPayee, 60)},
		Extensions: map[string]jsontext.Value{"bazaar": jsontext.Value(`{"info":{"input":{"type":"http"}}}`)},
	}
	header, err := EncodePaymentRequired(want)
	noError(t, "encode", err)
	got, err := DecodePaymentRequired(header)
	noError(t, "decode", err)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("after a round trip (-want +got):\n%s", diff)
	}
}

func TestPaymentRequiredWireFormat(t *testing.T) {
	t.Parallel()
	header, err := EncodePaymentRequired(&PaymentRequired{
		X402Version: 2,
		Resource:    ResourceInfo{URL: "https://host.example/x"},
		Accepts:     []PaymentRequirements{knownNetwork(t, NetworkBase).Requirements(5000, vectorPayee, 60)},
	})
	noError(t, "encode", err)
	want := encoded(`{"x402Version":2,"resource":{"url":"https://host.example/x"},"accepts":[{"scheme":"exact",` +
		`"network":"eip155:8453","amount":"5000","asset":"0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913",` +
		`"payTo":"0x209693Bc6afc0C5328bA36FaF03C514EF312287C","maxTimeoutSeconds":60,"extra":{"name":"USD Coin","version":"2"}}]}`)
	if diff := cmp.Diff(want, header); diff != "" {
		t.Errorf("the header (-want +got):\n%s", diff)
	}
}

func TestDecodePaymentRequiredRefusals(t *testing.T) {
	t.Parallel()
	offer := `{"scheme":"exact","network":"eip155:8453","amount":"5000","asset":"0x1","payTo":"0x2","maxTimeoutSeconds":60}`
	for name, raw := range map[string]string{
		"version 1":         `{"x402Version":1,"resource":{"url":"u"},"accepts":[` + offer + `]}`,
		"no version":        `{"resource":{"url":"u"},"accepts":[` + offer + `]}`,
		"no resource":       `{"x402Version":2,"accepts":[` + offer + `]}`,
		"no offers":         `{"x402Version":2,"resource":{"url":"u"},"accepts":[]}`,
		"an empty offer":    `{"x402Version":2,"resource":{"url":"u"},"accepts":[{}]}`,
		"a number for text": `{"x402Version":2,"resource":{"url":7},"accepts":[` + offer + `]}`,
		"an array":          `[]`,
		"half an object":    `{"x402Version":2`,
	} {
		_, err := DecodePaymentRequired(encoded(raw))
		if form, ok := errors.AsType[*FormError](err); !ok || form.Reason == "" || form.Message == "" {
			t.Errorf("%s: decoding says %#v, want a *FormError", name, err)
		}
	}
}

func TestSettleResponseRoundTrip(t *testing.T) {
	t.Parallel()
	for raw, response := range map[string]*SettleResponse{
		`{"success":true,"transaction":"0xab","network":"eip155:8453","payer":"0xcd"}`: {
			Success: true, Transaction: "0xab", Network: NetworkBase, Payer: "0xcd",
		},
		// transaction is there although it is empty.
		`{"success":false,"errorReason":"insufficient_funds","transaction":"","network":"eip155:8453"}`: {
			ErrorReason: "insufficient_funds", Network: NetworkBase,
		},
	} {
		header, err := EncodeSettleResponse(response)
		noError(t, "encode", err)
		if diff := cmp.Diff(encoded(raw), header); diff != "" {
			t.Errorf("the header of %s (-want +got):\n%s", raw, diff)
		}
		got, err := DecodeSettleResponse(header)
		noError(t, "decode", err)
		if diff := cmp.Diff(response, got); diff != "" {
			t.Errorf("%s after a round trip (-want +got):\n%s", raw, diff)
		}
	}
	if _, err := DecodeSettleResponse("-_-_"); err == nil {
		t.Error("base64url is taken, want an error")
	}
}

func TestPaymentPayloadRoundTrip(t *testing.T) {
	t.Parallel()
	offer := knownNetwork(t, NetworkBaseSepolia).Requirements(5000, vectorPayee, 60)
	want, err := Sign(t.Context(), NewKeySigner(vectorKey(t)), offer, &ResourceInfo{URL: "https://host.example/x"},
		map[string]jsontext.Value{"payment-identifier": jsontext.Value(`{"info":{"id":"0123456789abcdef"}}`)}, time.Now())
	noError(t, "sign", err)
	header, err := EncodePaymentPayload(want)
	noError(t, "encode", err)
	got, err := DecodePaymentPayload(header)
	noError(t, "decode", err)
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(PaymentPayload{})); diff != "" {
		t.Errorf("after a round trip (-want +got):\n%s", diff)
	}
	if encoded(string(got.Raw())) != header {
		t.Error("Raw is not what was received")
	}
	if want.Raw() != nil {
		t.Error("a payment that was built here claims to have been received")
	}
}

func TestDecodeHeaderRefusals(t *testing.T) {
	t.Parallel()
	header := encoded(goodPayload)
	if _, err := DecodePaymentPayload(header); err != nil {
		t.Fatalf("the good header is rejected: %v", err)
	}
	padded := encoded(`{"a":1}`) // ends in =
	for name, bad := range map[string]string{
		"nothing":                  "",
		"base64url":                base64.URLEncoding.EncodeToString([]byte(goodPayload + "\xff\xff\xff")),
		"no padding":               strings.TrimRight(padded, "="),
		"padding with loose bits":  "e31=",
		"a space in front":         " " + header,
		"a line break inside":      header[:8] + "\r\n" + header[8:],
		"a line break at the end":  header + "\n",
		"two payments":             header + "," + header,
		"a payload that is not it": encoded("hello"),
		"bare JSON":                goodPayload,
		"a bearer token":           "Bearer " + header,
		"encoded twice":            encoded(header),
		"JSON and more":            encoded(goodPayload + "{}"),
		"JSON cut off":             encoded(goodPayload[:len(goodPayload)-2]),
		"a comment":                encoded("/* pay */" + goodPayload),
		"a byte order mark":        encoded("\ufeff" + goodPayload),
		"invalid UTF-8":            encoded(strings.Replace(goodPayload, "exact", "ex\xffct", 1)),
		"a lone surrogate":         encoded(strings.Replace(goodPayload, "exact", `ex\ud800ct`, 1)),
		"one byte too long":        strings.Repeat("A", maxHeaderBytes+1),
		"a megabyte":               strings.Repeat("A", 1<<20),
		"deep JSON":                encoded(strings.Repeat("[", 12000)),
		"deep JSON in extensions":  encoded(`{"x402Version":2,"extensions":{"a":` + strings.Repeat("[", 12000) + `}}`),
	} {
		_, err := DecodePaymentPayload(bad)
		if form, ok := errors.AsType[*FormError](err); !ok || form.Reason == "" || form.Message == "" {
			t.Errorf("%s: decoding says %#v, want a *FormError", name, err)
		}
	}
}

func BenchmarkDecodePaymentPayload(b *testing.B) {
	header := encoded(goodPayload)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodePaymentPayload(header); err != nil {
			b.Fatal(err)
		}
	}
}
