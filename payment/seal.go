package payment

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/klauspost/compress/s2"

	"github.com/parley-chat/parley/store"
)

// ResponseKey is a secret of the servers that is not in the database. It seals stored responses, and what an open payment needs to be
// completed, and it is part of the hashes of TANs.
type ResponseKey [32]byte

// The ledger keeps each paid response so that a repetition gets it again. The request alone must not open it: many requests are
// constant. The database alone must not open it either: it has replicas and backups. So the key of a response is made of a
// ResponseKey, of the payment, and of the request, which the ledger forgets when it stores the response. Who may have a response
// again is decided in engine.go, not here.

// responseKeys seal with the first key and open with all of them.
type responseKeys []responseKey

type responseKey struct {
	name   []byte // begins each response that the key sealed
	secret ResponseKey
}

// What a key seals.
const (
	ofResponse = "parley response"
	ofRequest  = "parley request "
	ofPayload  = "parley payload "
)

// keyNameSize is enough to tell the few keys of a file apart.
const keyNameSize = 4

// errNoResponseKey means that none of the keys has sealed the response.
var errNoResponseKey = errors.New("the response key is not there")

func newResponseKeys(secrets []ResponseKey) (keys responseKeys) {
	for _, secret := range secrets {
		key := responseKey{secret: secret}
		key.name = key.derive("parley response key name")[:keyNameSize]
		keys = append(keys, key)
	}
	return keys
}

// derive returns 32 bytes that depend on the secret and the parts, of which all but the last one have fixed lengths.
func (k responseKey) derive(parts ...string) []byte {
	mixed := hmac.New(sha256.New, k.secret[:])
	for _, part := range parts {
		_, _ = mixed.Write([]byte(part))
	}
	return mixed.Sum(nil)
}

// cipher returns the cipher of a purpose: "parley response" with the request, or "parley request " and "parley payload " with nothing.
func (k responseKey) cipher(purpose string, payment uuid.UUID, request []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(k.derive(purpose+"\x00", string(payment[:]), string(request)))
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

// seal encrypts a response. That of a read gets longer than store.ShortResponse, so that the ledger erases it after an hour: it shows
// what others wrote.
func (k responseKeys) seal(payment uuid.UUID, request, response []byte, read bool) ([]byte, error) {
	if len(k) == 0 {
		return nil, fmt.Errorf("seal response: %w", errNoResponseKey)
	}
	seal, err := k[0].cipher(ofResponse, payment, request)
	if err != nil {
		return nil, fmt.Errorf("seal response: %w", err)
	}
	if len(response) >= compressFrom {
		small := make([]byte, 1+s2.MaxEncodedLen(len(response)))
		small[0] = compressed
		small = small[:1+len(s2.Encode(small[1:], response))]
		if !read || len(small) >= store.ShortResponse {
			response = small
		}
	}
	if missing := store.ShortResponse - len(response); read && missing > 0 {
		response = append(bytes.Clone(response), make([]byte, missing)...)
	}
	return k[0].encrypt(seal, response), nil
}

// encrypt returns the name of the key, a nonce, and the ciphertext.
func (k responseKey) encrypt(seal cipher.AEAD, data []byte) []byte {
	sealed := make([]byte, keyNameSize+seal.NonceSize(), keyNameSize+seal.NonceSize()+len(data)+seal.Overhead())
	copy(sealed, k.name)
	nonce := sealed[keyNameSize:]
	_, _ = rand.Read(nonce)
	return seal.Seal(sealed, nonce, data, nil)
}

// sealOpen encrypts what recovery needs of a payment that is about to begin. Its payment identifier proves possession, and its request can
// hold a TAN.
func (k responseKeys) sealOpen(row *store.Payment) error {
	if len(k) == 0 {
		return fmt.Errorf("seal payment: %w", errNoResponseKey)
	}
	for purpose, data := range map[string]*[]byte{ofRequest: &row.Request, ofPayload: &row.Payload} {
		seal, err := k[0].cipher(purpose, row.ID, nil)
		if err != nil {
			return fmt.Errorf("seal payment: %w", err)
		}
		*data = k[0].encrypt(seal, *data)
	}
	return nil
}

// openRow undoes sealOpen.
func (k responseKeys) openRow(row *store.Payment) (request, payload []byte, err error) {
	for _, key := range k {
		if bytes.HasPrefix(row.Request, key.name) {
			request, err = key.decrypt(ofRequest, row.ID, nil, row.Request[keyNameSize:])
			if err == nil {
				payload, err = key.decrypt(ofPayload, row.ID, nil, bytes.TrimPrefix(row.Payload, key.name))
			}
			return request, payload, err
		}
	}
	return nil, nil, errNoResponseKey
}

// fingerprints returns the keyed fingerprint of a request that can have a TAN, and the same with former keys. Without a key whoever reads
// the database could find the TAN by trying. It begins with the name of the key.
func (k responseKeys) fingerprints(plain [sha256.Size]byte) (current [sha256.Size]byte, former [][sha256.Size]byte) {
	for i, key := range k {
		keyed := [sha256.Size]byte(key.derive("parley fingerprint", string(plain[:])))
		copy(keyed[:], key.name)
		if i == 0 {
			current = keyed
		} else {
			former = append(former, keyed)
		}
	}
	return current, former
}

// Sealed reports whether one of the keys sealed a stored response.
func Sealed(response []byte, by []ResponseKey) bool { return newResponseKeys(by).known(response) }

// known reports whether one of the keys made the fingerprint, or sealed the response.
func (k responseKeys) known(fingerprint []byte) bool {
	return slices.ContainsFunc(k, func(key responseKey) bool { return bytes.HasPrefix(fingerprint, key.name) })
}

// HashTAN returns hashes of a TAN, one for each key. The first one is stored. Without a key whoever reads the database could find a TAN by
// trying: it has 40 bits.
func (e *Engine) HashTAN(username, tan string) [][]byte {
	hashes := make([][]byte, len(e.responseKeys))
	for i, key := range e.responseKeys {
		hashes[i] = key.derive("parley TAN\x00", username, "\x00", tan)
	}
	return hashes
}

// open returns errNoResponseKey if the key that sealed the response is not there any more.
func (k responseKeys) open(payment uuid.UUID, request, sealed []byte) ([]byte, error) {
	for _, key := range k {
		if rest, ok := bytes.CutPrefix(sealed, key.name); ok {
			response, err := key.decrypt(ofResponse, payment, request, rest)
			if err != nil {
				return nil, fmt.Errorf("open response: %w", err)
			}
			if len(response) > 0 && response[0] == compressed {
				return s2.Decode(nil, response[1:])
			}
			return bytes.TrimRight(response, "\x00"), nil // JSON has no zero bytes
		}
	}
	return nil, errNoResponseKey
}

func (k responseKey) decrypt(purpose string, payment uuid.UUID, request, sealed []byte) ([]byte, error) {
	seal, err := k.cipher(purpose, payment, request)
	if err != nil {
		return nil, err
	}
	if len(sealed) < seal.NonceSize() {
		return nil, errors.New("too short")
	}
	return seal.Open(nil, sealed[:seal.NonceSize()], sealed[seal.NonceSize():], nil)
}
