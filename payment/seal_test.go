package payment

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/parley-chat/parley/store"
)

// TestResponseKeys: the first key seals and all keys open, only for the same payment and request. A key that is not there is told from a
// response that was changed.
func TestResponseKeys(t *testing.T) {
	t.Parallel()
	old, fresh := ResponseKey{1}, ResponseKey{2}
	id, request := uuid.New(), []byte(`{}`)
	for _, response := range []string{"", `{"a":1}`, strings.Repeat("long ", 1000)} {
		sealed, err := newResponseKeys([]ResponseKey{old}).seal(id, request, []byte(response), false)
		if err != nil {
			t.Fatal(err)
		}
		for _, keys := range [][]ResponseKey{{old}, {fresh, old}} {
			if opened, err := newResponseKeys(keys).open(id, request, sealed); err != nil || string(opened) != response {
				t.Errorf("with %d keys %q is opened as %q, %v", len(keys), response, opened, err)
			}
		}
		for name, keys := range map[string][]ResponseKey{"another key": {fresh}, "no key": nil} {
			if _, err := newResponseKeys(keys).open(id, request, sealed); !errors.Is(err, errNoResponseKey) {
				t.Errorf("with %s: %v", name, err)
			}
		}
		changed := bytes.Clone(sealed)
		changed[len(changed)-1] ^= 1
		for name, open := range map[string]func(responseKeys) ([]byte, error){
			"of another payment": func(k responseKeys) ([]byte, error) { return k.open(uuid.New(), request, sealed) },
			"of another request": func(k responseKeys) ([]byte, error) { return k.open(id, []byte(`{"a":1}`), sealed) },
			"changed":            func(k responseKeys) ([]byte, error) { return k.open(id, request, changed) },
			"cut":                func(k responseKeys) ([]byte, error) { return k.open(id, request, sealed[:keyNameSize+3]) },
		} {
			if _, err := open(newResponseKeys([]ResponseKey{old})); err == nil || errors.Is(err, errNoResponseKey) {
				t.Errorf("a response %s: %v", name, err)
			}
		}
		if _, err := newResponseKeys([]ResponseKey{old}).open(id, request, nil); !errors.Is(err, errNoResponseKey) {
			t.Errorf("nothing is opened with %v", err)
		}
	}
	rotated, err := newResponseKeys([]ResponseKey{fresh, old}).seal(id, request, []byte("new"), false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := newResponseKeys([]ResponseKey{old}).open(id, request, rotated); !errors.Is(err, errNoResponseKey) {
		t.Errorf("the former key seals: %v", err)
	}
}

// TestReadsAreNotKept: the stored response of a read, of any length and content, is one that the ledger erases after an hour, and opens as
// it was. A short one of another operation is kept.
func TestReadsAreNotKept(t *testing.T) {
	t.Parallel()
	keys, id := newResponseKeys([]ResponseKey{{1}}), uuid.New()
	for length := range 2000 {
		for _, text := range []string{strings.Repeat("a", length), strings.Repeat("abcdefg", length)[:length]} {
			response := `{"` + text + `"}`
			sealed, err := keys.seal(id, nil, []byte(response), true)
			if err != nil || len(sealed) <= store.ShortResponse {
				t.Fatalf("a response of %d bytes is stored in %d, %v", len(response), len(sealed), err)
			}
			if opened, err := keys.open(id, nil, sealed); err != nil || string(opened) != response {
				t.Fatalf("a response of %d bytes is opened as %q, %v", len(response), opened, err)
			}
		}
	}
	if sealed, err := keys.seal(id, nil, make([]byte, 480), false); err != nil || len(sealed) > store.ShortResponse {
		t.Errorf("480 bytes of another operation are stored in %d, %v", len(sealed), err)
	}
}
