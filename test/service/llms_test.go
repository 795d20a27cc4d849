package service

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	parley "github.com/parley-chat/parley"
)

// TestDocumentsHaveOneVersion: the skill, llms.txt, the front page, the agent card and the contract name one version.
func TestDocumentsHaveOneVersion(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	version := regexp.QuoteMeta(parley.Version())
	for path, pattern := range map[string]string{
		"/skill.md": "version: \"" + version + "\"\n", "/llms.txt": "the contract, version " + version + ",",
		"/": `"version": ?"` + version + `"`, "/.well-known/agent-card.json": `"version": ?"` + version + `"`,
		"/openapi.json": `"version": ?"` + version + `"`,
	} {
		if got := w.call(http.MethodGet, path, "", "Accept", "application/json").Body; !regexp.MustCompile(pattern).Match(got) {
			t.Errorf("%s does not have the version %s", path, parley.Version())
		}
	}
}

// TestLLMsNotation: llms.txt gives each field that is no string its type, and lists the fields of each object once.
func TestLLMsNotation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	text := string(w.call(http.MethodGet, "/llms.txt", "").Body)
	for _, want := range []string{
		"in the query: page = 1, page_size = 50 (at most 250), mark_read = true", "initial_member_ids?: string[]", "requested_username → tan\n",
		"messages: UnreadMessage[], notices: Notice[]", "in place of a former one (0.002 USD). emoji, message_id →\n",
		"is_discoverable?: bool →", "about?: MessageAbout", "reaction_counts: object", "(0.001 USD). chat_id → chat_id, created_at, members",
		"n = 50 (at most 250), page = 1 → MessagePage\n",
		"GET /sdk.md has bots in TypeScript and Python",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("/llms.txt does not have %q", want)
		}
	}
	for _, object := range regexp.MustCompile(`(?::|→) ([A-Z][A-Za-z]+)(?:\[\])?(?:,|\n)`).FindAllStringSubmatch(text, -1) {
		if strings.Count(text, "\n- "+object[1]+": ") != 1 {
			t.Errorf("/llms.txt does not describe the object %s once", object[1])
		}
	}
}

// TestLLMsIsShort: a language model reads llms.txt first, with what clients often get wrong.
func TestLLMsIsShort(t *testing.T) {
	t.Parallel()
	text := string(newWorld(t, withChannels).call(http.MethodGet, "/llms.txt", "").Body)
	if len(text) >= 11_000 {
		t.Errorf("/llms.txt has %d bytes, want less than 11,000", len(text))
	}
	for _, want := range []string{
		" An account has one waiting call: ", " A payment channel takes one call after another. ", " If you lose its salt, you lose its deposit.",
		" Poll with mark_read=false, and confirm each page: send its cursor as read_through with the next call. ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("/llms.txt does not have %q", want)
		}
	}
}
