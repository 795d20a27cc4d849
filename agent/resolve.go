package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/parley-chat/parley/client"
)

var (
	idForm       = regexp.MustCompile(`^(agent|chat|channel)_[0-7][0-9a-hjkmnp-tv-z]{25}$`)
	usernameForm = regexp.MustCompile(`^[a-z0-9_]{1,32}$`)
)

// IsUsername reports whether an agent can have a name.
func IsUsername(text string) bool { return usernameForm.MatchString(text) }

func isID(text string) bool { return idForm.MatchString(text) }

// NotFoundError means that no agent, channel or group chat is known by a name. It is to a name what a response with status 404 is to an id.
type NotFoundError struct {
	Kind, Name string
	// Channel is true if a channel in the contacts has the name, so that a # is missing.
	Channel bool
	// Ended is true if it is the name of a group chat of the owner that has ended. An agent of that name is not meant.
	Ended bool
}

func (e *NotFoundError) Error() string {
	text := fmt.Sprintf("no %s that can be found has exactly the name %s", e.Kind, VisibleName(e.Name))
	if e.Kind == KindGroup {
		text = fmt.Sprintf("no group chat in the contacts has the name %s; use its id", VisibleName(e.Name))
	}
	if e.Ended {
		text = fmt.Sprintf("the group chat %s has ended; for an agent of this name use its id", VisibleName(e.Name))
	}
	if e.Channel {
		text += "; did you mean #" + VisibleName(e.Name) + "?"
	}
	return text
}

// Code is that of the response for an id that does not exist.
func (e *NotFoundError) Code() client.ErrorCode {
	return map[string]client.ErrorCode{
		KindAgent: client.ErrorCodeAgentNotFound, KindGroup: client.ErrorCodeChatNotFound, KindChannel: client.ErrorCodeChannelNotFound,
	}[e.Kind]
}

// GroupNotTrustedError means that a name is that of a group chat whose name counts only once it is trusted.
type GroupNotTrustedError struct{ Group Contact }

func (e *GroupNotTrustedError) Error() string {
	return fmt.Sprintf("%s is the name that others gave to the group chat %s, which is not trusted; use the id, or trust it with: %s",
		VisibleName(e.Group.Name), e.Group.ID, e.Group.TrustCommand())
}

// ErrNoChat means that there is no private chat with an agent yet.
var ErrNoChat = errors.New("no private chat with this agent is known; it begins with the first message")

// ErrSelf means that a name or an id is that of the caller, with whom there is no conversation.
var ErrSelf = errors.New("that is this account itself")

// Resolve returns the contact for a name or an id: bob, #weather, the name of a trusted group chat, or an id. It looks up what is not in
// the contacts, which is paid for once, and keeps it, neither trusted nor held. kinds, if any, are those that the caller can use. Without
// agents among them a chat is a group chat: only members could look it up.
func (a *Agent) Resolve(ctx context.Context, to string, kinds ...string) (Contact, error) {
	contacts, err := a.Contacts()
	if err != nil {
		return Contact{}, err
	}
	if own, err := a.Own(ctx); err == nil && own != nil && (to == own.Username || to == own.AgentID) {
		return Contact{}, ErrSelf
	}
	to = contacts.Address(to, kinds...)
	found, err := contacts.Find(to)
	agents := kinds == nil || slices.Contains(kinds, KindAgent)
	switch name, channel := strings.CutPrefix(to, "#"); {
	case err != nil:
		return Contact{}, err
	case found != nil:
		return *found, nil
	case isID(to) && (kindOf(to) != KindGroup || !agents):
		return Contact{ID: to, Kind: kindOf(to)}, nil
	case isID(to):
		return a.resolveChat(ctx, to)
	case channel && name != "":
		return a.resolveChannel(ctx, name)
	case contacts.ended(to):
		return Contact{}, &NotFoundError{Kind: KindGroup, Name: to, Ended: true}
	case agents && usernameForm.MatchString(to):
		found, err := a.resolveUsername(ctx, to)
		if refused, ok := errors.AsType[*RefusedError](err); ok && refused.Code == client.ErrorCodeAgentNotFound {
			err = cmp.Or(contacts.notTrusted(to), err)
			if missing := contacts.missing(KindAgent, to); missing.Channel {
				err = missing
			}
		}
		return found, err
	case contacts.notTrusted(to) != nil:
		return Contact{}, contacts.notTrusted(to)
	case agents && usernameForm.MatchString(asUsername(to)):
		return a.Resolve(ctx, asUsername(to), kinds...)
	}
	return Contact{}, contacts.missing(append(kinds, KindGroup)[0], to)
}

// asUsername returns what is meant by @Bob: bob.
func asUsername(to string) string { return strings.ToLower(strings.TrimPrefix(to, "@")) }

// missing returns the error for a name of a kind that is not known.
func (c Contacts) missing(kind, name string) *NotFoundError {
	channel := slices.ContainsFunc(c, func(one Contact) bool { return one.Kind == KindChannel && one.Name == name })
	return &NotFoundError{Kind: kind, Name: name, Channel: channel}
}

// ended reports whether a name is that of a group chat of the owner that has ended.
func (c Contacts) ended(name string) bool {
	return slices.ContainsFunc(c, func(one Contact) bool { return one.Kind == KindGroup && one.Name == name && one.Own && one.Ended })
}

// lookup makes a call and reads its response.
func (a *Agent) lookup(ctx context.Context, operation string, arguments map[string]any, into any) error {
	result, err := a.Call(ctx, operation, arguments, CallOptions{})
	if err != nil {
		return err
	}
	return cmp.Or(a.Decode(ctx, result, into), a.Seen(ctx, result))
}

func (a *Agent) resolveUsername(ctx context.Context, name string) (Contact, error) {
	var profile client.AgentProfile
	if err := a.lookup(ctx, "getAgentProfile", map[string]any{"username": name}, &profile); err != nil {
		return Contact{}, err
	}
	if profile.Username != name || !isID(profile.AgentID) {
		return Contact{}, fmt.Errorf("the server returned another agent than %s", VisibleName(name))
	}
	return a.found(ctx, Contact{Name: name, ID: profile.AgentID, Kind: KindAgent})
}

func (a *Agent) resolveChannel(ctx context.Context, name string) (Contact, error) {
	var page client.ChannelSearchPage
	if err := a.lookup(ctx, "searchChannels", map[string]any{"query": name, "page_size": 100}, &page); err != nil {
		return Contact{}, err
	}
	var ids []string
	for _, channel := range page.Channels {
		if channel.Name == name && isID(channel.ChannelID) {
			ids = append(ids, channel.ChannelID)
		}
	}
	switch len(ids) {
	case 0:
		return Contact{}, &NotFoundError{Kind: KindChannel, Name: name}
	case 1:
		return a.found(ctx, Contact{Name: name, ID: ids[0], Kind: KindChannel, Named: true})
	}
	return Contact{}, &AmbiguousError{"#" + name, ids}
}

// resolveChat returns the group chat with an id, or the agent with whom the private chat is.
func (a *Agent) resolveChat(ctx context.Context, id string) (Contact, error) {
	var group client.GroupChat
	err := a.lookup(ctx, "getGroupChat", map[string]any{"chat_id": id}, &group)
	if err == nil {
		return a.found(ctx, Contact{Name: group.Name, ID: id, Kind: KindGroup})
	}
	if refused, ok := errors.AsType[*RefusedError](err); !ok || refused.Code != client.ErrorCodeChatNotFound {
		return Contact{}, err
	}
	var private client.PrivateChat
	if err := a.lookup(ctx, "getPrivateChat", map[string]any{"chat_id": id}, &private); err != nil {
		return Contact{}, err
	}
	own, err := a.Own(ctx)
	if err == nil && own == nil {
		own = &client.OwnAgent{}
		err = a.lookup(ctx, operationGetOwnAgent, nil, own)
	}
	if err != nil {
		return Contact{}, err
	}
	for _, member := range private.Members {
		if member.AgentID != own.AgentID && isID(member.AgentID) && usernameForm.MatchString(member.Username) {
			return a.found(ctx, Contact{Name: member.Username, ID: member.AgentID, Kind: KindAgent, Chat: id})
		}
	}
	return Contact{}, fmt.Errorf("the private chat %s has no other member", id)
}

// found keeps a contact that was looked up.
func (a *Agent) found(ctx context.Context, c Contact) (Contact, error) {
	var kept Contact
	err := a.ChangeContact(ctx, c.ID, func(known *Contact) {
		known.Name, known.Kind, known.Named, known.Chat = c.Name, c.Kind, known.Named || c.Named, cmp.Or(c.Chat, known.Chat)
		kept = *known
	})
	return kept, err
}

// Chat returns the id of the private chat with an agent. If it is not in the contacts, it looks at the caller's chats, newest first,
// at most ten of those that are not known.
func (a *Agent) Chat(ctx context.Context, with Contact) (string, error) {
	contacts, err := a.Contacts()
	if err != nil {
		return "", err
	}
	if known := contacts.ByID(with.ID); known != nil && known.Chat != "" {
		return known.Chat, nil
	}
	var own client.OwnAgent
	if err := a.lookup(ctx, operationGetOwnAgent, nil, &own); err != nil {
		return "", err
	}
	const maxLookups = 10
	unknown := slices.DeleteFunc(own.ChatIds, func(id string) bool { return contacts.ByID(id) != nil })
	for _, id := range slices.Backward(unknown[max(0, len(unknown)-maxLookups):]) {
		other, err := a.resolveChat(ctx, id)
		if err != nil {
			return "", err
		}
		if other.ID == with.ID {
			return id, nil
		}
	}
	return "", ErrNoChat
}
