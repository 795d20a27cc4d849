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

// The ledger keeps each paid answer so that a repetition gets it again. Some answers hold secrets (an API key, a TAN,
// messages), so they are sealed: the key is made of the request and of the payment's signature, or its identifier if it has
// one: the ledger has none of them in the open when it stores the answer, and only the payer can bring them again.
// Whoever reads the table alone reads nothing.
func answerCipher(secret string, request []byte) (cipher.AEAD, error) {
	mixed := sha256.New()
	fmt.Fprintf(mixed, "parley answer\x00%s\x00", secret)
	mixed.Write(request)
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

func sealAnswer(secret string, request, answer []byte) ([]byte, error) {
	seal, err := answerCipher(secret, request)
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

func openAnswer(secret string, request, sealed []byte) ([]byte, error) {
	seal, err := answerCipher(secret, request)
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
