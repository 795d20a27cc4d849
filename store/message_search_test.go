package store_test

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/text/unicode/norm"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/store/storetest"
)

// messageSearches are searches of the chat of TestSearchMessages, and the numbers of the messages that match.
var messageSearches = []struct {
	query string
	want  []int64
}{
	{"lisbon", []int64{2, 1}},
	{"LISBON", []int64{2, 1}},
	{"lisbon|porto", []int64{2, 1}},
	{"rain|porto", []int64{2, 1}},
	{"^no", []int64{2}},
	{"tomorrow\\?$", []int64{1}},
	{"(sun|rain) in lisbon", []int64{2, 1}},
	{"sun.*porto", []int64{2}},
	{"porto.*sun", nil},
	{"colou?ds|clou?ds", []int64{2}},
	{"(?-i)lisbon", nil},
	{"(?-i)Lisbon", []int64{1}},
	{`\$\d+\.\d{2}`, []int64{3}},
	{"(a+b)", nil}, // an expression: one or more a, then b
	{"(a+b", []int64{3}},
	{"a+b)", []int64{3}},
	{"[now", []int64{3}},
	{"100% \\o", []int64{3}}, // \o is no escape: literal
	{`\o/`, []int64{3}},
	{`100% \o/`, []int64{3}},
	{"line$", []int64{4}},
	{"first line$", nil},
	{"(?m)first line$", []int64{4}},
	{"first.*second", nil},
	{"(?s)first.*second", []int64{4}},
	{`line\nsecond`, []int64{4}},
	{"привет", []int64{5}},
	{"москва", []int64{5}},
	{"STRAßE", []int64{5}},
	{"οδος", []int64{5}},
	{"οδοσ", []int64{5}},
	{"東京", []int64{6}},
	{"東京タワー", []int64{6}},
	{"🦜🦜", []int64{6}},
	{"🦜{2}", []int64{6}},
	{"שלום", []int64{6}},
	{"עולם$", []int64{6}},
	{"kelvin", []int64{7}},
	{"lost and", []int64{7}},
	{"task_force", []int64{8}},
	{"task.force", []int64{8}},
	{"task%force", nil},
	{"KIOSK", []int64{8}},
	{"\u212AIO\u017F\u212A", []int64{8}},
	{`\x00`, nil},
	{`a\x{0}b\x{10FFFF}c`, nil},
	{"^x$", []int64{9}},
	{"lisbon*", []int64{2, 1}},
	{"(?:lisbon){1,3}", []int64{2, 1}},
	{"(?:lisbon){0}tomorrow", []int64{1}},
	{"*", nil},
}

func TestSearchMessages(t *testing.T) {
	t.Parallel()
	r := newRig(t, storetest.URL(t))
	chat := r.chatOf([]string{
		"Will it rain in Lisbon tomorrow?",
		"No: sun in LISBON, clouds in Porto.",
		"The price is $5.00 (a+b) [now] 100% \\o/",
		"first line\nsecond line",
		"Привет, МОСКВА! Straße ΟΔΟΣ",
		"東京タワー 🦜🦜 שלום עולם",
		"\u212Aelvin, lo\u017Ft and ı İ",
		"task_force kiosk",
		"x",
	})
	for _, test := range messageSearches {
		matches, err := r.SearchMessages(t.Context(), chat, test.query, 50, 1, nil)
		if err != nil {
			t.Errorf("looking for %q: %v", test.query, err)
			continue
		}
		if diff := cmp.Diff(test.want, numbers(matches)); diff != "" || matches.SearchedTo != nil {
			t.Errorf("looking for %q (bounds reached: %v, -want +got):\n%s", test.query, matches.SearchedTo != nil, diff)
		}
	}
	for want, queries := range map[error][]string{
		store.ErrPatternTooLarge: {
			`(\w?){999}(\w?){999}`, strings.Repeat(`\w{1000}`, 20), "(a?){900}", "(a{500}){500}", "x{1001}", strings.Repeat("(", 1100) + "x" +
				strings.Repeat(")", 1100),
		},
		store.ErrNothingToFind: {"", "...", ".*", "^$", "(?:)", " ", `[^\x00-\x{10FFFF}]`, `[\s\S]*`, "(?i)", "a*", "x?|y", "(lisbon){0}", `\S*`,
			"a*$", `\s+`, `[ \t]`},
	} {
		for _, query := range queries {
			if _, err := r.SearchMessages(t.Context(), chat, query, 50, 1, nil); !errors.Is(err, want) {
				t.Errorf("looking for %q: %v, want %v", query, err, want)
			}
		}
	}
	for query, literal := range map[string]bool{"lisbon": false, "(and": true, "*": true, `\d+`: false} {
		if matches, err := r.SearchMessages(t.Context(), chat, query, 50, 1, nil); err != nil || matches.Literal != literal {
			t.Errorf("%q was searched as literal: %v (%v), want %v", query, matches.Literal, err, literal)
		}
	}
}

// TestSearchMessagesPages: pages follow one another without gap, whether the index narrows the search or not.
func TestSearchMessagesPages(t *testing.T) {
	t.Parallel()
	r := newRig(t, storetest.URL(t))
	chat := r.chat(1_000, `CASE WHEN i % 7 = 0 THEN 'a needle, number ' || i ELSE 'hay, number ' || i END`)
	other := r.chat(3, `'a needle elsewhere'`)
	var want []int64
	for number := int64(994); number > 0; number -= 7 {
		want = append(want, number)
	}
	for _, query := range []string{"needle", "ne+dle,", "[n]e{2}dl", "n.*dle"} {
		var got []int64
		for page := int64(1); page <= 4; page++ {
			matches, err := r.SearchMessages(t.Context(), chat, query, 50, page, nil)
			if err != nil || matches.SearchedTo != nil {
				t.Fatalf("page %d of %q: %v %v", page, query, matches, err)
			}
			if full := page < 3; full != (len(matches.Messages) == 50) {
				t.Errorf("page %d of %q has %d matches", page, query, len(matches.Messages))
			}
			got = append(got, numbers(matches)...)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("all pages of %q (-want +got):\n%s", query, diff)
		}
	}
	first, err := r.SearchMessages(t.Context(), chat, "needle", 50, 1, nil)
	testkit.NoError(t, err)
	second, err := r.SearchMessages(t.Context(), chat, "needle", 50, 1, &first.Messages[49].ID)
	if diff := cmp.Diff(want[50:100], numbers(second)); err != nil || diff != "" {
		t.Errorf("from the last match on (%v, -want +got):\n%s", err, diff)
	}
	if first.Messages[0].SenderUsername == "" || first.Messages[0].Content != "a needle, number 994" {
		t.Errorf("the first match is %+v, want all of the message", first.Messages[0])
	}
	for _, page := range []int64{22, 1 << 40, 1<<53 - 1} {
		matches, err := r.SearchMessages(t.Context(), chat, "needle", 50, page, nil)
		if err != nil || len(matches.Messages) != 0 || matches.SearchedTo != nil {
			t.Errorf("page %d: %+v (%v), want an empty page", page, matches, err)
		}
	}
	elsewhere, err := r.SearchMessages(t.Context(), other, "needle", 50, 1, nil)
	if diff := cmp.Diff([]int64{3, 2, 1}, numbers(elsewhere)); err != nil || diff != "" {
		t.Fatalf("the other chat (%v, -want +got):\n%s", err, diff)
	}
	if _, err := r.SearchMessages(t.Context(), chat, "needle", 50, 1, &elsewhere.Messages[0].ID); !errors.Is(err, store.ErrMessageNotFound) {
		t.Errorf("an anchor in another chat: %v, want ErrMessageNotFound", err)
	}
	empty, err := r.SearchMessages(t.Context(), other, "needle", 50, 1, &elsewhere.Messages[2].ID)
	if err != nil || len(empty.Messages) != 0 {
		t.Errorf("before the first message: %+v (%v), want nothing", empty, err)
	}
}

// TestSearchMessagesAtTheBounds: a search that ends at its bounds says so, and going on from there finds all.
func TestSearchMessagesAtTheBounds(t *testing.T) {
	t.Parallel()
	r := newRig(t, storetest.URL(t))
	chat := r.chat(100, `CASE WHEN i % 10 = 0 THEN 'needle ' || i ELSE 'hay ' || i END`)
	ids := map[uuid.UUID]int64{}
	all, err := r.Messages(t.Context(), chat, 100, 1, nil, store.LongPage)
	testkit.NoError(t, err)
	for _, message := range all.Messages {
		ids[message.ID] = message.Number
	}
	for _, test := range []struct {
		name           string
		query          string
		page           int64
		messages       int
		work           int64
		indexed        int
		want           []int64
		wantSearchedTo int64
	}{
		{"in the middle", "ne+dle", 1, 25, 1 << 40, -1, []int64{100, 90, 80}, 76},
		{"second page", "ne+dle", 2, 95, 1 << 40, -1, []int64{50, 40, 30, 20, 10}, 0},
		{"second page, in the middle", "ne+dle", 2, 65, 1 << 40, -1, []int64{50, 40}, 36},
		{"a page that is never reached", "ne+dle", 3, 65, 1 << 40, -1, nil, 36},
		{"exactly at the end", "hay (1|2)$", 1, 100, 1 << 40, -1, []int64{2, 1}, 0},
		{"one before the end", "hay (1|2)$", 1, 99, 1 << 40, -1, []int64{2}, 2},
		{"a full page at the bound", "ne+dle", 1, 51, 1 << 40, -1, []int64{100, 90, 80, 70, 60}, 0},
		{"too much work for two messages", "ne+dle", 1, 100, 1, -1, []int64{100}, 100},
		{"among indexed messages", "needle", 1, 3, 1 << 40, 10, []int64{100, 90, 80}, 80},
		{"exactly all indexed messages", "needle 1", 1, 2, 1 << 40, 10, []int64{100, 10}, 0},
		{"as many as the index may name", "needle", 2, 10, 1 << 40, 10, []int64{50, 40, 30, 20, 10}, 0},
		{"more than the index may name", "needle", 2, 10, 1 << 40, 9, nil, 91},
	} {
		matches, err := r.SearchWithin(t.Context(), chat, test.query, 5, test.page, test.messages, test.work, test.indexed, 7)
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		var searchedTo int64
		if matches.SearchedTo != nil {
			searchedTo = ids[*matches.SearchedTo]
		}
		if diff := cmp.Diff(test.want, numbers(matches)); diff != "" || searchedTo != test.wantSearchedTo {
			t.Errorf("%s: searched to %d, want %d; matches (-want +got):\n%s", test.name, searchedTo, test.wantSearchedTo, diff)
		}
	}
}

// TestSearchDoesNotWaitForTheIndex: messages that have all trigrams of a query without matching it are compared with sixteen long
// patterns each, for more than a second in all. The search gives the index up and says how far it got.
func TestSearchDoesNotWaitForTheIndex(t *testing.T) {
	t.Parallel()
	r := newRig(t, storetest.URL(t))
	chat := r.chat(60, `CASE WHEN i = 59 THEN repeat('a', 245) || 'b' ELSE repeat(repeat('a', 240) || 'b', 67) END`)
	matches, err := r.SearchMessages(t.Context(), chat, "(a?a?a?a?)"+strings.Repeat("a", 241)+"b", 50, 1, nil)
	testkit.NoError(t, err)
	if diff := cmp.Diff([]int64{59}, numbers(matches)); diff != "" || matches.SearchedTo == nil {
		t.Errorf("searched to the end: %t; matches (-want +got):\n%s", matches.SearchedTo == nil, diff)
	}
}

// TestSearchNeverMisses holds searches for random patterns against the plain expression under NFC, in databases of several
// locales: whatever the index leaves out must not match.
func TestSearchNeverMisses(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	base := storetest.URL(t)
	for _, locale := range []struct{ name, options string }{
		{"the tests' own", ""},
		{"ASCII only", `LOCALE 'C'`},
		{"Turkish", `LOCALE_PROVIDER icu ICU_LOCALE 'tr' LOCALE 'C.UTF-8'`},
		{"Lithuanian", `LOCALE_PROVIDER icu ICU_LOCALE 'lt' LOCALE 'C.UTF-8'`},
		{"Greek", `LOCALE_PROVIDER icu ICU_LOCALE 'el' LOCALE 'C.UTF-8'`},
		{"Unicode's own", `LOCALE_PROVIDER icu ICU_LOCALE 'und' LOCALE 'C.UTF-8'`},
	} {
		t.Run(locale.name, func(t *testing.T) {
			url := base
			if locale.options != "" {
				url = localized(t, base, locale.options)
			}
			neverMisses(t, newRig(t, url))
		})
	}
}

// localized creates a migrated database of a locale in the server that has the database base.
func localized(t *testing.T, base, options string) string {
	config, err := pgx.ParseConfig(base)
	testkit.NoError(t, err)
	admin, err := pgx.Connect(t.Context(), base)
	testkit.NoError(t, err)
	name := "locale_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	if _, err := admin.Exec(t.Context(), `CREATE DATABASE `+name+` TEMPLATE template0 ENCODING 'UTF8' `+options); err != nil {
		admin.Close(t.Context())
		t.Skipf("this PostgreSQL has no such locale: %v", err)
	}
	t.Cleanup(func() {
		_, _ = admin.Exec(context.Background(), `DROP DATABASE `+name+` WITH (FORCE)`)
		_ = admin.Close(context.Background())
	})
	url := strings.Replace(base, config.Database, name, 1)
	s := openStore(t, url)
	if _, err := s.Migrate(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return url
}

// pieces are short texts in which folding, trigrams and LIKE have their corners.
var pieces = strings.Split("a|b|k|s|i|K|S|I|\u212A|\u017F|İ|ı|ß|ẞ|ss|é|É|e\u0301|I\u0307|i\u0307|I\u0301|Ì|"+
	"σ|ς|Σ|ΟΣ|οσ|ά|ι|Ά|Ι|άι|\u0307|д|Д|ж|Ж|ᏸ|Ᏸ|ǆ|ǅ|Ǆ|µ|μ|Å|å|\u212B|ﬁ|ŉ|東|京|9|٣|ש|ل|🦜|"+
	"%|_|\\|'|\"|,|{|}|-| | |\n|.|abc|ABC|kiosk|ask|this|TASK|foo|Bar", "|")

// expressions makes random regular expressions, many of which match one of the contents.
type expressions struct {
	random   *rand.Rand
	contents []string
}

// text joins random pieces.
func (e *expressions) text(least, most int) string {
	var b strings.Builder
	for range least + e.random.IntN(most-least+1) {
		b.WriteString(pieces[e.random.IntN(len(pieces))])
	}
	return b.String()
}

// literal is a part of a content, often in another case, or any text.
func (e *expressions) literal() string {
	if e.random.IntN(3) == 0 {
		return regexp.QuoteMeta(e.text(1, 3))
	}
	content := []rune(e.contents[e.random.IntN(len(e.contents))])
	from := e.random.IntN(len(content))
	part := string(content[from:min(len(content), from+1+e.random.IntN(7))])
	switch e.random.IntN(3) {
	case 0:
		part = strings.ToUpper(part)
	case 1:
		part = strings.ToLower(part)
	}
	return regexp.QuoteMeta(part)
}

func (e *expressions) expression(depth int) string {
	if depth == 0 || e.random.IntN(3) == 0 {
		return e.literal()
	}
	sub := func() string { return e.expression(depth - 1) }
	switch e.random.IntN(12) {
	case 0:
		return sub() + "|" + sub()
	case 1:
		return "(" + sub() + "|" + sub() + ")" + sub()
	case 2:
		return "(?:" + sub() + ")" + []string{"?", "*", "+", "{2}", "{0,2}", "{1,}", "+?"}[e.random.IntN(7)]
	case 3:
		return sub() + ".*" + sub()
	case 4:
		return "^" + sub()
	case 5:
		return sub() + "$"
	case 6:
		return `\b` + sub()
	case 7:
		return "[" + regexp.QuoteMeta(e.text(1, 3)) + "]" + sub()
	case 8:
		return "(?-i:" + sub() + ")"
	case 9:
		return "(" + sub() + ")" + sub()
	default:
		return sub() + sub()
	}
}

func neverMisses(t *testing.T, r *rig) {
	e := &expressions{random: rand.New(rand.NewPCG(4, 2))} //nolint:gosec // the same every time
	for range 400 {
		e.contents = append(e.contents, e.text(1, 14))
	}
	// Folded by neighbours: dotless i in Turkish, upsilon in Greek, sigma everywhere, i in Lithuanian.
	corners := map[string]string{"fooı\u0307": "fooı", "άυbar": "υbar", "fooΟΣ": "fooοσ", "ΟΣbar": "οςbar", "fooI\u0301": "fooi",
		"foobar": "foo(bar)*", "baz": "baz(bar)*", "OBJ\u030C": "obj", "cafe\u0301": "caf", "CAFÉ": "cafe\u0301"}
	e.contents = append(e.contents, slices.Sorted(maps.Keys(corners))...)
	chat := r.chatOf(e.contents)
	r.exec(`VACUUM ANALYZE messages`)
	narrowed, matched := 0, 0
	queries := slices.Sorted(maps.Values(corners))
	searches := testkit.Times(500)
	for len(queries) < searches {
		queries = append(queries, e.expression(3))
	}
	for _, query := range queries {
		matcher, err := regexp.Compile("(?i)" + norm.NFC.String(query))
		if err != nil {
			matcher = regexp.MustCompile("(?i)" + regexp.QuoteMeta(norm.NFC.String(query)))
		}
		var want []int64
		for i, content := range slices.Backward(e.contents) {
			if matcher.MatchString(norm.NFC.String(content)) {
				want = append(want, int64(i+1))
			}
		}
		matches, err := r.SearchMessages(t.Context(), chat, query, int64(len(e.contents)), 1, nil)
		if errors.Is(err, store.ErrNothingToFind) {
			continue
		}
		if err != nil {
			t.Fatalf("looking for %q: %v", query, err)
		}
		if diff := cmp.Diff(want, numbers(matches)); diff != "" {
			likes, _ := r.Likes(t.Context(), query)
			t.Errorf("looking for %q by %q (-plain +search):\n%s", query, likes, diff)
		}
		likes, err := r.Likes(t.Context(), query)
		testkit.NoError(t, err)
		if likes != nil {
			narrowed++
			if len(want) > 0 {
				matched++
			}
		}
	}
	t.Logf("the index narrowed %d of %d searches; %d of those matched", narrowed, searches, matched)
	if narrowed < searches/20 || matched < searches/100 {
		t.Errorf("the index narrowed %d of %d searches and %d of those matched; the test proves too little", narrowed, searches, matched)
	}
}

// TestLikes shows what the index is asked.
func TestLikes(t *testing.T) {
	t.Parallel()
	r := newRig(t, storetest.URL(t))
	for query, want := range map[string][]string{
		"Lisbon":                                 {"%lisbon%"},
		"lisbon|porto":                           {"%lisbon%", "%porto%"},
		"^Lisbon.*hotel$":                        {"%lisbon%hotel%"},
		"colou?r":                                {"%colour%", "%color%"},
		"100%_sure":                              {`%100\%\_sure%`},
		`C:\\temp`:                               {`%c:\\temp%`},
		"foo(bar)+baz":                           {"%foobar%baz%"},
		"foo(bar)*baz":                           {"%foo%baz%"},
		"ab":                                     nil,
		"ab.*cd":                                 nil,
		"lisbon|x":                               nil,
		"[a-z]+":                                 nil,
		"(aaa|bbb)(ccc|ddd)":                     {"%aaaccc%", "%aaaddd%", "%bbbccc%", "%bbbddd%"},
		"москва":                                 {"%москва%"},
		"kiosk":                                  {"%kiosk%"},
		"οδοσ νερό":                              {"%οδο% νερό%"},
		"(a|b)(c|d)(e|f)(g|h)()":                 nil,
		"hotel" + strings.Repeat("(aaa|bbb)", 6): nil,
	} {
		got, err := r.Likes(t.Context(), query)
		if strings.HasPrefix(query, "hotel") { // at most sixteen; what goes beyond is not required
			if err != nil || len(got) == 0 || len(got) > 16 || !strings.HasPrefix(got[0], "%hotelaaa") {
				t.Errorf("%q asks for %q (%v)", query, got, err)
			}
			continue
		}
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%q asks for (%v, -want +got):\n%s", query, err, diff)
		}
	}
}
