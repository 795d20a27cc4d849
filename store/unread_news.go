package store

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
)

// After each commit the store announces whom it concerns, in this process at once and to other servers with NOTIFY: an agent, for a private
// message or a notice, or the conversation of another message, so that sending costs nothing per subscriber. An announcement can be
// lost, with its server or with the connection: who waits for news also looks now and then. NOTIFY runs in transactions of its own,
// because it holds a lock of all databases until its transaction is committed.

const (
	newsChannel = "parley_news"
	// newsEvery collects announcements: one statement takes all that came while the one before it ran, and this time.
	newsEvery = 25 * time.Millisecond
	// maxPayload is how many ids fit into the 8,000 bytes of a notification, and maxNews how many wait to be announced.
	maxPayload = 360
	maxNews    = 10 * maxPayload
)

// news are the announcements of this process.
type news struct {
	heard func(ids []uuid.UUID) // nil: nobody waits, neither here nor at other servers

	mu        sync.Mutex
	pending   []uuid.UUID // for other servers
	spreading bool
}

// Listen sets the function that gets the ids of agents and conversations that have news, of this server and others (BePresent). It is
// called often, and must return at once. Call Listen before the store is used.
func (s *Store) Listen(heard func(ids []uuid.UUID)) { s.news.heard = heard }

// concerns is what a message is announced as: the recipient of a private message, or the conversation of another one.
func (m OutgoingMessage) concerns(conversation uuid.UUID) uuid.UUID {
	if m.Kind == KindPrivate {
		return m.To
	}
	return conversation
}

// announce announces what was committed.
func (r *Reader) announce(ids ...uuid.UUID) {
	n := &r.news
	if n.heard == nil || len(ids) == 0 {
		return
	}
	n.heard(ids)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pending = append(n.pending, ids[:min(len(ids), maxNews-len(n.pending))]...)
	if !n.spreading {
		n.spreading = true
		go (&Reader{database: r.database}).spread()
	}
}

// spread tells other servers what is pending, until nothing is.
func (r *Reader) spread() {
	for {
		payloads := r.news.take(r.owner)
		if payloads == nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		// An announcement need not wait for the disk or a standby.
		_, _ = exec(ctx, r, `SELECT set_config('synchronous_commit', 'off', true), (
			SELECT count(pg_notify('`+newsChannel+`', payload)) FROM unnest(CAST(@payloads AS text[])) AS p (payload))`, named{"payloads": payloads})
		cancel()
		time.Sleep(newsEvery)
	}
}

// take returns what is pending as payloads of notifications, or nil.
func (n *news) take(owner int32) (payloads []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	slices.SortFunc(n.pending, func(a, b uuid.UUID) int { return strings.Compare(string(a[:]), string(b[:])) })
	for ids := range slices.Chunk(slices.Compact(n.pending), maxPayload) {
		raw := make([]byte, 0, len(ids)*len(uuid.UUID{}))
		for _, id := range ids {
			raw = append(raw, id[:]...)
		}
		payloads = append(payloads, fmt.Sprintf("%d:%s", owner, base64.RawStdEncoding.EncodeToString(raw)))
	}
	n.pending, n.spreading = n.pending[:0], payloads != nil
	return payloads
}

// hear passes on what another server has announced.
func (d *database) hear(payload string) {
	owner, encoded, _ := strings.Cut(payload, ":")
	raw, err := base64.RawStdEncoding.DecodeString(encoded)
	if err != nil || owner == strconv.Itoa(int(d.owner)) || d.news.heard == nil {
		return
	}
	var ids []uuid.UUID
	for part := range slices.Chunk(raw, len(uuid.UUID{})) {
		if id, err := uuid.FromBytes(part); err == nil {
			ids = append(ids, id)
		}
	}
	d.news.heard(ids)
}
