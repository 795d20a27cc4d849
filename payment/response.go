package payment

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/klauspost/compress/s2"
)

// The ledger keeps each paid response so that a repetition gets it again. It is sealed with a key made of the request, which
// the ledger forgets when it stores the response: whoever reads the table alone has to know what was asked, with the TAN if
// the response is an API key. Who may have a response again is decided in engine.go, not here.
func responseCipher(request []byte) (cipher.AEAD, error) {
	mixed := sha256.New()
	_, _ = mixed.Write([]byte("parley response\x00"))
	_, _ = mixed.Write(request)
	block, err := aes.NewCipher(mixed.Sum(nil))
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// compressFrom is from how many bytes on a response is compressed before it is sealed: pages of messages become a third.
const compressFrom = 512

// compressed begins a response that is; JSON never begins so.
const compressed = 0

// maxStoredRead is how long the response of a read may be to be stored. A longer one is read again.
const maxStoredRead = 64 << 10

func sealResponse(request, response []byte) ([]byte, error) {
	seal, err := responseCipher(request)
	if err != nil {
		return nil, fmt.Errorf("seal response: %w", err)
	}
	if len(response) >= compressFrom {
		small := make([]byte, 1+s2.MaxEncodedLen(len(response)))
		small[0] = compressed
		response = small[:1+len(s2.Encode(small[1:], response))]
	}
	sealed := make([]byte, seal.NonceSize(), seal.NonceSize()+len(response)+seal.Overhead())
	_, _ = rand.Read(sealed)
	return seal.Seal(sealed, sealed, response, nil), nil
}

func openResponse(request, sealed []byte) ([]byte, error) {
	seal, err := responseCipher(request)
	if err != nil {
		return nil, fmt.Errorf("open response: %w", err)
	}
	if len(sealed) < seal.NonceSize() {
		return nil, errors.New("open response: too short")
	}
	response, err := seal.Open(nil, sealed[:seal.NonceSize()], sealed[seal.NonceSize():], nil)
	if err != nil {
		return nil, fmt.Errorf("open response: %w", err)
	}
	if len(response) > 0 && response[0] == compressed {
		if response, err = s2.Decode(nil, response[1:]); err != nil {
			return nil, fmt.Errorf("open response: %w", err)
		}
	}
	return response, nil
}
