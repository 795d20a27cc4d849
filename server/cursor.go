package server

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"strings"

	"github.com/google/uuid"

	"github.com/parley-chat/parley/gen"
	"github.com/parley-chat/parley/store"
)

// A cursor is "c1" and, in base64url: the number of conversations, for each its id and the range of numbers that the page returned; the
// number of notices, and their numbers as differences; all as unsigned varints. A checksum over that and the id of the agent ends it, so
// that a damaged cursor, or that of another account, confirms nothing. It is no secret and no signature: whoever makes one up marks only
// messages to itself as read.
const (
	cursorVersion = "c1"
	cursorOfNone  = "c0" // of an empty page, for any agent
	checksumSize  = 4
)

// cursorOf returns the cursor of a page of the agent.
func cursorOf(agent uuid.UUID, through store.Through) gen.Cursor {
	if through.Empty() {
		return cursorOfNone
	}
	raw := binary.AppendUvarint(nil, uint64(len(through.Ranges)))
	for _, of := range through.Ranges {
		raw = append(raw, of.Conversation[:]...)
		raw = binary.AppendUvarint(raw, uint64(of.Oldest))           //nolint:gosec // positive
		raw = binary.AppendUvarint(raw, uint64(of.Newest-of.Oldest)) //nolint:gosec // not negative
	}
	raw = binary.AppendUvarint(raw, uint64(len(through.Notices)))
	last := int64(0)
	for _, number := range through.Notices {
		raw = binary.AppendUvarint(raw, uint64(number-last)) //nolint:gosec // ascending
		last = number
	}
	return cursorVersion + base64.RawURLEncoding.EncodeToString(append(raw, checksum(agent, raw)...))
}

func checksum(agent uuid.UUID, raw []byte) []byte {
	sum := sha256.Sum256(append(agent[:], raw...))
	return sum[:checksumSize]
}

// parseCursor returns what a cursor of the agent confirms, or ErrNotACursor.
func parseCursor(agent uuid.UUID, cursor gen.Cursor) (through store.Through, err error) {
	if cursor == cursorOfNone {
		return through, nil
	}
	encoded, ok := strings.CutPrefix(cursor, cursorVersion)
	raw, err := base64.RawURLEncoding.Strict().DecodeString(encoded)
	if !ok || err != nil || len(raw) < checksumSize {
		return through, store.ErrNotACursor
	}
	r := &cursorReader{rest: raw[:len(raw)-checksumSize]}
	if string(checksum(agent, r.rest)) != string(raw[len(r.rest):]) {
		return through, store.ErrNotACursor
	}
	seen := map[uuid.UUID]bool{}
	for range r.count(store.MaxPage) {
		of := store.ReadRange{Conversation: r.id(), Oldest: r.number()}
		of.Newest = of.Oldest + r.number()
		r.broken = r.broken || of.Oldest < 1 || seen[of.Conversation]
		seen[of.Conversation] = true
		through.Ranges = append(through.Ranges, of)
	}
	last := int64(0)
	for range r.count(store.MaxNotices) {
		last += r.number()
		r.broken = r.broken || last > maxNumber
		through.Notices = append(through.Notices, last)
	}
	if r.broken || len(r.rest) > 0 {
		return store.Through{}, store.ErrNotACursor
	}
	return through, nil
}

// cursorReader reads the parts of a cursor. It returns zeros when the cursor is broken.
type cursorReader struct {
	rest   []byte
	broken bool
}

// maxNumber bounds the numbers of messages and notices, so that sums of them do not overflow.
const maxNumber = 1 << 53

func (r *cursorReader) number() int64 {
	value, n := binary.Uvarint(r.rest)
	if n <= 0 || value > maxNumber {
		r.rest, r.broken = nil, true
		return 0
	}
	r.rest = r.rest[n:]
	return int64(value) //nolint:gosec // at most maxNumber
}

// count is a number of parts: no more than a page has.
func (r *cursorReader) count(most int64) int64 {
	count := r.number()
	if count > most {
		r.rest, r.broken = nil, true
		return 0
	}
	return count
}

func (r *cursorReader) id() (id uuid.UUID) {
	if len(r.rest) < len(id) {
		r.rest, r.broken = nil, true
		return id
	}
	r.rest = r.rest[copy(id[:], r.rest):]
	return id
}
