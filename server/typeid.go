package server

import (
	"encoding/base32"
	"errors"
	"strings"

	"github.com/google/uuid"

	"github.com/parley-chat/parley/store"
)

// Ids are TypeIDs (github.com/jetify-com/typeid, spec 0.3): a prefix for the kind, and a UUIDv7 in 26 characters of lower-case Crockford
// base32. The database stores the UUID. The codec is hand-written because the only release of the reference library is an alpha.
const (
	agentPrefix   = "agent_"
	chatPrefix    = "chat_"
	channelPrefix = "channel_"
	messagePrefix = "msg_"
)

const crockford = "0123456789abcdefghjkmnpqrstvwxyz"

var base32Crockford = base32.NewEncoding(crockford).WithPadding(base32.NoPadding)

// base32 encodes groups of five bytes. Four zero bytes before the UUID make 20 bytes, and so six zeros before its 26 characters.
const (
	leadingBytes = 4
	leadingZeros = "000000"
	idLength     = 26 // characters after the prefix
)

// formatID formats an id of a kind.
func formatID(prefix string, id uuid.UUID) string {
	var padded [leadingBytes + len(id)]byte
	var text [len(leadingZeros) + idLength]byte
	copy(padded[leadingBytes:], id[:])
	base32Crockford.Encode(text[:], padded[:])
	return prefix + string(text[len(leadingZeros):])
}

func formatIDs(prefix string, ids []uuid.UUID) []string {
	return each(ids, func(id uuid.UUID) string { return formatID(prefix, id) })
}

var errID = errors.New("not an id of this kind")

// parseID parses an id of that kind. It never fails for ids that passed validation.
func parseID(prefix, text string) (id uuid.UUID, err error) {
	suffix, ok := strings.CutPrefix(text, prefix)
	padded, err := base32Crockford.DecodeString(leadingZeros + suffix)
	if !ok || err != nil || len(suffix) != idLength || len(padded) != leadingBytes+len(id) || padded[leadingBytes-1] != 0 {
		return id, errID
	}
	return uuid.UUID(padded[leadingBytes:]), nil
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

// each converts the elements of a list.
func each[T, U any](list []T, convert func(T) U) []U {
	converted := make([]U, len(list))
	for i, one := range list {
		converted[i] = convert(one)
	}
	return converted
}

// inOneList returns ErrTwoLists if an id is in two of the lists. It may repeat within one list.
func inOneList(lists ...[]uuid.UUID) error {
	listOf := map[uuid.UUID]int{}
	for i, list := range lists {
		for _, id := range list {
			if other, known := listOf[id]; known && other != i {
				return store.ErrTwoLists.Because(id)
			}
			listOf[id] = i
		}
	}
	return nil
}

// conversationID parses the id of a conversation that has passed validation.
func conversationID(kind, text string) uuid.UUID { return idOf(sources[kind].prefix, text) }

func agentID(text string) uuid.UUID   { return idOf(agentPrefix, text) }
func messageID(text string) uuid.UUID { return idOf(messagePrefix, text) }

// optional converts a value that may be absent.
func optional[T, U any](value *T, convert func(T) U) *U {
	if value == nil {
		return nil
	}
	return new(convert(*value))
}

// AgentID formats the id of an agent.
func AgentID(id uuid.UUID) string { return formatID(agentPrefix, id) }

// ConversationID formats the id of a private chat, group chat or channel.
func ConversationID(kind string, id uuid.UUID) string { return formatID(sources[kind].prefix, id) }

// MessageID formats the id of a message.
func MessageID(id uuid.UUID) string { return formatID(messagePrefix, id) }

// ParseID parses an id of any kind, or a UUID.
func ParseID(text string) (uuid.UUID, error) {
	for _, prefix := range []string{agentPrefix, chatPrefix, channelPrefix, messagePrefix} {
		if strings.HasPrefix(text, prefix) {
			return parseID(prefix, text)
		}
	}
	return uuid.Parse(text)
}
