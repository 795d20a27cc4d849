package server

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
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

func sealAnswer(secret string, request, answer []byte) ([]byte, error) {
	seal, err := answerCipher(secret, request)
	if err != nil {
		return nil, fmt.Errorf("seal answer: %w", err)
	}
	nonce := make([]byte, seal.NonceSize())
	_, _ = rand.Read(nonce)
	return seal.Seal(nonce, nonce, answer, nil), nil
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
	return answer, nil
}
