package store

// A page of messages holds at most this much content, and at least one message. The database cuts a page by the bytes of
// its content, which it knows without reading it, so that no more is ever loaded. JSON writes some characters in six
// bytes; so what was loaded is cut once more. Sixteen messages always fit.
const (
	maxPageContent = 1 << 20
	maxPageJSON    = 2 << 20
)

// pageRoom is what a page holds so far.
type pageRoom struct{ messages, content, json int }

// take adds a message and tells whether the page still holds it.
func (r *pageRoom) take(content string) bool {
	r.messages++
	r.content += len(content)
	r.json += jsonLength(content)
	return r.messages == 1 || r.content <= maxPageContent && r.json <= maxPageJSON
}

// fitting is how many of the messages, from the first on, fit on a page.
func fitting(messages int, content func(i int) string) int {
	var room pageRoom
	for i := range messages {
		if !room.take(content(i)) {
			return i
		}
	}
	return messages
}

// jsonLength is how many bytes encoding/json writes for a valid text, without quotation marks.
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
