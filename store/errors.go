package store

import (
	"context"
	"database/sql/driver"
	"errors"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// Kind says what sort of refusal it is; the server gives each kind its HTTP status.
type Kind int

// The kinds of refusal.
const (
	Invalid      Kind = iota // the request makes no sense, whatever the state (400)
	Forbidden                // the caller may not (403)
	NotFound                 // there is no such thing (404)
	Conflict                 // not in this state (409)
	Gone                     // it was deleted (410)
	Unauthorized             // the caller is not who it was when it asked (401)
)

// Refusal is a rule saying no: a response for the caller, not a fault of ours. Code is one of the contract's error
// codes, Message a sentence that says what to do.
type Refusal struct {
	Kind    Kind
	Code    string
	Message string
}

func (r *Refusal) Error() string { return r.Message }

// Every refusal, once.
var (
	ErrNothingToSelf     = refuse(Invalid, "invalid_request", "an agent cannot send messages to itself")
	ErrBlockSelf         = refuse(Invalid, "invalid_request", "an agent cannot block itself")
	ErrTransferToSelf    = refuse(Invalid, "invalid_request", "the caller is the admin already; name another agent")
	ErrTwoLists          = refuse(Invalid, "invalid_request", "an agent stands in two lists of this request; keep it in one")
	ErrNoWord            = refuse(Invalid, "invalid_request", "the query needs a word; it is only white space")
	ErrPatternTooLarge   = refuse(Invalid, "invalid_request", "the query is too large a pattern; use fewer or smaller repetitions, or look for a word")
	ErrNotAnEmoji        = refuse(Invalid, "invalid_request", "a reaction is exactly one emoji")
	ErrSuccessorRequired = refuse(Invalid, "successor_required", "the admin must name a successor before it leaves: send successor_agent_id, a current member other than the caller")

	ErrInvalidTAN    = refuse(Forbidden, "invalid_tan", "the TAN is wrong, expired, used up or of another username; request a new one with POST /register/request_account")
	ErrNotMember     = refuse(Forbidden, "not_member", "only members of this chat may do this")
	ErrNotSubscriber = refuse(Forbidden, "not_subscriber", "only subscribers of this channel and its admin may do this; subscribe with POST /channel/subscribe")
	ErrNotAdmin      = refuse(Forbidden, "not_admin", "only the admin may do this")
	ErrBanned        = refuse(Forbidden, "banned", "the agent is banned there; the admin can lift the ban with unban_agent_ids")
	ErrBlocked       = refuse(Forbidden, "blocked", "that agent has blocked the caller")
	ErrBlocking      = refuse(Forbidden, "blocked", "the caller has blocked that agent; unblock it first with POST /agent/unblock")

	ErrSuccessorNotMember = refuse(Forbidden, "not_member", "the new admin must be a member of the group chat; add it first with POST /chat/group/edit")

	ErrAgentNotFound   = refuse(NotFound, "agent_not_found", "there is no such agent")
	ErrChatNotFound    = refuse(NotFound, "chat_not_found", "there is no chat of this kind with this id")
	ErrChannelNotFound = refuse(NotFound, "channel_not_found", "there is no channel with this id")
	ErrMessageNotFound = refuse(NotFound, "message_not_found", "there is no such message there")

	ErrUsernameTaken     = refuse(Conflict, "username_taken", "another agent has this username; choose another one")
	ErrUsernameReserved  = refuse(Conflict, "username_reserved", "somebody is registering this username; choose another one or try again in ten minutes")
	ErrPinLimit          = refuse(Conflict, "pin_limit", "five messages are pinned already; take one away with unpin_message_ids of POST /chat/group/edit")
	ErrMemberLimit       = refuse(Conflict, "member_limit", "a group chat holds at most 1,000 members")
	ErrAlreadyMember     = refuse(Conflict, "already_member", "the caller is a member already")
	ErrAdminMustTransfer = refuse(Conflict, "admin_must_transfer", "the admin cannot be removed or banned; transfer first")
	ErrAdminAlone        = refuse(Conflict, "admin_alone", "the admin is the only member; delete the group chat instead with POST /chat/group/delete")

	ErrKeyReplaced = refuse(Unauthorized, "invalid_api_key", "another request has just replaced this API key; send the new one")

	ErrDeleted = refuse(Gone, "deleted", "this group chat or channel was deleted")
)

// Refusals lists the catalogue, so that a test can hold it against the contract's error codes.
var Refusals []*Refusal

func refuse(kind Kind, code, message string) *Refusal {
	refusal := &Refusal{kind, code, message}
	Refusals = append(Refusals, refusal)
	return refusal
}

// Unavailable tells whether err means that the database is away or too busy, so that trying again later makes sense.
func Unavailable(err error) bool {
	var connecting *pgconn.ConnectError
	var network net.Error
	var postgres *pgconn.PgError
	switch {
	case errors.As(err, &connecting), errors.As(err, &network):
		return true
	case errors.As(err, &postgres):
		// 08 connection, 40 rolled back (a deadlock), 53 out of resources, 57P the server is shutting down or starting.
		for _, class := range []string{"08", "40", "53", "57P"} {
			if strings.HasPrefix(postgres.Code, class) {
				return true
			}
		}
		return false
	}
	return errors.Is(err, driver.ErrBadConn) || errors.Is(err, context.DeadlineExceeded) || pgconn.SafeToRetry(err) ||
		pgconn.Timeout(err) || (err != nil && strings.Contains(err.Error(), "conn closed"))
}
