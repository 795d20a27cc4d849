// Package discovery makes the documents that a server publishes about itself: the contract with the operator's
// configuration, the front page, llms.txt, the agent skill, the agent card and the bazaar entries. All are derived from the contract.
package discovery

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/munnerz/goautoneg"

	parley "github.com/parley-chat/parley"
	"github.com/parley-chat/parley/x402"
)

// Config is the operator's configuration.
type Config struct {
	BaseURL        string // URL of the server
	FacilitatorURL string
}

// Operation is an operation of the contract. Price is in atomic units; 0 means free.
type Operation struct {
	Method, Path string
	Described    *openapi3.Operation
	Price        uint64
	Requirements []x402.PaymentRequirements
}

// Document is a free, cacheable document in one or several formats. It is made once: at start, or for its first request.
type Document struct {
	Path  string
	forms []form
	types []string        // the media types of forms
	later func() Document // makes the document for its first request
}

// form is a document in one format.
type form struct {
	contentType, etag string
	content           []byte
	headers           map[string]string
	gzipped           func() []byte // the content, compressed when it is asked for first
}

// Documents returns all documents. The contract is not written before it is asked for: that takes as long as the rest of a start.
func Documents(document *openapi3.T, config Config, operations []Operation) ([]Document, error) {
	documents, err := agentDocuments(document, config, operations)
	if err != nil {
		return nil, err
	}
	contract := sync.OnceValue(func() []Document {
		made, err := contractDocuments(parley.Contract, config, operations)
		if err != nil {
			panic(err) // the program's own contract is wrong
		}
		return made
	})
	return append(documents, Document{Path: "/openapi.yaml", later: func() Document { return contract()[0] }},
		Document{Path: "/openapi.json", later: func() Document { return contract()[1] }}), nil
}

// newDocument makes a document in one format; add adds others.
func newDocument(path, contentType string, content []byte) Document {
	d := Document{Path: path}
	d.add(contentType, content, nil)
	return d
}

// add adds a format with headers of its own. A request that accepts several equally gets the one that was added first.
func (d *Document) add(contentType string, content []byte, headers map[string]string) {
	sum := sha256.Sum256(content)
	mediaType, _, _ := strings.Cut(contentType, ";")
	d.types = append(d.types, mediaType)
	d.forms = append(d.forms, form{contentType, hex.EncodeToString(sum[:8]), content, headers, sync.OnceValue(func() []byte {
		return compress(content)
	})})
}

func compress(content []byte) []byte {
	var compressed bytes.Buffer
	writer, _ := gzip.NewWriterLevel(&compressed, gzip.BestCompression) // fails for other levels
	_, _ = writer.Write(content)                                        // a buffer takes all
	_ = writer.Close()
	return compressed.Bytes()
}

// negotiate returns the format that the request prefers, and the first one if it accepts none of them.
func (d Document) negotiate(r *http.Request) form {
	accept := strings.Join(r.Header.Values("Accept"), ",")
	return d.forms[max(0, slices.Index(d.types, goautoneg.Negotiate(accept, d.types)))]
}

// acceptsGzip reports whether the client names gzip among the codings that it accepts.
func acceptsGzip(r *http.Request) bool {
	for coding := range strings.SplitSeq(strings.Join(r.Header.Values("Accept-Encoding"), ","), ",") {
		name, weight, _ := strings.Cut(strings.ToLower(strings.ReplaceAll(coding, " ", "")), ";")
		if name == "gzip" {
			q, err := strconv.ParseFloat(strings.TrimPrefix(weight, "q="), 64)
			return err != nil || q > 0
		}
	}
	return false
}

// Serve writes the document, compressed if the client accepts that. It calls sends before it writes a body, with the number of bytes.
func (d Document) Serve(w http.ResponseWriter, r *http.Request, sends func(bytes int)) {
	if d.later != nil {
		d = d.later()
	}
	header := w.Header()
	chosen := d.forms[0]
	if len(d.forms) > 1 {
		header.Add("Vary", "Accept")
		chosen = d.negotiate(r)
	}
	header.Add("Vary", "Accept-Encoding")
	content, etag := chosen.content, chosen.etag
	compressed := acceptsGzip(r)
	if compressed {
		content, etag = chosen.gzipped(), etag+"-gzip"
	}
	etag = `"` + etag + `"`
	header.Set("ETag", etag)
	header.Set("Cache-Control", "public, max-age=300")
	if strings.TrimPrefix(r.Header.Get("If-None-Match"), "W/") == etag { // proxies that compress make it weak
		w.WriteHeader(http.StatusNotModified)
		return
	}
	for name, value := range chosen.headers {
		header.Set(name, value)
	}
	if compressed {
		header.Set("Content-Encoding", "gzip")
	}
	header.Set("Content-Type", chosen.contentType)
	header.Set("Content-Length", strconv.Itoa(len(content)))
	if r.Method != http.MethodHead {
		sends(len(content))
		_, _ = w.Write(content)
	}
}
