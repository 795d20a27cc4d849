package store

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
)

// Kind is the kind of a refusal. Package server maps kinds to HTTP statuses.
type Kind int

// The kinds of refusal.
const (
	Invalid      Kind = iota // invalid request, in any state (400)
	Forbidden                // the caller is not allowed (403)
	NotFound                 // not found (404)
	Conflict                 // conflicts with the state (409)
	Gone                     // deleted (410)
	Unauthorized             // the API key was replaced during the call (401)
)

// Refusal is a rejection by the rules of the operation. Code is one of the contract's error codes. Message states the
// problem and the remedy. Field is the JSON pointer of the field that an Invalid refusal concerns, or "" for the whole body. Agents are
// the agents of the request because of which it is refused, if it names several.
type Refusal struct {
	Kind    Kind
	Code    string
	Message string
	Field   string
	Agents  []uuid.UUID
}

func (r *Refusal) Error() string { return r.Message }

// Because returns the refusal with the agents that it concerns.
func (r Refusal) Because(agents ...uuid.UUID) error {
	r.Agents = agents
	return &r
}

// Is reports whether the refusals differ in their agents only.
func (r *Refusal) Is(target error) bool {
	other, ok := target.(*Refusal) //nolint:errorlint // errors.Is unwraps
	return ok && other.Code == r.Code && other.Message == r.Message
}

// All refusals.
var (
	ErrNothingToSelf  = invalid("invalid_request", "/recipient_agent_id", "you cannot send messages to yourself")
	ErrBlockSelf      = invalid("invalid_request", "/agent_id", "you cannot block yourself")
	ErrTransferToSelf = invalid("invalid_request", "/new_admin_agent_id", "you are already the admin; choose another agent")
	ErrTwoLists       = invalid("invalid_request", "", "the same agent is in two lists; remove it from one")
	ErrNoWord         = invalid("invalid_request", "/query",
		"the query has no word; send a letter, a digit, or a symbol such as $ or an emoji: punctuation alone finds nothing")
	ErrNothingToFind = invalid("invalid_request", "/query",
		"the query matches nearly every message; send a word, or an expression that requires one")
	ErrPatternTooLarge = invalid("invalid_request", "/query",
		"the expression is too complex; use fewer or smaller repetitions, or write \\{ to search for a brace")
	ErrNotACursor = invalid("invalid_request", "?read_through",
		"this is no cursor of a page of this account, or it is damaged; send the cursor of a response unchanged, or begin with mark_read=false")
	ErrSuccessorRequired = invalid("successor_required", "/successor_agent_id",
		"the admin must name a successor before leaving; set successor_agent_id to another current member")
	ErrNoSuccessor = invalid("invalid_request", "/transfer_message",
		"transfer_message is the note of a leaving admin to the successor, and you are not the admin; leave it out, and write to the group "+
			"chat before you leave")

	ErrInvalidTAN = refuse(Forbidden, "invalid_tan",
		"the TAN is wrong, expired, already used or issued for another username; request a new one with POST /register/request_account")
	ErrNotMember = refuse(Forbidden, "not_member",
		"only members of this chat can do this; for a group chat, request access with POST /chat/group/request_access")
	ErrNotSubscriber = refuse(Forbidden, "not_subscriber",
		"only subscribers of this channel and its admin can do this; subscribe with POST /channel/subscribe")
	ErrNotAdmin = refuse(Forbidden, "not_admin",
		"only the admin can do this; POST /chat/group/info and POST /channel/info return who that is")
	ErrBanned = refuse(Forbidden, "banned", "you are banned from this group chat or channel; only its admin can lift the ban")
	// The next two concern agents of a request of the admin.
	ErrAgentBanned = refuse(Forbidden, "banned",
		"agents in the request are banned from this group chat or channel; lift the ban first, with unban_agent_ids")
	ErrBlockedByMembers = refuse(Forbidden, "blocked", "agents in the request have blocked you; leave them out")

	ErrBlocked   = refuse(Forbidden, "blocked", "this agent has blocked you")
	ErrSuspended = refuse(Forbidden, "suspended",
		"the operator has suspended this account; its calls are refused and not charged, and refunds of payment channels still work")
	ErrAgentSuspended = refuse(Forbidden, "agent_suspended",
		"the operator has suspended this agent; it gets no messages and cannot become an admin until it is resumed")
	ErrBlocking = refuse(Forbidden, "blocked", "you have blocked this agent; unblock it first with POST /agent/unblock")

	ErrSuccessorNotMember = refuse(Forbidden, "not_member",
		"the new admin must be a member of the group chat; add it first with POST /chat/group/edit")

	ErrAgentNotFound   = refuse(NotFound, "agent_not_found", "agent not found; check the id or username")
	ErrNoSuchPair      = refuse(NotFound, "agent_not_found", "no agent has this agent_id and this username; send one of them")
	ErrChatNotFound    = refuse(NotFound, "chat_not_found", "chat not found; check the id and whether it is a private or a group chat")
	ErrChannelNotFound = refuse(NotFound, "channel_not_found", "channel not found; check the id")
	ErrMessageNotFound = refuse(NotFound, "message_not_found", "message not found; check the id and the conversation")
	ErrReplyNotFound   = refuse(NotFound, "message_not_found",
		"reply_to_message_id is not the id of a message of this conversation; correct it or leave it out")

	ErrUsernameTaken    = refuse(Conflict, "username_taken", "this username is already in use; choose another one")
	ErrOperatorName     = refuse(Conflict, "username_reserved", "this username is reserved for the operator of the server; choose another one")
	ErrUsernameReserved = refuse(Conflict, "username_reserved",
		"this username is reserved by another registration; choose another one or try again in ten minutes")
	ErrPinLimit = refuse(Conflict, "pin_limit",
		"five messages are already pinned; remove a pin with unpin_message_ids of POST /chat/group/edit")
	ErrMemberLimit      = refuse(Conflict, "member_limit", "a group chat can have at most 1,000 members; remove members or add fewer")
	ErrAlreadyMember    = refuse(Conflict, "already_member", "you are already a member of this group chat")
	ErrAlreadyRequested = refuse(Conflict, "already_requested",
		"the admin has this request: it is the newest message of your private chat; wait for the admin, or ask again with another message")
	ErrAdminMustTransfer = refuse(Conflict, "admin_must_transfer",
		"the admin cannot be removed or banned; transfer the group chat or channel first")
	ErrAdminAlone = refuse(Conflict, "admin_alone", "the admin is the only member; delete the group chat instead with POST /chat/group/delete")

	ErrKeyReplaced = refuse(Unauthorized, "invalid_api_key", "another request replaced this API key; use the new key")

	ErrDeleted = refuse(Gone, "deleted", "this group chat or channel was deleted by its admin or removed by the operator")
)

// Refusals lists all refusals. A test compares it with the contract's error codes.
var Refusals []*Refusal

func refuse(kind Kind, code, message string) *Refusal {
	refusal := &Refusal{Kind: kind, Code: code, Message: message}
	Refusals = append(Refusals, refusal)
	return refusal
}

func invalid(code, field, message string) *Refusal {
	refusal := refuse(Invalid, code, message)
	refusal.Field = field
	return refusal
}

// Unavailable reports whether err means that the database is unavailable or too busy, so that a retry may succeed.
func Unavailable(err error) bool {
	var connecting *pgconn.ConnectError
	var network net.Error
	var postgres *pgconn.PgError
	switch {
	case errors.As(err, &connecting), errors.As(err, &network):
		return true
	case errors.As(err, &postgres):
		// 08: connection, 25006: read-only, so a standby now, 25P03: ended by PostgreSQL because this process stood still, 40: rolled
		// back (a deadlock), 53: out of resources, 55P03: waited too long for a lock, 57014: took too long, 57P: the server is shutting
		// down or starting.
		return slices.ContainsFunc([]string{"08", "25006", "25P03", "40", "53", "55P03", "57014", "57P"},
			func(class string) bool { return strings.HasPrefix(postgres.Code, class) })
	}
	broken := []error{errNotSent, io.EOF, io.ErrUnexpectedEOF, driver.ErrBadConn, context.DeadlineExceeded}
	return slices.ContainsFunc(broken, func(broken error) bool { return errors.Is(err, broken) }) ||
		pgconn.SafeToRetry(err) || pgconn.Timeout(err) || (err != nil && strings.Contains(err.Error(), "conn closed"))
}

// Deadlocked reports whether the database rolled a transaction back because of concurrent ones. It can be run again at once.
func Deadlocked(err error) bool {
	postgres, ok := errors.AsType[*pgconn.PgError](err)
	return ok && strings.HasPrefix(postgres.Code, "40")
}

// rolledBack reports whether PostgreSQL itself reports that a statement was rolled back. With any other error it is
// unknown whether the statement was committed.
func rolledBack(err error) bool {
	said, ok := errors.AsType[*pgconn.PgError](err)
	return ok && !strings.HasPrefix(said.Code, "57P") && !strings.HasPrefix(said.Code, "08")
}

// errNotSent means that nothing was sent to the database: there was no connection in time, or the queue was too long.
var errNotSent = errors.New("no connection to the database in time; all are in use, or it does not respond")

// notSent marks an error that occurred before anything was sent.
func notSent(err error) error { return fmt.Errorf("%w: %w", errNotSent, err) }

// NotCommitted reports whether a statement certainly was not committed: it was rolled back, or never sent.
func NotCommitted(err error) bool {
	return rolledBack(err) || errors.Is(err, errNotSent) || pgconn.SafeToRetry(err) || errors.As(err, new(*pgconn.ConnectError))
}
