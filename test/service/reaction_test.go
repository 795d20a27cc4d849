package service

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store"
)

func (a *agent) react(message, emoji string) {
	a.w.T.Helper()
	reacted, err := a.ReactToMessageWithResponse(a.w.T.Context(), client.ReactToMessageRequest{MessageID: message, Emoji: emoji})
	if err != nil || reacted.JSON200 == nil || !reacted.JSON200.Success {
		a.w.T.Fatalf("%s reacts with %s: %v %s", a.Name, emoji, err, reacted.Body)
	}
}

func (a *agent) unreact(message string) {
	a.w.T.Helper()
	removed, err := a.RemoveReactionWithResponse(a.w.T.Context(), client.RemoveReactionRequest{MessageID: message})
	if err != nil || removed.JSON200 == nil || !removed.JSON200.Success {
		a.w.T.Fatalf("%s takes its reaction away: %v %s", a.Name, err, removed.Body)
	}
}

// page fetches the newest messages of a private chat.
func (a *agent) page(chat string) []client.Message {
	a.w.T.Helper()
	read, err := a.ListPrivateMessagesWithResponse(a.w.T.Context(), client.ListPrivateMessagesRequest{ChatID: chat})
	testkit.Require200(a.w.T, a.Name+" reads", read, err)
	return read.JSON200.Messages
}

func TestReactions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	chat, first := alice.send(bob, "the first")
	_, second := bob.send(alice, "the second")
	_, third := bob.send(alice, "the third")

	type shown struct {
		Reactions []client.Reaction
		Counts    map[string]int64
	}
	check := func(when string, want map[string]shown) {
		t.Helper()
		got := map[string]shown{}
		for _, message := range bob.page(chat) {
			if message.Reactions == nil || message.ReactionCounts == nil {
				t.Errorf("%s: a message has no reactions field", when)
			}
			got[message.MessageID] = shown{message.Reactions, message.ReactionCounts}
			for i, reaction := range message.Reactions {
				if i > 0 && reaction.CreatedAt > message.Reactions[i-1].CreatedAt {
					t.Errorf("%s: reactions are not newest first", when)
				}
			}
		}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(client.Reaction{}, "CreatedAt"), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	by := func(a *agent, emoji string) client.Reaction {
		return client.Reaction{AgentID: a.ID, Username: a.Name, Emoji: emoji}
	}

	alice.unreact(first) // there is none: succeeds unchanged
	alice.react(first, "👍")
	bob.react(first, "👍")
	bob.react(second, "🇵🇹")
	check("three reactions", map[string]shown{
		first:  {[]client.Reaction{by(bob, "👍"), by(alice, "👍")}, map[string]int64{"👍": 2}},
		second: {[]client.Reaction{by(bob, "🇵🇹")}, map[string]int64{"🇵🇹": 1}},
		third:  {},
	})
	const family = "👨‍👩‍👧‍👦"
	alice.react(first, family) // replaces, and is the newest by that
	check("one replaced", map[string]shown{
		first:  {[]client.Reaction{by(alice, family), by(bob, "👍")}, map[string]int64{"👍": 1, family: 1}},
		second: {[]client.Reaction{by(bob, "🇵🇹")}, map[string]int64{"🇵🇹": 1}},
		third:  {},
	})
	bob.unreact(first)
	bob.unreact(first)
	bob.unreact(second)
	check("two taken away", map[string]shown{first: {[]client.Reaction{by(alice, family)}, map[string]int64{family: 1}}, second: {},
		third: {}})
}

// TestReactionsAreGroupedByEmoji: spellings of one emoji, with and without U+FE0F, are one reaction, and come back in one spelling.
func TestReactionsAreGroupedByEmoji(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob, carol := w.agent("alice"), w.agent("bob"), w.agent("carol")
	group := alice.createGroup("planners", bob, carol)
	for _, test := range []struct {
		want      string
		spellings []string
	}{
		{"👍", []string{"👍", "👍\ufe0f"}},
		{"❤️", []string{"❤", "❤️"}},
		{"1️⃣", []string{"1\ufe0f\u20e3", "1\u20e3"}},
		{"👁️‍🗨️", []string{"👁‍🗨", "👁️‍🗨️", "👁️‍🗨"}},
		{"☝🏽", []string{"☝🏽"}},
	} {
		message := alice.sendGroup(group, "which one?")
		var want []client.Reaction
		for i, spelling := range test.spellings {
			by := []*agent{alice, bob, carol}[i]
			by.react(message, spelling)
			want = slices.Insert(want, 0, client.Reaction{AgentID: by.ID, Username: by.Name, Emoji: test.want})
		}
		read, err := bob.ListGroupMessagesWithResponse(t.Context(), client.ListGroupMessagesRequest{ChatID: group, N: new(int64(1))})
		testkit.Require200(t, "bob reads", read, err)
		got := read.JSON200.Messages[0]
		if diff := cmp.Diff(map[string]int64{test.want: int64(len(want))}, got.ReactionCounts); diff != "" {
			t.Errorf("the counts of %+q (-want +got):\n%s", test.spellings, diff)
		}
		if diff := cmp.Diff(want, got.Reactions, cmpopts.IgnoreFields(client.Reaction{}, "CreatedAt")); diff != "" {
			t.Errorf("the reactions %+q (-want +got):\n%s", test.spellings, diff)
		}
	}
}

// TestManyReactions: the newest are shown one by one, all are counted, also an emoji that only an old one has.
func TestManyReactions(t *testing.T) {
	t.Parallel()
	if most := testkit.Contract.Components.Schemas["Message"].Value.Properties["reactions"].Value.MaxItems; *most != store.ReactionLimit {
		t.Errorf("the contract shows %d reactions, the store %d", *most, store.ReactionLimit)
	}
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	chat, message := alice.send(bob, "a popular message")
	alice.react(message, "🐌")
	w.Exec(`INSERT INTO agents (id, username, description, is_discoverable, key_hash, created_at)
		SELECT gen_random_uuid(), 'fan_' || i, '', true, sha256(CAST('fan ' || i AS bytea)), now() FROM generate_series(1, 150) AS i`)
	w.Exec(`INSERT INTO reactions (conversation_id, number, agent_id, emoji, created_at) SELECT o.conversation_id, o.number, a.id, CASE WHEN
		substr(a.username, 5)::int % 3 = 0 THEN '👍' ELSE '👏' END,
		clock_timestamp() + substr(a.username, 5)::int * interval '1 millisecond' FROM messages o, agents a WHERE a.username LIKE 'fan%'`)
	got := bob.page(chat)[0]
	if diff := cmp.Diff(map[string]int64{"👍": 50, "👏": 100, "🐌": 1}, got.ReactionCounts); diff != "" {
		t.Errorf("the counts (-want +got):\n%s", diff)
	}
	if len(got.Reactions) != store.ReactionLimit {
		t.Fatalf("%d reactions are shown, want %d", len(got.Reactions), store.ReactionLimit)
	}
	for i, reaction := range got.Reactions {
		if want := fmt.Sprintf("fan_%d", 150-i); reaction.Username != want {
			t.Fatalf("at %d stands the reaction of %s, want %s", i, reaction.Username, want)
		}
	}
}

// TestEmojiCounts: a message counts its most frequent emoji, and of equally frequent ones the most recent.
func TestEmojiCounts(t *testing.T) {
	t.Parallel()
	if most := testkit.Contract.Components.Schemas["Message"].Value.Properties["reaction_counts"].Value.MaxProps; *most != store.EmojiLimit {
		t.Errorf("the contract counts %d emoji, the store %d", *most, store.EmojiLimit)
	}
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	chat, message := alice.send(bob, "a popular message")
	alice.react(message, "🐌")
	w.fans(61)
	bob.react(message, "🐌")
	// The first 20 fans have one emoji, the others one each.
	w.reactAll(`chr(128512 + greatest(20, CAST(substr(a.username, 5) AS int)) - 20)`)
	w.Exec(`UPDATE reactions r SET created_at = clock_timestamp() + CAST(substr(a.username, 5) AS int) * interval '1 second'
		FROM agents a WHERE a.id = r.agent_id AND a.username LIKE 'fan%'`)
	want := map[string]int64{"🐌": 2, string(rune(128512)): 20}
	for i := 61; i > 61-store.EmojiLimit+2; i-- {
		want[string(rune(128512+i-20))] = 1
	}
	if diff := cmp.Diff(want, bob.page(chat)[0].ReactionCounts); diff != "" {
		t.Errorf("the counts (-want +got):\n%s", diff)
	}
}
