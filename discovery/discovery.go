// Package discovery makes the documents that a server publishes about itself: the contract with the operator's
// configuration, llms.txt, the agent skill, the agent card and the bazaar entries. All are derived from the contract.
package discovery

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"

	"github.com/getkin/kin-openapi/openapi3"

	parley "github.com/parley-chat/parley"
	"github.com/parley-chat/parley/x402"
)

// Config is the operator's configuration.
type Config struct {
	BaseURL        string // URL of the server
	FacilitatorURL string
	LegacyX402     bool // also publish /.well-known/x402, for old crawlers; new ones warn about it
}

// Operation is an operation of the contract. Price is in atomic units; 0 means free.
type Operation struct {
	Method, Path string
	Described    *openapi3.Operation
	Price        uint64
	Requirements []x402.PaymentRequirements
}

// Document is a free, cacheable document. It is made once, at start.
type Document struct {
	Path              string
	contentType, etag string
	content           []byte
}

// Documents returns all documents.
func Documents(document *openapi3.T, config Config, operations []Operation) ([]Document, error) {
	contract, err := contractDocuments(parley.Contract, config, operations)
	if err != nil {
		return nil, err
	}
	others, err := agentDocuments(document, config, operations)
	if err != nil {
		return nil, err
	}
	return append(contract, others...), nil
}

func newDocument(path, contentType string, content []byte) Document {
	sum := sha256.Sum256(content)
	return Document{Path: path, contentType: contentType, etag: `"` + hex.EncodeToString(sum[:8]) + `"`, content: content}
}

func (d Document) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("ETag", d.etag)
	header.Set("Cache-Control", "public, max-age=300")
	if r.Header.Get("If-None-Match") == d.etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	header.Set("Content-Type", d.contentType)
	_, _ = w.Write(d.content)
}
