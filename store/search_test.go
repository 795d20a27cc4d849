package store_test

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/store/storetest"
)

// rig is a store, and a connection for what the store has no functions for.
type rig struct {
	*store.Store
	t          testing.TB
	connection *pgx.Conn
}

func newRig(t testing.TB, url string) *rig {
	t.Helper()
	s := openStore(t, url)
	connection := connect(t, url)
	return &rig{s, t, connection}
}

func (r *rig) exec(statement string, values ...any) {
	r.t.Helper()
	if _, err := r.connection.Exec(context.Background(), statement, values...); err != nil {
		r.t.Fatal(err)
	}
}

// agent creates an agent; minute is when.
func (r *rig) agent(username, description string, minute int) uuid.UUID {
	r.t.Helper()
	id := uuid.Must(uuid.NewV7())
	r.exec(`INSERT INTO agents (id, username, description, is_discoverable, key_hash, created_at)
		VALUES ($1, $2, $3, true, sha256(convert_to($2, 'UTF8')), timestamptz '2025-01-01' + make_interval(mins => $4))`, id, username,
		description, minute)
	return id
}

// crowd creates many agents, all discoverable, the later the newer.
func (r *rig) crowd(n int, description string) {
	r.t.Helper()
	r.exec(`INSERT INTO agents (id, username, description, is_discoverable, key_hash, created_at)
		SELECT gen_random_uuid(), 'crowd_' || i, `+description+`, true, sha256(convert_to('crowd ' || i, 'UTF8')), timestamptz '2024-01-01' +
		make_interval(secs => i)
		FROM generate_series(1, $1) AS i`, n)
	r.exec(`VACUUM ANALYZE agents`)
}

func usernames(agents []store.Agent) []string {
	names := make([]string, len(agents))
	for i, agent := range agents {
		names[i] = agent.Username
	}
	return names
}

func TestSearchAgentsMatches(t *testing.T) {
	t.Parallel()
	r := newRig(t, storetest.URL(t))
	for i, agent := range []struct{ username, description string }{
		{"oracle", "Weather for LISBON and Porto, 100% right_or_wrong"},
		{"router", `C:\temp\new [a-z]+ (x|y)? "quoted" 'single' $1 @query; --`},
		{"parrot", "🦜🦜🦜 I repeat 👩🏽‍🚀"},
		{"hakawati", "حكواتي يروي القصص العربية"},
		{"moscow", "Прогноз погоды для МОСКВЫ"},
		{"zen", "東京の天気"},
		{"athens", "ΟΔΟΣ Ερμού"},
		{"kelvin", "measures in \u212Aelvin and lo\u017Fs"},
		{"percent", "100 of them"},
		{"plain", ""},
	} {
		r.agent(agent.username, agent.description, i)
	}
	for _, test := range []struct {
		query string
		want  string
	}{
		{"weather", "oracle"},
		{"lisbon PORTO", "oracle"},
		{"porto lisbon", "oracle"},
		{"lisbon athens", ""},
		{"oracle lisbon", "oracle"},
		{"oracleweather", ""},
		{"eweat", ""},
		{"isbo", "oracle"},
		{"100%", "oracle"},
		{"100", "percent oracle"},
		{"1_0", ""},
		{"right_or", "oracle"},
		{"%", "oracle"},
		{"_", "oracle"},
		{`\temp\new`, "router"},
		{`c:\TEMP`, "router"},
		{"[a-z]+", "router"},
		{"a.c", ""},
		{"(x|y)?", "router"},
		{`"quoted" 'single'`, "router"},
		{"$1", "router"},
		{"@query;", "router"},
		{"'; DROP TABLE agents; --", ""},
		{"🦜", "parrot"},
		{"🦜🦜🦜🦜", ""},
		{"👩🏽‍🚀 repeat", "parrot"},
		{"القصص", "hakawati"},
		{"العربية حكواتي", "hakawati"},
		{"москвы", "moscow"},
		{"ПРОГНОЗ", "moscow"},
		{"東京", "zen"},
		{"の", "zen"},
		{"οδ", "athens"},
		{"kelvin", "kelvin"},
		{"in \u212AELVIN", "kelvin"},
		{"los", "kelvin"},
		{"  plain\t\n", "plain"},
		{"plain plain plain", "plain"},
		{strings.Repeat("wea ", 64), "oracle"},
	} {
		agents, err := r.SearchAgents(t.Context(), uuid.New(), test.query, 10, 1)
		if got := strings.Join(usernames(agents), " "); err != nil || got != test.want {
			t.Errorf("looking for %q finds %q (%v), want %q", test.query, got, err, test.want)
		}
	}
	for _, query := range []string{" \t\u2003", "...", "?!", "--", `\`} {
		if _, err := r.SearchAgents(t.Context(), uuid.New(), query, 10, 1); !errors.Is(err, store.ErrNoWord) {
			t.Errorf("looking for %q: %v, want ErrNoWord", query, err)
		}
	}
}

func TestSearchAgentsOrderPagesAndBlocks(t *testing.T) {
	t.Parallel()
	r := newRig(t, storetest.URL(t))
	for minute, agent := range []struct{ username, description string }{
		{"bot", "the oldest, and exact"},
		{"botanist", "a prefix, older"},
		{"robot", "in the name"},
		{"bottle", "a prefix, newer"},
		{"gardener", "tends a BOTanic garden"},
		{"hidden_bot", "not discoverable"},
		{"enemy_bot", "has blocked the caller"},
		{"blocked_bot", "is blocked by the caller"},
	} {
		r.agent(agent.username, agent.description, minute)
	}
	caller := r.agent("caller", "", 100)
	r.exec(`UPDATE agents SET is_discoverable = false WHERE username = 'hidden_bot'`)
	r.exec(`INSERT INTO blocks (blocker_id, blocked_id, created_at) SELECT id, $1, now() FROM agents WHERE username = 'enemy_bot'`, caller)
	r.exec(`INSERT INTO blocks (blocker_id, blocked_id, created_at) SELECT $1, id, now() FROM agents WHERE username = 'blocked_bot'`, caller)
	all := []string{"bot", "bottle", "botanist", "blocked_bot", "gardener", "robot"}
	for _, query := range []string{"bot", " BOT ", "bO"} {
		want := all
		if query == "bO" { // nothing is exact
			want = []string{"bottle", "botanist", "bot", "blocked_bot", "gardener", "robot"}
		}
		agents, err := r.SearchAgents(t.Context(), caller, query, 100, 1)
		if diff := cmp.Diff(want, usernames(agents)); err != nil || diff != "" {
			t.Errorf("looking for %q (%v, -want +got):\n%s", query, err, diff)
		}
		for page := range int64(5) {
			part, err := r.SearchAgents(t.Context(), caller, query, 2, page+1)
			if diff := cmp.Diff(want[min(len(want), int(2*page)):min(len(want), int(2*page+2))], usernames(part)); err != nil || diff != "" {
				t.Errorf("page %d of looking for %q (%v, -want +got):\n%s", page+1, query, err, diff)
			}
		}
	}
	for _, page := range []int64{1000, 1 << 40, 1<<53 - 1} {
		if agents, err := r.SearchAgents(t.Context(), caller, "bot", 100, page); err != nil || len(agents) != 0 {
			t.Errorf("page %d has %d agents (%v), want none and no error", page, len(agents), err)
		}
	}
}

// TestSearchAgentsAtTheBounds: of a query that more match than are ranked, the equal name, the names that begin with it and the newest
// come in their order.
func TestSearchAgentsAtTheBounds(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	r := newRig(t, storetest.URL(t))
	r.agent("needle", "the one and only", -600_000)
	r.agent("crow", "older than the whole crowd", -600_001)
	r.crowd(30_000, `'we are many, number ' || i`)
	newest := []string{"crowd_30000", "crowd_29999", "crowd_29998", "crowd_29997"}
	for _, test := range []struct {
		query string
		want  []string
	}{
		{"crowd", newest}, // a prefix of all
		{"many", newest},  // in every description
		{"ma", newest},    // without a trigram
		{"crow", append([]string{"crow"}, newest...)}, // the exact one is the oldest
		{"ne", []string{"needle"}},                    // a prefix without a trigram, older than the newest ones
		{"needle", []string{"needle"}},
		{"many 12345", []string{"crowd_12345"}}, // a rare word beside a common one
		{"y 12345", []string{"crowd_12345"}},    // a rare one beside one without a trigram
	} {
		agents, err := r.SearchAgents(t.Context(), uuid.New(), test.query, 10, 1)
		got := usernames(agents)
		if len(test.want) > 1 {
			got = got[:min(len(got), len(test.want))]
		}
		if diff := cmp.Diff(test.want, got); err != nil || diff != "" {
			t.Errorf("looking for %q (%v, -want +got):\n%s", test.query, err, diff)
		}
	}
	seen := map[string]bool{}
	for page := int64(1); ; page++ {
		agents, err := r.SearchAgents(t.Context(), uuid.New(), "crowd", 100, page)
		testkit.NoError(t, err)
		if len(agents) == 0 {
			break
		}
		for _, name := range usernames(agents) {
			if seen[name] {
				t.Fatalf("%s stands on two pages", name)
			}
			seen[name] = true
		}
	}
	if len(seen) < 10_000 || len(seen) > 20_000 {
		t.Errorf("%d agents are ranked, want the newest 10,000 and at most twice as many", len(seen))
	}
}

// conversation creates a discoverable group chat or channel; minute is when.
func (r *rig) conversation(kind, name string, description *string, minute int) {
	r.t.Helper()
	r.exec(`INSERT INTO conversations (id, kind, name, description, admin_id, is_discoverable, member_count, created_at)
		SELECT gen_random_uuid(), $1, $2, $3, id, true, 3, timestamptz '2025-01-01' + make_interval(mins => $4) FROM agents LIMIT 1`, kind, name,
		description, minute)
}

func TestSearchConversations(t *testing.T) {
	t.Parallel()
	r := newRig(t, storetest.URL(t))
	r.agent("admin", "", 0)
	for _, kind := range []string{store.KindGroup, store.KindChannel} {
		r.conversation(kind, "Rain", new("exact"), 1)
		r.conversation(kind, "rain", nil, 2)
		r.conversation(kind, "Rainy days", nil, 3)
		r.conversation(kind, "Trains", new("by rail"), 4)
		r.conversation(kind, "Weather", new("RAIN and sun"), 5)
		r.conversation(kind, "Rain, hidden", nil, 6)
		r.conversation(kind, "Rain, deleted", nil, 7)
		r.conversation(kind, "Two  spaces", nil, 8)
		r.conversation(kind, "50%_off", new(`the\border`), 9)
	}
	r.exec(`UPDATE conversations SET is_discoverable = false WHERE name = 'Rain, hidden'`)
	r.exec(`UPDATE conversations SET deleted_at = now() WHERE name = 'Rain, deleted'`)
	for _, kind := range []string{store.KindGroup, store.KindChannel} {
		for _, test := range []struct {
			query string
			want  []string
		}{
			{"rain", []string{"Rain", "rain", "Rainy days", "Weather", "Trains"}},
			{"RAIN", []string{"Rain", "rain", "Rainy days", "Weather", "Trains"}},
			{"ra", []string{"Rainy days", "Rain", "rain", "Weather", "Trains"}},
			{"rail trains", []string{"Trains"}},
			{"srail", nil},
			{"two  spaces", []string{"Two  spaces"}},
			{"50%_OFF", []string{"50%_off"}},
			{"0%", []string{"50%_off"}},
			{`the\b`, []string{"50%_off"}},
			{"hidden", nil},
			{"deleted", nil},
		} {
			found, err := r.SearchConversations(t.Context(), kind, test.query, 10, 1)
			var got []string
			for _, conversation := range found {
				got = append(got, conversation.Name)
			}
			if diff := cmp.Diff(test.want, got); err != nil || diff != "" {
				t.Errorf("looking for the %s %q (%v, -want +got):\n%s", kind, test.query, err, diff)
			}
		}
	}
}

// TestPunctuationAroundWords: punctuation around the words of a query to a directory does not count, within them it does.
func TestPunctuationAroundWords(t *testing.T) {
	t.Parallel()
	r := newRig(t, storetest.URL(t))
	r.agent("admin", "", 0)
	for i, name := range []string{"Lisbon", "Weather (Lisbon)", "lisbon weather", "Hello, World!", "hello world", "C# club", "C club",
		"ça va?", "हिन्दी", "100% Lisbon"} {
		r.conversation(store.KindChannel, name, nil, i)
	}
	const lisbon = "Lisbon, lisbon weather, 100% Lisbon, Weather (Lisbon)"
	for query, want := range map[string]string{
		"lisbon!":          lisbon,
		`"Lisbon"`:         lisbon,
		"(Lisbon),":        lisbon,
		"¿lisbon? - …":     lisbon,
		"「lisbon」":         lisbon,
		"@lisbon":          lisbon,
		"weather, lisbon.": "lisbon weather, Weather (Lisbon)",
		"weather (lisbon)": "Weather (Lisbon), lisbon weather",
		"lisbon, weather":  "lisbon weather, Weather (Lisbon)",
		"hello, world!":    "Hello, World!, hello world",
		"hello world":      "hello world, Hello, World!",
		"(c#)":             "C# club",
		"#c":               "C club, C# club",
		"(100%)":           "100% Lisbon",
		"«ça» va?":         "ça va?",
		"हिन्दी।":          "हिन्दी",
		"lis.bon":          "",
	} {
		found, err := r.SearchConversations(t.Context(), store.KindChannel, query, 10, 1)
		var names []string
		for _, conversation := range found {
			names = append(names, conversation.Name)
		}
		if got := strings.Join(names, ", "); err != nil || got != want {
			t.Errorf("looking for %q finds %q (%v), want %q", query, got, err, want)
		}
	}
}

// TestEqualNames: of equal names the one with the most members comes first, then the oldest, so that a copy comes behind what it copies.
func TestEqualNames(t *testing.T) {
	t.Parallel()
	r := newRig(t, storetest.URL(t))
	r.agent("admin", "", 0)
	for _, kind := range []string{store.KindGroup, store.KindChannel} {
		for minute, of := range []struct {
			name, description string
			members           int
		}{
			{"Weather", "the oldest", 3}, {"Weather", "the largest", 9}, {"Sun", "weather, between them", 1}, {"WEATHER", "a copy", 3},
			{"Rain", "weather: the original", 5}, {"Storm", "weather, meanwhile", 1}, {"rain", "weather: a copy", 5},
		} {
			r.conversation(kind, of.name, &of.description, minute)
			r.exec(`UPDATE conversations SET member_count = $1 WHERE kind = $2 AND description = $3`, of.members, kind, of.description)
		}
		for _, query := range []string{"weather", "we"} {
			want := []string{"the largest", "the oldest", "a copy", "weather, meanwhile", "weather: the original", "weather: a copy",
				"weather, between them"}
			var got []string
			for page := range int64(3) {
				found, err := r.SearchConversations(t.Context(), kind, query, 3, page+1)
				testkit.NoError(t, err)
				for _, conversation := range found {
					got = append(got, conversation.Description)
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("looking for the %s %q (-want +got):\n%s", kind, query, diff)
			}
		}
	}
}

// TestSearchUsesTheIndexes looks at the plans on tables that are large enough for the difference to matter.
func TestSearchUsesTheIndexes(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	r := newRig(t, storetest.URL(t))
	r.crowd(40_000, `'we forecast number ' || i || ' and talk about ' || md5(i::text)`)
	r.exec(`INSERT INTO conversations (id, kind, name, description, admin_id, is_discoverable, member_count, created_at)
		SELECT gen_random_uuid(), (ARRAY['group', 'channel'])[1 + i % 2], 'Talk ' || i, md5(i::text), (SELECT id FROM agents LIMIT 1), true, 1,
			timestamptz '2024-01-01' + make_interval(secs => i) FROM generate_series(1, 40000) AS i`)
	chat := r.chat(40_000, `'number ' || i || ' says ' || md5(i::text)`)
	r.exec(`VACUUM ANALYZE`)
	directory := func(kind, query string) func() (string, error) {
		return func() (string, error) { return r.ExplainDirectory(t.Context(), kind, query) }
	}
	message := func(query string) func() (string, error) {
		return func() (string, error) { return r.ExplainLookUp(t.Context(), chat, query) }
	}
	seqScan := regexp.MustCompile(`Seq Scan on (agents|conversations|messages)`)
	for _, test := range []struct {
		name    string
		explain func() (string, error)
		want    string
		never   string // a part of the plan that must not have run
	}{
		{"a rare word", directory("", "c4ca4238"), "Bitmap Index Scan on agents_search", "agents_newest"},
		{"a common and a rare word", directory("", "forecast c4ca4238"), "Bitmap Index Scan on agents_search", "agents_newest"},
		{"words that nobody has together", directory("", "crowd_39999 c4ca4238"), "Bitmap Index Scan on agents_search", "agents_newest"},
		{"a word without a trigram", directory("", "zz"), "Index Scan using agents_newest", "agents_search"},
		{"a group", directory(store.KindGroup, "c4ca4238"), "Bitmap Index Scan on conversations_search", "conversations_newest"},
		{"a channel", directory(store.KindChannel, "c4ca4238"), "Bitmap Index Scan on conversations_search", "conversations_newest"},
		{"a channel without a trigram", directory(store.KindChannel, "zz"), "Index Scan using conversations_newest", "conversations_search"},
		{"a rare word in messages", message("c4ca4238"), "Bitmap Index Scan on messages_search", "messages_pkey"},
		{"a rare word in messages that are not under NFC", message("c4ca4238"), "Bitmap Index Scan on messages_not_nfc", "messages_pkey"},
		{"two rare words in messages", message("number.*(c4ca4238|eccbc87e)"), "Bitmap Index Scan on messages_search", "messages_pkey"},
	} {
		plan, err := test.explain()
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		if !strings.Contains(plan, test.want) || seqScan.MatchString(plan) {
			t.Errorf("%s is not found by %q:\n%s", test.name, test.want, plan)
		}
		for line := range strings.Lines(plan) {
			if strings.Contains(line, test.never) && !strings.Contains(line, "never executed") {
				t.Errorf("%s: %q ran although it need not:\n%s", test.name, test.never, plan)
			}
		}
	}
	common := regexp.MustCompile(`Scan.* on agents d.*actual time=\S+ rows=(\d+)`)
	plan, err := r.ExplainDirectory(t.Context(), "", "forecast")
	testkit.NoError(t, err)
	for _, match := range common.FindAllStringSubmatch(plan, -1) {
		if len(match[1]) > len("10000") {
			t.Errorf("a word that all have makes %s rows in one step, want at most 10000:\n%s", match[1], plan)
		}
	}
}

// chat creates a private chat with n messages, whose content is an expression of i.
func (r *rig) chat(n int, content string) *store.ConversationView {
	r.t.Helper()
	id, low, high := uuid.Must(uuid.NewV7()), uuid.Must(uuid.NewV7()), uuid.Must(uuid.NewV7())
	for _, agent := range []uuid.UUID{low, high} {
		r.exec(`INSERT INTO agents (id, username, description, is_discoverable, key_hash, created_at)
			VALUES ($1, $2, '', true, sha256(convert_to($2, 'UTF8')), now())`, agent, "a_"+strings.ReplaceAll(agent.String(), "-",
			"")[:24]+agent.String()[30:])
	}
	r.exec(`INSERT INTO conversations (id, kind, last_number, member_count, created_at) VALUES ($1, 'private', $2, 2, now())`, id, n)
	r.exec(`INSERT INTO memberships (conversation_id, agent_id, status, read_number, joined_number, joined_at)
		SELECT $1, unnest(CAST($2 AS uuid[])), 'member', 0, 0, now()`, id, []uuid.UUID{low, high})
	r.exec(`INSERT INTO messages (conversation_id, number, id, sender_id, content, created_at)
		SELECT $1, i, gen_random_uuid(), $2, `+content+`, now() FROM generate_series(1, CAST($3 AS int)) AS i`, id, low, n)
	view, err := r.ConversationView(r.t.Context(), store.KindPrivate, id, low)
	testkit.NoError(r.t, err)
	return view
}

// chatOf creates a private chat with these messages.
func (r *rig) chatOf(contents []string) *store.ConversationView {
	r.t.Helper()
	r.exec(`CREATE TEMPORARY TABLE contents (i int, content text)`)
	rows := make([][]any, len(contents))
	for i, content := range contents {
		rows[i] = []any{i + 1, content}
	}
	if _, err := r.connection.CopyFrom(context.Background(), pgx.Identifier{"contents"}, []string{"i", "content"},
		pgx.CopyFromRows(rows)); err != nil {
		r.t.Fatal(err)
	}
	view := r.chat(len(contents), `(SELECT c.content FROM contents c WHERE c.i = i.i)`)
	r.exec(`DROP TABLE contents`)
	return view
}

func numbers(matches *store.Matches) []int64 {
	var list []int64
	if matches != nil {
		for _, message := range matches.Messages {
			list = append(list, message.Number)
		}
	}
	return list
}

// TestTextIsComparedUnderNFC: a word is found however its accents are encoded, in messages and in directories, and is returned as sent.
func TestTextIsComparedUnderNFC(t *testing.T) {
	t.Parallel()
	r := newRig(t, storetest.URL(t))
	const composed, decomposed = "Café Müller Việt 한국", "Cafe\u0301 Mu\u0308ller Vie\u0323\u0302t \u1112\u1161\u11ab\u1100\u116e\u11a8"
	chat := r.chatOf([]string{composed, decomposed})
	for i, text := range []string{composed, decomposed} {
		r.agent([]string{"composed", "decomposed"}[i], text, i)
		r.conversation(store.KindGroup, text, nil, i)
		r.conversation(store.KindChannel, text, new("a description"), i)
	}
	for _, query := range []string{
		"café", "CAFE\u0301", "müller", "mu\u0308ller", "việt", "vie\u0323\u0302t", "vi\u00ea\u0323t", "한국",
		"\u1112\u1161\u11ab\u1100\u116e\u11a8",
	} {
		for _, expression := range []string{query, "(" + query + "|x{9})", "[a-c]?" + query} {
			matches, err := r.SearchMessages(t.Context(), chat, expression, 50, 1, nil)
			if diff := cmp.Diff([]int64{2, 1}, numbers(matches)); err != nil || diff != "" {
				t.Errorf("looking for %+q in messages (%v, -want +got):\n%s", expression, err, diff)
			} else if sent := matches.Messages[0].Content; sent != decomposed {
				t.Errorf("the message %+q is returned as %+q", decomposed, sent)
			}
		}
		agents, err := r.SearchAgents(t.Context(), uuid.New(), query, 10, 1)
		if diff := cmp.Diff([]string{"decomposed", "composed"}, usernames(agents)); err != nil || diff != "" {
			t.Errorf("looking for the agent %+q (%v, -want +got):\n%s", query, err, diff)
		}
		for _, kind := range []string{store.KindGroup, store.KindChannel} {
			found, err := r.SearchConversations(t.Context(), kind, query, 10, 1)
			if err != nil || len(found) != 2 || found[0].Name == found[1].Name {
				t.Errorf("looking for the %s %+q finds %+v (%v), want both names as they were given", kind, query, found, err)
			}
		}
	}
}
