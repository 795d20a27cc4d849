package server

import (
	"errors"
	"strings"

	"github.com/google/uuid"

	"github.com/parley-chat/parley/store"
)

// Ids are TypeIDs (github.com/jetify-com/typeid, spec 0.3): a prefix for the kind, and a UUIDv7 in 26 characters of
// lower-case Crockford base32. The database stores the UUID. The codec is hand-written because the only release of the
// reference library is an alpha.
const (
	agentPrefix   = "agent_"
	chatPrefix    = "chat_"
	channelPrefix = "channel_"
	messagePrefix = "msg_"
)

const crockford = "0123456789abcdefghjkmnpqrstvwxyz"

// formatID formats an id of that kind.
func formatID(prefix string, id uuid.UUID) string {
	var text [26]byte
	// 26 characters have 130 bits for 128: the first one holds three bits.
	var bits uint
	var buffer uint64
	position := len(text)
	for i := len(id) - 1; i >= 0; i-- {
		buffer |= uint64(id[i]) << bits
		bits += 8
		for bits >= 5 {
			position--
			text[position] = crockford[buffer&31]
			buffer >>= 5
			bits -= 5
		}
	}
	text[0] = crockford[buffer&31]
	return prefix + string(text[:])
}

var errID = errors.New("not an id of this kind")

// parseID parses an id of that kind. It never fails for ids that passed validation.
func parseID(prefix, text string) (uuid.UUID, error) {
	suffix, ok := strings.CutPrefix(text, prefix)
	if !ok || len(suffix) != 26 || suffix[0] > '7' {
		return uuid.UUID{}, errID
	}
	var id uuid.UUID
	var bits uint
	var buffer uint64
	position := len(id)
	for i := len(suffix) - 1; i >= 0; i-- {
		value := strings.IndexByte(crockford, suffix[i])
		if value < 0 {
			return uuid.UUID{}, errID
		}
		buffer |= uint64(value) << bits
		bits += 5
		if bits >= 8 && position > 0 {
			position--
			id[position] = byte(buffer)
			buffer >>= 8
			bits -= 8
		}
	}
	return id, nil
}

// newID returns a UUIDv7. Its time prefix keeps new rows close together in an index.
func newID() uuid.UUID { return uuid.Must(uuid.NewV7()) }

// idOf parses an id that has passed validation.
func idOf(prefix, text string) uuid.UUID {
	id, err := parseID(prefix, text)
	if err != nil {
		panic("an id passed validation that does not parse") // the pattern in the contract is wrong
	}
	return id
}

// idsOf parses ids that have passed validation.
func idsOf(prefix string, texts []string) []uuid.UUID {
	ids := make([]uuid.UUID, len(texts))
	for i, text := range texts {
		ids[i] = idOf(prefix, text)
	}
	return ids
}

// inOneList returns ErrTwoLists if an id is in two of the lists. It may repeat within one list.
func inOneList(lists ...[]uuid.UUID) error {
	listOf := map[uuid.UUID]int{}
	for i, list := range lists {
		for _, id := range list {
			if other, known := listOf[id]; known && other != i {
				return store.ErrTwoLists
			}
			listOf[id] = i
		}
	}
	return nil
}
