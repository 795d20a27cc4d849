package store

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// Agent is an account. KeyHash is the SHA-256 of its API key; the key itself is not stored. Until the key is used for the first time,
// PreviousKeyHash is the hash of the key before, and KeyPayment the payment whose stored response holds the key.
type Agent struct {
	ID              uuid.UUID
	Username        string
	Description     string
	IsDiscoverable  bool
	KeyHash         []byte
	PreviousKeyHash []byte
	KeyPayment      *uuid.UUID
	CreatedAt       time.Time

	// Suspended is what a suspended agent is told, and otherwise nil. Only AgentByKey sets it.
	Suspended *string `gorm:"-"`
}

// HashKey returns the form in which an API key is stored. A plain hash is enough, because a key has 256 random bits.
func HashKey(key string) []byte {
	sum := sha256.Sum256([]byte(key))
	return sum[:]
}

// agent returns the agent with this value of a unique column, or ErrAgentNotFound.
func (r *Reader) agent(ctx context.Context, condition string, value any, lock ...clause.Expression) (*Agent, error) {
	found, err := gorm.G[Agent](r.db, lock...).Where(condition, value).Find(ctx)
	return firstOr(found, err, "load agent", ErrAgentNotFound)
}

// AgentByKey returns the agent with this API key, or ErrAgentNotFound. The record may be up to one second old. Use it
// to authenticate the caller, not to show the account.
func (s *Store) AgentByKey(ctx context.Context, key string) (*Agent, error) {
	hash := sha256.Sum256([]byte(key))
	agent, load := s.agents.get(hash)
	if agent != nil {
		return agent, nil
	}
	// On pgx, because almost every call starts with this query.
	found, err := read[Agent](ctx, s, `SELECT a.id, a.username, a.description, a.is_discoverable, a.key_hash, a.previous_key_hash,
		a.key_payment, a.created_at, s.message AS suspended FROM agents a LEFT JOIN suspensions s ON s.agent_id = a.id WHERE a.key_hash = @hash`,
		named{"hash": hash[:]})
	if agent, err = firstOr(found, err, "load agent", ErrAgentNotFound); err != nil {
		return nil, err
	}
	s.agents.put(hash, *agent, load)
	return agent, nil
}

// AgentByPreviousKey returns the agent whose last rotation replaced this API key, or ErrAgentNotFound.
func (s *Store) AgentByPreviousKey(ctx context.Context, key string) (*Agent, error) {
	return s.agent(ctx, "previous_key_hash = ?", HashKey(key))
}

// AgentByID returns the agent, or ErrAgentNotFound.
func (r *Reader) AgentByID(ctx context.Context, id uuid.UUID) (*Agent, error) {
	return r.agent(ctx, "id = ?", id)
}

// AgentByUsername returns the agent, or ErrAgentNotFound.
func (r *Reader) AgentByUsername(ctx context.Context, username string) (*Agent, error) {
	return r.agent(ctx, "username = ?", username)
}

// RotateKey gives the agent a new key, which the response to the payment holds. It returns ErrKeyReplaced if the caller's key is no longer
// the agent's: of two concurrent rotations, the second must not replace a key that its caller has never seen.
func (tx *Tx) RotateKey(ctx context.Context, agent *Agent, newHash []byte, payment uuid.UUID) error {
	rotated, err := gorm.G[Agent](tx.db).Where("id = ? AND key_hash = ?", agent.ID, agent.KeyHash).
		Updates(ctx, Agent{KeyHash: newHash, PreviousKeyHash: agent.KeyHash, KeyPayment: &payment})
	tx.changed = rotated > 0
	return changedOr(rotated, err, "rotate key", ErrKeyReplaced)
}

// KeyUsed erases what is kept until the first use of the agent's key: the response that holds the key.
func (s *Store) KeyUsed(ctx context.Context, agent *Agent) error {
	_, err := exec(ctx, s, `
		WITH used AS (UPDATE agents SET key_payment = NULL WHERE id = @agent AND key_hash = @key RETURNING id)
		UPDATE payments SET response = NULL WHERE id = @payment AND response IS NOT NULL AND EXISTS (SELECT FROM used)`,
		named{"agent": agent.ID, "key": agent.KeyHash, "payment": agent.KeyPayment})
	if err == nil {
		s.agents.clear()
	}
	return wrap("note the use of a key", err)
}

// Profile is an agent as another agent sees it.
type Profile struct {
	Agent
	BlocksViewer bool
}

// Profile returns the agent with this id, this username, or both if both are not nil, as the viewer sees it. It returns
// ErrAgentNotFound if there is none, or ErrNoSuchPair if both were given.
func (r *Reader) Profile(ctx context.Context, viewer uuid.UUID, id *uuid.UUID, username *string) (*Profile, error) {
	found, err := read[Profile](ctx, r, `SELECT a.id, a.username, a.description, a.is_discoverable, a.created_at,
		EXISTS (SELECT 1 FROM blocks b WHERE b.blocker_id = a.id AND b.blocked_id = @viewer) AS blocks_viewer
		FROM agents a WHERE a.id = coalesce(@id, (SELECT id FROM agents WHERE username = @username))
			AND a.username = coalesce(@username, a.username) AND NOT EXISTS (SELECT FROM suspensions s WHERE s.agent_id = a.id AND s.erased)`,
		named{"viewer": viewer, "id": id, "username": username})
	if id != nil && username != nil {
		return firstOr(found, err, "load profile", ErrNoSuchPair)
	}
	return firstOr(found, err, "load profile", ErrAgentNotFound)
}

// EditAgent changes the fields that are not nil.
func (tx *Tx) EditAgent(ctx context.Context, id uuid.UUID, description *string, isDiscoverable *bool) error {
	if isDiscoverable != nil {
		// A statement that waits for a suspension to be committed reads the suspensions as they were before. One that follows does not.
		if _, err := gorm.G[Agent](tx.db, forNoKeyUpdate).Select("id").Where("id = ?", id).Find(ctx); err != nil {
			return fmt.Errorf("lock agent: %w", err)
		}
		// What the agent paid for holds again when the suspension ends.
		if _, err := gorm.G[Suspension](tx.db).Where("agent_id = ? AND NOT erased", id).Update(ctx, "was_listed", *isDiscoverable); err != nil {
			return fmt.Errorf("edit suspended agent: %w", err)
		}
	}
	// A call that was paid before the suspension may ask to be listed later.
	_, err := exec(ctx, tx, `UPDATE agents SET description = coalesce(@description, description),
		is_discoverable = CASE WHEN CAST(@listed AS boolean) IS NULL THEN is_discoverable
			ELSE @listed AND NOT EXISTS (SELECT FROM suspensions s WHERE s.agent_id = @id) END WHERE id = @id`,
		named{"id": id, "description": description, "listed": isDiscoverable})
	tx.changed = true
	return wrap("edit agent", err)
}

// AgentConversation is a conversation of an agent, and the role of the agent in it.
type AgentConversation struct {
	ID           uuid.UUID
	Kind         string
	Administered bool // the agent is the admin of this channel
	Joined       bool // the agent is a member or subscriber
}

// conversationsOfAgent are the parts of statements that select all chats and channels of an agent that are not deleted, as own. With @most
// they look at so many memberships and channels of the admin at most.
const conversationsOfAgent = `ids AS MATERIALIZED (
		(SELECT conversation_id AS id FROM memberships WHERE agent_id = @agent AND status = 'member' LIMIT CAST(@most AS bigint))
		UNION
		(SELECT id FROM conversations WHERE admin_id = @agent AND kind = 'channel' AND deleted_at IS NULL LIMIT CAST(@most AS bigint))
	), own AS (
		SELECT c.id, c.kind, c.kind = 'channel' AND c.admin_id = @agent AS administered, m.agent_id IS NOT NULL AS joined,
			coalesce(m.joined_at, c.created_at) AS since
		FROM conversations c LEFT JOIN memberships m ON m.conversation_id = c.id AND m.agent_id = @agent AND m.status = 'member'
		WHERE c.deleted_at IS NULL AND c.id = ANY (ARRAY(SELECT id FROM ids))
	)`

// AgentConversations returns all chats and channels of an agent that are not deleted, oldest membership first.
func (r *Reader) AgentConversations(ctx context.Context, id uuid.UUID) ([]AgentConversation, error) {
	conversations, err := query[AgentConversation](ctx, r, `
		WITH `+conversationsOfAgent+` SELECT id, kind, administered, joined FROM own ORDER BY since, id`, named{"agent": id, "most": nil})
	return conversations, wrap("list conversations of agent", err)
}

// OwnAccount is an agent as it sees itself, with the ids of its chats and channels, oldest membership first, and the ids of the agents
// that it blocked last, newest first.
type OwnAccount struct {
	Agent
	Chats, Subscribed, Administered []uuid.UUID
	Blocked                         []uuid.UUID

	Many bool // more than fewConversations
}

// mostListed is of how many blocks and bans an agent sees whom they concern, as the contract says.
const mostListed = 200

// fewConversations is with how many chats and channels an account is loaded in a round trip with other reads.
const fewConversations = 200

const ownAccount = `
	WITH ` + conversationsOfAgent + `
	SELECT a.id, a.username, a.description, a.is_discoverable, a.created_at, o.chats, o.subscribed, o.administered,
		ARRAY(
			SELECT blocked_id FROM blocks WHERE blocker_id = a.id AND created_at > '-infinity' -- as its index says
			ORDER BY created_at DESC, blocked_id DESC LIMIT @listed
		) AS blocked,
		(SELECT count(*) FROM ids) > @few AS many
	FROM agents a CROSS JOIN (
		SELECT array_agg(id ORDER BY since, id) FILTER (WHERE kind <> 'channel') AS chats,
			array_agg(id ORDER BY since, id) FILTER (WHERE kind = 'channel' AND joined) AS subscribed,
			array_agg(id ORDER BY since, id) FILTER (WHERE administered) AS administered
		FROM own
	) o
	WHERE a.id = @agent AND NOT EXISTS (SELECT FROM suspensions s WHERE s.agent_id = a.id AND s.erased)`

// OwnAccount returns the account of an agent, or ErrAgentNotFound.
func (r *Reader) OwnAccount(ctx context.Context, id uuid.UUID) (*OwnAccount, error) {
	values := named{"agent": id, "few": fewConversations, "most": fewConversations + 1, "listed": mostListed}
	found, err := read[OwnAccount](ctx, r, ownAccount, values)
	if err == nil && len(found) > 0 && found[0].Many {
		values["most"] = nil
		found, err = query[OwnAccount](ctx, r, ownAccount, values)
	}
	return firstOr(found, err, "load account", ErrAgentNotFound)
}

// Block prevents contact: BlockerID has blocked BlockedID.
type Block struct {
	BlockerID uuid.UUID
	BlockedID uuid.UUID
	CreatedAt time.Time
}

// BlockAgent blocks an agent. If the agent is already blocked, nothing changes. It returns ErrBlockSelf or ErrAgentNotFound.
func (tx *Tx) BlockAgent(ctx context.Context, blocker, blocked uuid.UUID) error {
	if blocker == blocked {
		return ErrBlockSelf
	}
	if err := tx.CheckAgents(ctx, []uuid.UUID{blocked}); err != nil {
		return err
	}
	err := gorm.G[Block](tx.db, clause.OnConflict{DoNothing: true}).Create(ctx, &Block{BlockerID: blocker, BlockedID: blocked})
	if errors.Is(err, gorm.ErrForeignKeyViolated) {
		return ErrAgentNotFound
	}
	return wrap("block agent", err)
}

// UnblockAgent removes a block. If there is none, nothing changes. It returns ErrAgentNotFound.
func (tx *Tx) UnblockAgent(ctx context.Context, blocker, blocked uuid.UUID) error {
	ended, err := gorm.G[Block](tx.db).Where("blocker_id = ? AND blocked_id = ?", blocker, blocked).Delete(ctx)
	if err == nil && ended == 0 {
		return tx.CheckAgents(ctx, []uuid.UUID{blocked})
	}
	return wrap("unblock agent", err)
}

// CheckAgents returns ErrAgentNotFound because of the ids that belong to no agent, or to one that was erased.
func (r *Reader) CheckAgents(ctx context.Context, ids []uuid.UUID) error {
	if len(ids) == 0 {
		return nil
	}
	return refuseAgents(ctx, r, ErrAgentNotFound, `SELECT unnest(CAST(@ids AS uuid[])) AS id EXCEPT SELECT a.id FROM agents a
		WHERE a.id = ANY (@ids) AND NOT EXISTS (SELECT FROM suspensions s WHERE s.agent_id = a.id AND s.erased) ORDER BY id`,
		named{"ids": ids})
}

// reservedUsername is a former username, stored as HashKey. AgentID is nil if the agent that had it was erased.
type reservedUsername struct {
	UsernameHash []byte
	AgentID      *uuid.UUID
	CreatedAt    time.Time
}

func (reservedUsername) TableName() string { return "reserved_usernames" }

// FormerOwner returns the agent that had this username before it was renamed, or ErrAgentNotFound.
func (r *Reader) FormerOwner(ctx context.Context, username string) (*Agent, error) {
	return r.agent(ctx, "id = (SELECT agent_id FROM reserved_usernames WHERE username_hash = ?)", HashKey(username))
}

// checkUsername returns ErrUsernameTaken if an agent other than owner has the username or had it, or if it looks like that of an erased
// account.
func (r *Reader) checkUsername(ctx context.Context, username string, owner uuid.UUID) error {
	if strings.HasPrefix(username, erasedName+"_") {
		return ErrUsernameTaken
	}
	if err := refuseIf(ctx, ErrUsernameTaken, "look for a username", gorm.G[Agent](r.db).Where("username = ?", username)); err != nil {
		return err
	}
	reserved := gorm.G[reservedUsername](r.db).Where("username_hash = ? AND agent_id IS DISTINCT FROM ?", HashKey(username), owner)
	return refuseIf(ctx, ErrUsernameTaken, "look for a reserved username", reserved)
}

// reserveUsername keeps others from registering a username.
func (tx *Tx) reserveUsername(ctx context.Context, username string, agent *uuid.UUID) error {
	err := gorm.G[reservedUsername](tx.db, clause.OnConflict{DoNothing: true}).
		Create(ctx, &reservedUsername{UsernameHash: HashKey(username), AgentID: agent})
	return wrap("reserve a username", err)
}
