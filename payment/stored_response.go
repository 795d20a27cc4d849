package payment

import (
	"bytes"

	"github.com/klauspost/compress/s2"

	"github.com/parley-chat/parley/store"
)

// compressFrom is from how many bytes on a stored response is compressed.
const compressFrom = 512

// compressed begins a stored response that is; JSON never begins so.
const compressed = 0

// maxStoredRead is how long the response of a read may be to be stored. A longer one is read again.
const maxStoredRead = 64 << 10

// encodeStored returns a response as the ledger stores it. That of a read gets longer than store.ShortResponse, so that the ledger erases
// it after an hour: it shows what others wrote.
func encodeStored(response []byte, read bool) []byte {
	if len(response) >= compressFrom {
		small := make([]byte, 1+s2.MaxEncodedLen(len(response)))
		small[0] = compressed
		small = small[:1+len(s2.Encode(small[1:], response))]
		if !read || len(small) > store.ShortResponse {
			return small
		}
	}
	if missing := store.ShortResponse + 1 - len(response); read && missing > 0 {
		return append(bytes.Clone(response), bytes.Repeat([]byte{' '}, missing)...)
	}
	return response
}

// decodeStored undoes encodeStored.
func decodeStored(stored []byte) ([]byte, error) {
	if len(stored) > 0 && stored[0] == compressed {
		return s2.Decode(nil, stored[1:])
	}
	return bytes.TrimRight(stored, " "), nil
}
