package store

import "errors"

// The maximum size of a page of messages; one message always fits. The database limits a page by the bytes of its
// content, which it knows without reading the content, so that no more is loaded. JSON encodes some characters in six
// bytes, so the loaded messages are limited again by the size of their JSON, with that of their reactions. Sixteen messages
// always fit: a message has at most 96 KiB of content and 32 KiB of reactions as JSON.
const (
	maxPageContent = LongPage
	maxPageJSON    = 2 << 20
)

// How many bytes of content a page may have. Most pages are short. A long one keeps a processor busy and takes some megabytes of memory, so
// a server reads few of them at the same time: a call first asks for a short page, and waits for its turn if it gets ErrLongPage. A page is
// also long if it has more than fewReactions or fewMembers, or if more than fewKeys are to be read to find its messages.
const (
	ShortPage = 64 << 10
	LongPage  = 1 << 20

	shortPageJSON = 4 * ShortPage // with reactions
)

// ErrLongPage means that a page is not short.
var ErrLongPage = errors.New("the page is long")

// pageBudget is the size of a page so far.
type pageBudget struct{ messages, content, json int }

// take adds a message with its reactions, or nil, and reports whether it fits on the page.
func (r *pageBudget) take(content string, reactions *Reactions) bool {
	r.messages++
	r.content += len(content)
	r.json += jsonLength(content) + reactions.jsonLength()
	return r.messages == 1 || r.content <= maxPageContent && r.json <= maxPageJSON
}

// fitting returns how many of the messages, from the first one, fit on a page.
func fitting(messages int, content func(i int) string) int {
	var budget pageBudget
	for i := range messages {
		if !budget.take(content(i), nil) {
			return i
		}
	}
	return messages
}

// jsonLength returns how many bytes encoding/json writes for a valid text, without quotation marks.
func jsonLength(text string) int {
	length := len(text)
	for i := range len(text) {
		switch c := text[i]; {
		case c == '"' || c == '\\' || c == '\n' || c == '\r' || c == '\t' || c == '\b' || c == '\f':
			length++
		case c < ' ' || c == '<' || c == '>' || c == '&':
			length += 5
		case c == 0xE2 && i+2 < len(text) && text[i+1] == 0x80 && text[i+2]&^1 == 0xA8: // U+2028, U+2029
			length += 3
		}
	}
	return length
}
