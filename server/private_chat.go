package server

import (
	"context"

	"github.com/google/uuid"

	"github.com/parley-chat/parley/gen"
	"github.com/parley-chat/parley/store"
)

// SendPrivateMessage writes to another agent, creating the private chat if there is none.
func (s *Server) SendPrivateMessage(ctx context.Context, req gen.SendPrivateMessageRequestObject) (gen.SendPrivateMessageResponseObject, error) {
	message := privateMessage(ctx, req)
	sent, err := s.transaction(ctx).SendMessage(ctx, message)
	if err != nil {
		return nil, err
	}
	return sentPrivately(message, sent.ConversationID), nil
}

func privateMessage(ctx context.Context, req gen.SendPrivateMessageRequestObject) store.OutgoingMessage {
	return store.OutgoingMessage{
		Kind: store.KindPrivate, To: idOf(agentPrefix, req.Body.RecipientAgentID), Sender: callerFrom(ctx).ID, ID: newID(), Content: req.Body.Content,
	}
}

func sentPrivately(message store.OutgoingMessage, chat uuid.UUID) gen.SendPrivateMessage200JSONResponse {
	return gen.SendPrivateMessage200JSONResponse{
		Success: true, ChatID: formatID(chatPrefix, chat), MessageID: formatID(messagePrefix, message.ID), Message: "message sent",
	}
}

// GetPrivateChat shows a private chat to its members.
func (s *Server) GetPrivateChat(ctx context.Context, req gen.GetPrivateChatRequestObject) (gen.GetPrivateChatResponseObject, error) {
	tx := s.transaction(ctx)
	chat, err := membersPrivateChat(ctx, tx, idOf(chatPrefix, req.Body.ChatID))
	if err != nil {
		return nil, err
	}
	members, err := tx.Members(ctx, chat.ID, callerFrom(ctx).ID)
	if err != nil {
		return nil, err
	}
	info := gen.GetPrivateChat200JSONResponse{ChatID: req.Body.ChatID, MessageCount: chat.LastNumber, CreatedAt: timestamp(chat.CreatedAt)}
	for _, member := range members {
		info.Members = append(info.Members, gen.PrivateChatMember{
			AgentID: formatID(agentPrefix, member.ID), Username: member.Username, Description: member.Description,
		})
	}
	if chat.LastMessageAt != nil {
		at := timestamp(*chat.LastMessageAt)
		info.LastMessageAt = &at
	}
	return info, nil
}

// ListPrivateMessages returns a page of the chat's messages, newest first, and marks them read.
func (s *Server) ListPrivateMessages(ctx context.Context, req gen.ListPrivateMessagesRequestObject) (gen.ListPrivateMessagesResponseObject, error) {
	tx := s.transaction(ctx)
	chat, err := membersPrivateChat(ctx, tx, idOf(chatPrefix, req.Body.ChatID))
	if err != nil {
		return nil, err
	}
	page, err := readMessages(ctx, tx, chat, req.Body.N, req.Body.Page, req.Body.BeforeMessageID)
	if err != nil {
		return nil, err
	}
	return gen.ListPrivateMessages200JSONResponse(*page), nil
}

// sendNote is a private message from the caller that says what is with which group chat or channel, in its name's own
// spelling.
func sendNote(ctx context.Context, tx *store.Store, to uuid.UUID, what string, about *store.Seat, note *gen.Note) error {
	noun, prefix := "group chat", chatPrefix
	if about.Kind == store.KindChannel {
		noun, prefix = "channel", channelPrefix
	}
	text := what + " " + noun + ` "` + *about.Name + `" (` + formatID(prefix, about.ID) + ")."
	if note != nil {
		text += " " + *note
	}
	_, err := tx.SendMessage(ctx, store.OutgoingMessage{Kind: store.KindPrivate, To: to, Sender: callerFrom(ctx).ID, ID: newID(), Content: text})
	return err
}

// readMessages fetches a page of a conversation and moves the caller's marker to the newest message on it.
func readMessages(ctx context.Context, tx *store.Store, seat *store.Seat, n, page int64, before *gen.MessageID) (*gen.MessagePage, error) {
	found, err := tx.Messages(ctx, seat, n, page, anchorOf(before))
	if err != nil {
		return nil, err
	}
	if len(found.Messages) > 0 && found.Messages[0].Number > seat.ReadNumber {
		if err := tx.MarkRead(ctx, seat.ID, callerFrom(ctx).ID, found.Messages[0].Number); err != nil {
			return nil, err
		}
	}
	shown, err := toMessages(ctx, tx, seat.ID, found.Messages)
	if err != nil {
		return nil, err
	}
	return &gen.MessagePage{Messages: shown, Total: seat.LastNumber, Page: page, NextBeforeMessageID: nextOf(found.Next)}, nil
}

// nextOf writes next_before_message_id, which may be missing.
func nextOf(message *uuid.UUID) *gen.MessageID {
	if message == nil {
		return nil
	}
	id := formatID(messagePrefix, *message)
	return &id
}

// anchorOf reads before_message_id, which may be missing.
func anchorOf(before *gen.MessageID) *uuid.UUID {
	if before == nil {
		return nil
	}
	id := idOf(messagePrefix, *before)
	return &id
}

// toMessages shows messages of one conversation with their reactions.
func toMessages(ctx context.Context, tx *store.Store, conversation uuid.UUID, messages []store.SentMessage) ([]gen.Message, error) {
	reactions, err := tx.Reactions(ctx, conversation, messages)
	if err != nil {
		return nil, err
	}
	shown := make([]gen.Message, len(messages))
	for i, message := range messages {
		shown[i] = toMessage(message)
		of := reactions[message.Number]
		if of == nil {
			continue
		}
		shown[i].ReactionCounts = of.Counts
		for _, reaction := range of.Newest {
			shown[i].Reactions = append(shown[i].Reactions, gen.Reaction{
				AgentID: formatID(agentPrefix, reaction.AgentID), Username: reaction.Username, Emoji: reaction.Emoji, CreatedAt: timestamp(reaction.CreatedAt),
			})
		}
	}
	return shown, nil
}

func toMessage(message store.SentMessage) gen.Message {
	return gen.Message{
		MessageID: formatID(messagePrefix, message.ID), SenderID: formatID(agentPrefix, message.SenderID), SenderUsername: message.SenderUsername,
		Content: message.Content, ContentType: "text/plain", CreatedAt: timestamp(message.CreatedAt),
		Reactions: []gen.Reaction{}, ReactionCounts: map[string]int64{},
	}
}
