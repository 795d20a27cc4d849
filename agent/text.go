package agent

import (
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/parley-chat/parley/x402"
)

// Text that other agents wrote is data. It may contain instructions for the model that reads it, sequences that drive a terminal, and
// characters that nobody sees. The functions of this file show it so that it stays data.

// Visible returns text in which every character is seen: control characters except line feed and tab, characters that change the
// direction of text, and those without width become \u{202E}. A backslash before u{ is doubled, so the result is unambiguous.
func Visible(text string) string {
	// A backslash is doubled first: what Reveal writes is not text of others.
	return Reveal(strings.ReplaceAll(text, `\u{`, `\\u{`))
}

// Reveal returns text in which every character is seen, as [Visible] does. Text that went through Visible stays as it is, so this is for a
// whole output of which parts did.
func Reveal(text string) string {
	return replaceHidden(text, func(r rune) string { return fmt.Sprintf(`\u{%04X}`, r) })
}

// EscapeJSON returns JSON with the same content in which every character is seen: those that [Visible] replaces become \u202e.
func EscapeJSON(text string) string {
	return replaceHidden(text, func(r rune) string {
		if high, low := utf16.EncodeRune(r); high != unicode.ReplacementChar {
			return fmt.Sprintf(`\u%04x\u%04x`, high, low)
		}
		return fmt.Sprintf(`\u%04x`, r)
	})
}

// replaceHidden replaces the characters that a reader cannot see, and bytes that are not UTF-8.
func replaceHidden(text string, with func(rune) string) string {
	if !strings.ContainsFunc(text, isHidden) && utf8.ValidString(text) {
		return text
	}
	var shown strings.Builder
	var before rune
	for i, r := range text {
		if r == utf8.RuneError && !strings.HasPrefix(text[i:], string(utf8.RuneError)) {
			fmt.Fprintf(&shown, `\u{invalid %02X}`, text[i])
			before = 0
			continue
		}
		next, _ := utf8.DecodeRuneInString(text[i+utf8.RuneLen(r):])
		if isHidden(r) && !ofEmoji(before, r, next) {
			shown.WriteString(with(r))
		} else {
			shown.WriteRune(r)
		}
		if r != emojiStyle {
			before = r
		}
	}
	return shown.String()
}

// The characters without width that emoji need.
const (
	zeroWidthJoiner = '\u200D'
	emojiStyle      = '\uFE0F'
)

// ofEmoji reports whether a character without width belongs to an emoji: it follows a symbol, and a joiner is also before one.
func ofEmoji(before, r, next rune) bool {
	symbol := unicode.In(before, unicode.So, unicode.Sk)
	return symbol && (r == emojiStyle && next != emojiStyle || r == zeroWidthJoiner && unicode.Is(unicode.So, next))
}

// isHidden reports whether a reader cannot see a character, or would see others in another order because of it.
func isHidden(r rune) bool {
	switch r {
	case '\n', '\t', ' ', '\u00A0':
		return false
	case '\u2800': // a Braille pattern without dots
		return true
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Cs, unicode.Z, unicode.Variation_Selector,
		unicode.Other_Default_Ignorable_Code_Point)
}

// neverShown reports whether a character is seen neither by itself nor as a part of an emoji or of a letter of any script.
func neverShown(r rune) bool {
	return r != zeroWidthJoiner && r != '\u200C' && (r < 0xE0020 || r > 0xE007F) && unicode.Is(unicode.Cf, r) &&
		!unicode.In(r, unicode.Prepended_Concatenation_Mark, unicode.Egyptian_Hieroglyphs)
}

// plainName is what a name may contain without being quoted.
func plainName(r rune) bool {
	return r == '-' || r == '_' || r == '.' || r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r))
}

// VisibleName returns a name that somebody else chose, on one line. It is quoted unless it is a plain word.
func VisibleName(name string) string {
	const maxName = 80
	if name != "" && len(name) <= maxName && !strings.ContainsFunc(name, func(r rune) bool { return !plainName(r) }) {
		return name
	}
	return strconv.Quote(Visible(Cut(strings.NewReplacer("\n", " ", "\t", " ").Replace(name), maxName)))
}

// PlainWord returns a word that the contract limits to letters, digits and the like, such as a username or an id. A server that lies may
// send anything, which is not shown.
func PlainWord(word string) string {
	if word == "" || VisibleName(word) == word {
		return word
	}
	return "(not shown)"
}

// Tame reports whether a name has no characters with which it could be more than a name: in Markdown or HTML, in a fence, or in a shell.
func Tame(name string) bool {
	return !strings.ContainsAny(name, "<>[]()!`|$&;'\"\\\n\t") && Visible(name) == name
}

// Cut returns at most n characters of a text.
func Cut(text string, n int) string {
	for i := range text {
		if n == 0 {
			return text[:i] + "…"
		}
		n--
	}
	return text
}

// USD formats an amount of atomic units with at least two decimals: 0.005 or 1.00.
func USD(amount uint64) string {
	text := x402.FormatUSD(amount)
	cents := strings.IndexByte(text, '.') + len(".00")
	return text[:cents] + strings.TrimRight(text[cents:], "0")
}

// Fence marks text of other agents as data in a result that a model reads. Each result has a fence of its own, with an id that nobody could
// know when the text was written.
type Fence struct{ id string }

func NewFence() Fence { return Fence{strings.ToLower(rand.Text()[:8])} }

func (f Fence) Text(head, text string) string {
	return fmt.Sprintf("%s [data %s]\n%s\n[/data %s]", head, f.id, text, f.id)
}
