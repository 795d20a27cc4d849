package agent

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/parley-chat/parley/client"
)

var (
	idForm = regexp.MustCompile(`^(agent|chat|channel)_[0-7][0-9a-hjkmnp-tv-z]{25}$`)
	// likeID matches ids that are damaged: no username, or one that nobody takes.
	likeID       = regexp.MustCompile(`^(agent|chat|channel|msg)_([0-9][0-9a-zA-Z]{9,}|.*[^a-z0-9_].*)$`)
	usernameForm = regexp.MustCompile(`^[a-z0-9_]{1,32}$`)
)

func IsUsername(text string) bool { return usernameForm.MatchString(text) }

func isID(text string) bool { return idForm.MatchString(text) }

// notFound is the failure of a name that no agent, channel or group chat is known by. It is to a name what a response with status 404 is to
// an id.
func notFound(kind, name string) *Failure {
	code := map[string]client.ErrorCode{
		KindAgent: client.ErrorCodeAgentNotFound, KindGroup: client.ErrorCodeChatNotFound, KindChannel: client.ErrorCodeChannelNotFound,
	}[kind]
	text := "no %s that can be found has exactly the name %s"
	if kind == KindGroup {
		text = "no %s chat that is known has the name %s; write its id (chat_…), which searchGroups shows"
	}
	f := failf(ExitRefused, string(code), "find", text, kind, VisibleName(name))
	f.Args = object{"words": name, "kind": kind + "s"}
	f.Next = f.Action.Line(f.Args)
	return f
}

// ErrSelf means that a name or an id is that of the caller, with whom there is no conversation.
var ErrSelf = failf(ExitUsage, "usage", "", "this is your own account")

// Resolve returns the contact for a name or an id of one of these kinds, or of any: bob, #weather, the name of a group chat, or an id. It
// looks up what is not known, which is paid for once, and remembers it. A username comes before the name of a group chat that others chose.
func (a *Agent) Resolve(ctx context.Context, to string, kinds ...string) (Contact, error) {
	wants := func(kind string) bool { return len(kinds) == 0 || slices.Contains(kinds, kind) }
	contacts, err := a.Contacts()
	if err != nil {
		return Contact{}, err
	}
	if own, err := a.Own(ctx); err == nil && own != nil && (to == own.Username || to == own.AgentID) {
		return Contact{}, ErrSelf
	}
	name, channel := strings.CutPrefix(to, "#")
	channel = channel || !wants(KindAgent) && !wants(KindGroup)
	var found Contact
	switch {
	case isID(to):
		found = Contact{ID: to, Kind: kindOf(to)}
		if known := contacts.ByID(to); known != nil {
			found = *known
		}
	case likeID.MatchString(to):
		err = Usagef("%s is no id: an id is agent_, chat_ or channel_ with 26 characters", VisibleName(to))
	case channel:
		found, err = a.resolveChannel(ctx, contacts, name)
	default:
		found, err = a.resolveName(ctx, contacts, to, wants)
	}
	if err == nil && !wants(found.Kind) {
		err = Usagef("%s is of the kind %s, and must be of: %s", found, found.Kind, strings.Join(kinds, ", "))
	}
	return found, err
}

func (a *Agent) resolveName(ctx context.Context, contacts Contacts, name string, wants func(string) bool) (Contact, error) {
	username := strings.ToLower(strings.TrimPrefix(name, "@"))
	isUsername := wants(KindAgent) && usernameForm.MatchString(username)
	missing := notFound(KindGroup, name)
	if isUsername {
		missing = notFound(KindAgent, username)
		known, err := contacts.named(KindAgent, username, func(Contact) bool { return true })
		if err == nil && known.ID != "" {
			return known, nil
		}
	}
	if !wants(KindGroup) && !isUsername {
		return Contact{}, Usagef("%s is no username and no id of an agent", VisibleName(name))
	}
	if wants(KindGroup) {
		known, err := contacts.named(KindGroup, name, func(c Contact) bool { return c.Named || !isUsername })
		if err != nil || known.ID != "" {
			return known, err
		}
	}
	if isUsername {
		agent, err := a.resolveUsername(ctx, username)
		if !refusedAs(err, client.ErrorCodeAgentNotFound) {
			return agent, err
		}
	}
	known, err := contacts.named(KindGroup, name, func(Contact) bool { return wants(KindGroup) })
	if err == nil && known.ID == "" && wants(KindGroup) {
		known, err = a.groupFound(ctx, name)
	}
	if err != nil {
		return Contact{}, err
	}
	if known.ID == "" {
		if wants(KindGroup) {
			missing.Message += "; a group chat to which others added this account is known after listUnreadMessages"
		}
		if of, err := contacts.named(KindChannel, name, func(Contact) bool { return wants(KindChannel) }); err == nil && of.ID != "" {
			missing.Message, missing.Action, missing.Next = missing.Message+"; there is a channel, write "+Quoted(of.String()), nil, ""
		}
		return Contact{}, missing
	}
	return known, a.ChangeContact(ctx, known.ID, func(c *Contact) { c.Name, c.Named = name, true }) // no agent has it
}

// groupFound returns the group chat with a name among those that searches have shown, or none.
func (a *Agent) groupFound(ctx context.Context, name string) (Contact, error) {
	groups, err := a.ledger.shown(ctx, "groups", "name", name)
	contacts, failed := a.Contacts()
	var found Contacts
	for _, group := range groups {
		if known := contacts.ByID(word(group, "chat_id")); known == nil || !known.Deleted {
			found = found.met(Contact{Name: name, ID: word(group, "chat_id"), Kind: KindGroup})
		}
	}
	known, ambiguous := found.wellFormed().named(KindGroup, name, func(Contact) bool { return true })
	return known, cmp.Or(err, failed, ambiguous)
}

// lookupTime is for how long a response is used again to look up the same name.
const lookupTime = time.Minute

// lookup makes a call, unless the same was made in the time that recent names, and reads its response.
func (a *Agent) lookup(ctx context.Context, operation string, arguments object, into any, recent ...time.Duration) (*Result, error) {
	result, err := a.Call(ctx, operation, arguments, CallOptions{recent: cmp.Or(recent...)})
	if err != nil {
		return nil, err
	}
	return result, cmp.Or(a.Decode(ctx, result, into), a.Seen(ctx, result))
}

func (a *Agent) resolveUsername(ctx context.Context, name string) (Contact, error) {
	var profile client.AgentProfile
	result, err := a.lookup(ctx, "getAgentProfile", map[string]any{"username": name}, &profile)
	if err != nil {
		return Contact{}, err
	}
	if profile.Username != name || !isID(profile.AgentID) {
		return Contact{}, fmt.Errorf("the server returned another agent than %s", VisibleName(name))
	}
	return a.remember(ctx, Contact{Name: name, ID: profile.AgentID, Kind: KindAgent, shown: result})
}

func (a *Agent) resolveChannel(ctx context.Context, contacts Contacts, name string) (Contact, error) {
	known, err := contacts.named(KindChannel, name, func(c Contact) bool { return c.Named })
	if err != nil || known.ID != "" {
		return known, err
	}
	recent := lookupTime // a search that finds nothing is paid too
	if slices.ContainsFunc(contacts, func(c Contact) bool { return c.Kind == KindChannel && c.Name == name && c.Deleted }) {
		recent = 0 // it may have found what was deleted since
	}
	var page client.ChannelSearchPage
	if _, err := a.lookup(ctx, "searchChannels", map[string]any{"query": name, "page_size": 100}, &page, recent); err != nil {
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
		return Contact{}, notFound(KindChannel, name)
	case 1:
		return a.remember(ctx, Contact{Name: name, ID: ids[0], Kind: KindChannel, Named: true})
	}
	return Contact{}, ambiguous("#"+name, ids)
}

func (a *Agent) remember(ctx context.Context, c Contact) (Contact, error) {
	var kept Contact
	err := a.ChangeContact(ctx, c.ID, func(known *Contact) {
		known.Name, known.Kind, known.Named, known.Chat = c.Name, c.Kind, known.Named || c.Named, cmp.Or(c.Chat, known.Chat)
		kept = *known
		kept.shown = c.shown
	})
	return kept, err
}
