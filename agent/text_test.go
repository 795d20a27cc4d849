package agent

import (
	"strings"
	"testing"
	"unicode"

	"github.com/parley-chat/parley/internal/testkit"
)

// TestHostileText: a text is inside the fence unchanged and cannot close it; shown on a terminal, nothing in it is hidden.
func TestHostileText(t *testing.T) {
	t.Parallel()
	if len(testkit.Hostile) < 50 {
		t.Fatalf("%d hostile messages, want 50", len(testkit.Hostile))
	}
	for _, text := range testkit.Hostile {
		fence := NewFence()
		shown := fence.Text("from eve", text)
		if !strings.Contains(shown, "]\n"+text+"\n[/data "+fence.id+"]") || strings.Count(shown, fence.id) != 2 {
			t.Errorf("%q: the fence is broken:\n%s", Cut(text, 40), Cut(shown, 300))
		}
		for _, r := range Visible(text) {
			if r != '\n' && r != '\t' && unicode.IsControl(r) {
				t.Errorf("%q: %U is in the output", Cut(text, 40), r)
			}
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
