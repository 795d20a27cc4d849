//go:build consistency

package consistency

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/testkit"
)

// control is a protection that is removed from the program, and the kind of history that shows it.
type control struct {
	name, shows string
	edits       []edit
}

// edit replaces a text, which the file has once. $ stands for the name of the control: store.Without returns its second argument, or the
// third one if the protection is removed.
type edit struct{ file, old, new string }

// statement is an edit of the texts in store/sql, when they are read.
func statement(old, changed string) edit {
	files, _ := filepath.Glob("../../store/sql/*.sql") // fails only for a malformed pattern
	if !slices.ContainsFunc(files, func(file string) bool {
		text, _ := os.ReadFile(file)
		return strings.Contains(string(text), old)
	}) {
		panic("no statement has " + old + ": adapt the control")
	}
	const read = "\treturn string(text)\n"
	return edit{"store/batch_statement.go", read,
		"\ttext = Replaced($, text, " + strconv.Quote(old) + ", " + strconv.Quote(changed) + ")\n" + read}
}

// without is a file of package store in the program of the controls. The environment names the protection that is removed, so one program
// is built for all of them.
const without = `package store

import (
	"os"
	"strings"
)

var removed = os.Getenv("REMOVED_PROTECTION")

// Replaced returns the text of a statement, changed if the protection is removed.
func Replaced(protection string, text []byte, old, changed string) []byte {
	return []byte(strings.ReplaceAll(string(text), old, Without(protection, old, changed)))
}

// Without returns the first value, or the second one if the protection is removed.
func Without[T any](protection string, with, without T) T {
	if removed == protection {
		return without
	}
	return with
}
`

var controls = []control{
	{"a banned agent writes", "group chat", []edit{
		statement("i.refusal IS NULL AND", "(i.refusal IS NULL OR i.kind = 'group') AND"),
		statement("m.agent_id = i.sender AND m.status = 'member') = 1", "m.agent_id = i.sender) = 1"),
	}},
	{"a banned agent reads", "group chat", []edit{{"server/access.go", "case view.Status == store.StatusMember, channel",
		"case view.Status == store.StatusMember, view.Status == store.Without($, store.StatusMember, store.StatusBanned), channel"}}},
	{"a cache serves a banned reader for two seconds", "group chat", []edit{
		{"store/conversation.go", "const viewColumns = `", "var viewColumns = `"},
		{"store/conversation.go", "coalesce(m.status, '') AS status, ", "` + Without($, ``, `CASE WHEN m.status = 'banned' AND m.joined_at > " +
			"now() - interval '2 seconds' THEN 'member' ELSE `) + `coalesce(m.status, '')` + Without($, ``, ` END`) + ` AS status, "},
	}},
	{"leaving changes nothing", "group chat", []edit{{"store/conversation_membership.go",
		"tx.endMemberships(ctx, conversation, []uuid.UUID{agent})",
		"tx.endMemberships(ctx, conversation, Without($, []uuid.UUID{agent}, nil))"}}},
	{"a response comes before the commit", "group chat", []edit{{"store/commit.go", "err = s.group.sends.send(ctx,",
		"err = Without($, s.group.sends.send, func(ctx context.Context, m paidMessage) error {\n" +
			"go s.group.sends.send(context.WithoutCancel(ctx), m)\nreturn nil\n})(ctx,"}}},
	{"a blocked agent writes", "private chat", []edit{statement("i.refusal IS NULL AND", "coalesce(i.refusal, 'blocked') = 'blocked' AND")}},
	{"two polls at once return a message", "unread messages", []edit{
		statement("WHERE r.once AND b.n IS NULL", "WHERE false"), statement("FROM turn WHERE NOT taken", "FROM turn WHERE false"),
		{"store/unread.go", "SELECT pg_advisory_xact_lock(", "SELECT `+Without($, `pg_advisory_xact_lock`, `abs`)+`("},
	}},
	{"a poll does not mark what it returns", "unread messages", []edit{
		{"store/unread.go", "tx.mark(ctx, agent, unread.Ranges()...)", "tx.mark(ctx, agent, Without($, unread.Ranges(), nil)...)"},
		{"store/commit.go", "ranges: unread.Ranges(), once: true", "ranges: Without($, unread.Ranges(), nil), once: true"},
	}},
	{"the read marker skips messages", "unread messages", []edit{
		statement("r.conversation, r.oldest, r.newest)", "r.conversation, 1, r.newest)"),
		{"server/message.go", "if read.Newest > view.ReadNumber && read.Oldest-1-view.ReadNumber <= view.UnreadOwn {",
			"if store.Without($, read.Newest > view.ReadNumber && read.Oldest-1-view.ReadNumber <= view.UnreadOwn, true) {"},
	}},
	{"who joins again has read nothing", "unread messages", []edit{{"store/conversation_membership.go", "a.id, @status, c.number, c.number,",
		"a.id, @status, ` + Without($, `c.number`, `0`) + `, c.number,"}}},
	{"a notice is not replaced", "notices", []edit{{"store/notice.go", "WITH replaced AS (DELETE FROM notices WHERE conversation_id",
		"WITH replaced AS (DELETE FROM notices WHERE ` + Without($, `true`, `false`) + ` AND conversation_id"}}},
	{"a notice comes again", "notices", []edit{{"store/notice.go", `Where("agent_id = ? AND number IN ?", agent, numbers)`,
		`Where(Without($, "agent_id = ? AND number IN ?", "false AND agent_id = ? AND number IN ?"), agent, numbers)`}}},
	{"a server keeps a replaced key in its cache", "key", []edit{{"store/agent.go", "tx.changed = rotated > 0",
		"tx.changed = Without($, rotated > 0, false)"}}},
	{"a cache serves a replaced key for three seconds", "key", []edit{{"store/agent_cache.go", "load.began.Add(cachedFor)",
		"load.began.Add(Without($, cachedFor, 3*time.Second))"}}},
	{"two calls replace one key", "key", []edit{{"store/agent.go", `Where("id = ? AND key_hash = ?", agent.ID, agent.KeyHash)`,
		`Where(Without($, "id = ? AND key_hash = ?", "id = ? OR false AND key_hash = ?"), agent.ID, agent.KeyHash)`}}},
	{"a voucher is not charged", "payment channel", []edit{statement("SET charged = d.cumulative,", "SET charged = c.charged,")}},
}

// searchTime is how long a control may take to be found.
const searchTime = 5 * time.Minute

// TestControls removes protections and expects that the checks find it. CONSISTENCY_CONTROLS is a pattern of their names, all by default.
func TestControls(t *testing.T) {
	chosen, err := regexp.Compile(os.Getenv("CONSISTENCY_CONTROLS"))
	if err != nil {
		t.Fatalf("CONSISTENCY_CONTROLS: %v", err)
	}
	found, program := 0, unprotected(t)
	for number, c := range controls {
		if !chosen.MatchString(c.name) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, program, "REMOVED_PROTECTION="+c.name)
			shown := func(r *Report) int {
				return slices.IndexFunc(r.Anomalies, func(anomaly *Partition) bool { return anomaly.Kind == c.shows })
			}
			report := run(t, w, uint64(number), searchTime, func(r *Report) bool { return shown(r) >= 0 }) //nolint:gosec // small
			if shown(report) < 0 {
				t.Fatalf("the checks of %d operations find nothing in the histories of kind %q, but %d other anomalies; %d took too long",
					report.Operations, c.shows, len(report.Anomalies), len(report.Unknown))
			}
			found++
			t.Logf("found after %d operations:\n%s", report.Operations, report.Anomalies[shown(report)])
		})
	}
	if found == 0 {
		t.Errorf("no control was found")
	}
}

// unprotected builds a program in which each protection can be removed.
func unprotected(t *testing.T) (program string) {
	t.Helper()
	root, err := filepath.Abs("../..")
	testkit.NoError(t, err)
	folder := t.TempDir()
	texts := map[string]string{"store/without.go": without}
	for _, c := range controls {
		for _, e := range c.edits {
			if _, read := texts[e.file]; !read {
				text, err := os.ReadFile(filepath.Join(root, e.file))
				testkit.NoError(t, err)
				texts[e.file] = string(text)
			}
			if n := strings.Count(texts[e.file], e.old); n != 1 {
				t.Fatalf("%s: %s has %q %d times, want once: adapt the control", c.name, e.file, e.old, n)
			}
			texts[e.file] = strings.Replace(texts[e.file], e.old, strings.ReplaceAll(e.new, "$", strconv.Quote(c.name)), 1)
		}
	}
	replace := map[string]string{}
	for name, text := range texts {
		changed := filepath.Join(folder, strings.ReplaceAll(name, "/", "-"))
		testkit.NoError(t, os.WriteFile(changed, []byte(text), 0o600))
		replace[filepath.Join(root, name)] = changed
	}
	overlay, program := filepath.Join(folder, "overlay.json"), filepath.Join(folder, "parley")
	replacements, err := json.Marshal(map[string]any{"Replace": replace})
	if err == nil {
		err = os.WriteFile(overlay, replacements, 0o600)
	}
	testkit.NoError(t, err)
	build := exec.Command("go", "build", "-overlay", overlay, "-o", program, "./cmd/parley")
	build.Dir = root
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, output)
	}
	return program
}
