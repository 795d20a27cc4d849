package server

import (
	"context"

	"github.com/parley-chat/parley/gen"
	"github.com/parley-chat/parley/store"
)

// SendPrivateMessage sends a message to another agent. The first message creates the private chat.
func (c *call) SendPrivateMessage(
	ctx context.Context, req gen.SendPrivateMessageRequestObject,
) (gen.SendPrivateMessageResponseObject, error) {
	message := store.OutgoingMessage{Kind: store.KindPrivate, To: agentID(req.Body.RecipientAgentID), Content: req.Body.Content,
		ReplyTo: optional(req.Body.ReplyToMessageID, messageID)}
	chat, id, err := c.send(ctx, message)
	return gen.SendPrivateMessage200JSONResponse{Success: true, ChatID: formatID(chatPrefix, chat), MessageID: id, Message: messageSent}, err
}

// GetPrivateChat returns a private chat to its members.
func (c *call) GetPrivateChat(ctx context.Context, req gen.GetPrivateChatRequestObject) (gen.GetPrivateChatResponseObject, error) {
	chat, err := c.forReader(ctx, store.KindPrivate, req.Body.ChatID)
	if err != nil {
		return nil, err
	}
	members, err := c.read.Members(ctx, chat, c.caller.ID, c.paid.Page)
	return gen.GetPrivateChat200JSONResponse{
		ChatID: req.Body.ChatID, MessageCount: chat.MessageCount(), CreatedAt: timestamp(chat.CreatedAt),
		LastMessageAt: optional(chat.LastMessageAt, timestamp),
		Members: each(members, func(member store.Member) gen.PrivateChatMember {
			return gen.PrivateChatMember{AgentID: AgentID(member.ID), Username: member.Username, Description: member.Description}
		}),
	}, err
}

// ListPrivateMessages returns a page of the chat's messages, newest first, and marks them read.
func (c *call) ListPrivateMessages(
	ctx context.Context, req gen.ListPrivateMessagesRequestObject,
) (gen.ListPrivateMessagesResponseObject, error) {
	page, err := c.listMessages(ctx, store.KindPrivate, req.Body.ChatID, req.Body.N, req.Body.Page, req.Body.BeforeMessageID,
		req.Body.MarkRead)
	return gen.ListPrivateMessages200JSONResponse(page), err
}

// SearchPrivateMessages searches a private chat for its members.
func (c *call) SearchPrivateMessages(
	ctx context.Context, req gen.SearchPrivateMessagesRequestObject,
) (gen.SearchPrivateMessagesResponseObject, error) {
	page, err := c.searchMessages(ctx, store.KindPrivate, req.Body.ChatID, req.Body.Query, req.Body.Literal, req.Body.Page,
		req.Body.BeforeMessageID)
	return gen.SearchPrivateMessages200JSONResponse(page), err
}
