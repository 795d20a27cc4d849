// Package discovery makes what a server publishes about itself: the contract with the operator's facts, llms.txt, the agent
// skill, the agent card and the bazaar entries. All of it is made from the contract, so that no document can say something
// else.
package discovery

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"

	"github.com/getkin/kin-openapi/openapi3"

	parley "github.com/parley-chat/parley"
	"github.com/parley-chat/parley/x402"
)

// Config is what the documents say of the operator.
type Config struct {
	BaseURL        string // how callers reach the server
	FacilitatorURL string
	LegacyX402     bool // also publish /.well-known/x402, which only old crawlers read and new ones warn about
}

// Operation is one operation of the contract. Price is in atomic units; 0: free.
type Operation struct {
	Method, Path string
	Described    *openapi3.Operation
	Price        uint64
	Requirements []x402.PaymentRequirements
}

// Document is a free document, made once at start and cacheable. It serves itself.
type Document struct {
	Path              string
	contentType, etag string
	content           []byte
}

// Documents makes all documents.
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
