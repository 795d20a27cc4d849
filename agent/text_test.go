package agent

import (
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/parley-chat/parley/internal/testkit"
)

// TestHostileText: whatever a message contains, its lines are marked, the fence cannot be closed from inside, and nothing is hidden.
func TestHostileText(t *testing.T) {
	t.Parallel()
	if len(testkit.Hostile) < 50 {
		t.Fatalf("%d hostile messages, want 50", len(testkit.Hostile))
	}
	for _, text := range testkit.Hostile {
		fence := NewFence()
		shown := fence.Message(Received{From: text, In: text, ID: text, At: time.Now(), Text: text}, 1000)
		lines := strings.Split(shown, "\n")
		if !strings.HasPrefix(lines[0], "["+fence.id+" from ") || lines[len(lines)-1] != "[/"+fence.id+"]" ||
			strings.Count(shown, fence.id) != 2 {
			t.Errorf("%q: the fence is broken:\n%s", Cut(text, 40), Cut(shown, 300))
		}
		for _, line := range lines[1 : len(lines)-1] {
			if !strings.HasPrefix(line, "| ") {
				t.Errorf("%q: a line is not marked: %q", Cut(text, 40), line)
			}
		}
		if utf8.RuneCountInString(shown) > 12_000 || !utf8.ValidString(shown) {
			t.Errorf("%q: %d characters", Cut(text, 40), utf8.RuneCountInString(shown))
		}
		for _, r := range shown {
			if r != '\n' && unicode.IsControl(r) {
				t.Errorf("%q: %U is in the output", Cut(text, 40), r)
			}
		}
		for _, loads := range []string{"![", "](", "<img", "<script", "```"} {
			if strings.Contains(shown, loads) {
				t.Errorf("%q: %s is in the output", Cut(text, 40), loads)
			}
		}
	}
}

// TestHeldText: nothing of a stranger's text is shown.
func TestHeldText(t *testing.T) {
	t.Parallel()
	for _, text := range testkit.Hostile {
		shown := NewFence().Message(Received{From: "eve", At: time.Now(), Text: text, Held: true}, 1000)
		if len(text) > 3 && strings.Contains(shown, text) {
			t.Errorf("a stranger's text is shown: %s", shown)
		}
	}
}

// TestOrdinaryText: ordinary text stays as it is.
func TestOrdinaryText(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"hello, world", "zwei Zeilen\nmit Umlauten: äöü", "日本語\tпривет", "a < b", "👍 ok",
		"résumé", "❤️ 👩‍👩‍👧 👍🏽",
	} {
		if Visible(text) != text {
			t.Errorf("%q is shown as %q", text, Visible(text))
		}
	}
	for name, want := range map[string]string{
		"bob": "bob", "Weather Berlin": `"Weather Berlin"`, "": `""`, "a\nb": `"a b"`,
		"\u202Ebob": `"\\u{202E}bob"`,
	} {
		if got := VisibleName(name); got != want {
			t.Errorf("the name %q is shown as %s, want %s", name, got, want)
		}
	}
}
