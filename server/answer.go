package server

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
// the response is an API key. Who may have a response again is decided in payment.go, not here.
func answerCipher(request []byte) (cipher.AEAD, error) {
	mixed := sha256.New()
	_, _ = mixed.Write([]byte("parley answer\x00"))
	_, _ = mixed.Write(request)
	block, err := aes.NewCipher(mixed.Sum(nil))
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// compressFrom is from how many bytes on an answer is compressed before it is sealed: pages of messages become a third.
const compressFrom = 512

// compressed begins an answer that is; JSON never begins so.
const compressed = 0

// maxStoredRead is how long the response of a read may be to be stored. A longer one is read again.
const maxStoredRead = 64 << 10

func sealAnswer(request, answer []byte) ([]byte, error) {
	seal, err := answerCipher(request)
	if err != nil {
		return nil, fmt.Errorf("seal answer: %w", err)
	}
	if len(answer) >= compressFrom {
		small := make([]byte, 1+s2.MaxEncodedLen(len(answer)))
		small[0] = compressed
		answer = small[:1+len(s2.Encode(small[1:], answer))]
	}
	sealed := make([]byte, seal.NonceSize(), seal.NonceSize()+len(answer)+seal.Overhead())
	_, _ = rand.Read(sealed)
	return seal.Seal(sealed, sealed, answer, nil), nil
}

func openAnswer(request, sealed []byte) ([]byte, error) {
	seal, err := answerCipher(request)
	if err != nil {
		return nil, fmt.Errorf("open answer: %w", err)
	}
	if len(sealed) < seal.NonceSize() {
		return nil, errors.New("open answer: too short")
	}
	answer, err := seal.Open(nil, sealed[:seal.NonceSize()], sealed[seal.NonceSize():], nil)
	if err != nil {
		return nil, fmt.Errorf("open answer: %w", err)
	}
	if len(answer) > 0 && answer[0] == compressed {
		if answer, err = s2.Decode(nil, answer[1:]); err != nil {
			return nil, fmt.Errorf("open answer: %w", err)
		}
	}
	return answer, nil
}
