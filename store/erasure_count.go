package store

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"gorm.io/gorm"
)

// CountErasure counts what EraseAgent would change, and changes nothing. It returns ErrOpenPayments or ErrOwedPayments.
func (s *Store) CountErasure(ctx context.Context, agent uuid.UUID) (counted Erasure, err error) {
	if err := s.checkErasable(ctx, agent); err != nil {
		return counted, err
	}
	administered, err := gorm.G[Conversation](s.db).Where("admin_id = ?", agent).Order("id").Find(ctx)
	if err != nil {
		return counted, fmt.Errorf("list administered conversations: %w", err)
	}
	ids := make([]uuid.UUID, len(administered))
	for i, one := range administered {
		ids[i] = one.ID
	}
	heirs, err := s.heirs(ctx, agent, ids)
	if err != nil {
		return counted, err
	}
	handedOver := make([]uuid.UUID, len(heirs))
	for i, one := range heirs {
		handedOver[i] = one.ConversationID
	}
	counts, err := query[Erasure](ctx, s, `
		SELECT (SELECT count(*) FROM messages WHERE sender_id = @agent) AS messages, (SELECT count(*) FROM reactions WHERE agent_id = @agent) AS reactions,
			(SELECT count(*) FROM blocks WHERE blocker_id = @agent OR blocked_id = @agent) AS blocks,
			(SELECT count(*) FROM payments WHERE agent_id = @agent) AS payments,
			(SELECT count(*) FROM memberships m JOIN conversations c ON c.id = m.conversation_id WHERE m.agent_id = @agent
				AND (c.kind = 'channel' OR c.kind = 'group' AND (c.admin_id <> @agent OR c.id = ANY (@handed)))) AS memberships`,
		named{"agent": agent, "handed": handedOver})
	if err != nil {
		return counted, fmt.Errorf("count what would be erased: %w", err)
	}
	counted = counts[0]
	counted.HandedOver, counted.Deleted = int64(len(heirs)), int64(len(administered)-len(heirs))
	return counted, nil
}
