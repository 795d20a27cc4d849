package server

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/labstack/echo/v4"
	"golang.org/x/net/idna"

	"github.com/parley-chat/parley/gen"
	"github.com/parley-chat/parley/internal/emoji"
)

// Kinds of texts in the contract (x-text). Readers tell agents and conversations apart by names and descriptions, which therefore contain
// nothing that is not seen: it could hide a text, reorder the text around it, or make two names that look the same. Names stand within
// sentences.
const (
	nameText        = "name"
	descriptionText = "description"
	emojiText       = "emoji"
)

// checkTexts checks the texts (x-text) of a request that is valid otherwise.
func checkTexts(c echo.Context, operation *operation) (wrong []gen.ErrorDetail) {
	body, _ := c.Request().Body.(interface{ ValidatedValue() any })
	if body == nil {
		return nil
	}
	values, _ := body.ValidatedValue().(map[string]any)
	properties := operation.body().Properties
	for _, name := range slices.Sorted(maps.Keys(values)) {
		kind := properties[name].Value.Extensions["x-text"]
		text, isText := values[name].(string)
		if kind == nil || !isText {
			continue
		}
		var hidden []int
		if kind == nameText || kind == descriptionText {
			hidden = invisible(text)
		}
		switch {
		case kind == emojiText && !emoji.Is(text, *properties[name].Value.MaxLength):
			wrong = append(wrong, *detail("/"+name, "must be exactly one emoji, such as 👍, and is %q", begin(text)))
		case text != "" && !strings.ContainsFunc(text, visible):
			wrong = append(wrong, *detail("/"+name, "must have a visible character, and %s is none",
				codePoint(cmp.Or(strings.TrimSpace(text), text))))
		case hidden != nil:
			wrong = append(wrong, *detail("/"+name, "must not have %s where it is not seen; remove it", codePoint(text[hidden[0]:])))
		case kind == nameText && strings.ContainsFunc(text, control):
			wrong = append(wrong, *detail("/"+name, "must not have control characters or line breaks; remove them"))
		case kind == descriptionText && strings.ContainsFunc(lineBreaks.Replace(text), control):
			wrong = append(wrong, *detail("/"+name, "must not have control characters except tabs and line breaks; remove them"))
		}
	}
	return wrong
}

// codePoint names the first character of a text.
func codePoint(text string) string {
	r, _ := utf8.DecodeRuneInString(text)
	return fmt.Sprintf("%U", r)
}

func control(r rune) bool { return unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp) }

var lineBreaks = strings.NewReplacer("\t", "", "\n", "", "\r", "")

// visible reports whether a character shows something by itself.
func visible(r rune) bool {
	return !unicode.IsSpace(r) && !unicode.In(r, unicode.Cc, unicode.Noncharacter_Code_Point) && !ignorable(r) &&
		!strings.ContainsRune(blanks, r)
}

// blanks are letters, marks and symbols without ink: of Braille, music, Khitan and hieroglyphs.
const blanks = "\u2800\U0001D159\U00016FE4\U00013441\U00013442"

// ignorable reports whether r has no shape of its own: the property Default_Ignorable_Code_Point, and annotations. The prepended marks of
// Arabic and the controls of hieroglyphs have one.
func ignorable(r rune) bool {
	return unicode.In(r, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) &&
		!unicode.In(r, unicode.Prepended_Concatenation_Mark, unicode.Egyptian_Hieroglyphs)
}

// invisible returns where the characters of a text that are not seen begin: the ignorable ones that belong to no emoji and change the shape
// of no letter.
func invisible(text string) (found []int) {
	if !strings.ContainsFunc(text, ignorable) {
		return nil
	}
	known := emoji.Sequences.FindAllStringIndex(text, -1)
	for i, r := range text {
		for len(known) > 0 && known[0][1] <= i {
			known = known[1:]
		}
		ofEmoji := len(known) > 0 && known[0][0] <= i
		if ignorable(r) && !ofEmoji && !joins(text[:i], string(r), text[i+utf8.RuneLen(r):]) {
			found = append(found, i)
		}
	}
	return found
}

// withoutInvisible returns a text without the characters that are not seen.
func withoutInvisible(text string) string {
	for _, i := range slices.Backward(invisible(text)) {
		_, size := utf8.DecodeRuneInString(text[i:])
		text = text[:i] + text[i+size:]
	}
	return text
}

// The characters that join and separate letters of scripts such as Arabic and Devanagari.
const (
	joiner    = "\u200D"
	nonJoiner = "\u200C"
)

// joinRules know where a joiner and a non-joiner change the shape of letters (CONTEXTJ of RFC 5892).
var joinRules = idna.New(idna.CheckJoiners(true))

// joins reports whether r is a joiner or a non-joiner and changes the shape of the letter before or after it. CONTEXTJ lacks two uses of
// the joiner: it keeps the shape that an Arabic letter has within a word, as in ه‍, and that of a Bengali letter before a virama, as in
// র‍্য.
func joins(before, r, after string) bool {
	start, end := max(strings.LastIndexFunc(before, notMark), 0), strings.IndexFunc(after, notMark)
	if end < 0 {
		end = len(after)
	}
	next, size := utf8.DecodeRuneInString(after[end:])
	letter, marks, others := before[start:], after[:end], after[:end+size] // the letter has the marks before r
	valid := func(text string) bool {
		_, err := joinRules.ToUnicode(text)
		return err == nil
	}
	switch first, _ := utf8.DecodeRuneInString(letter); {
	case !unicode.IsLetter(first):
		return false
	case r == nonJoiner:
		return unicode.IsLetter(next) && valid(letter+nonJoiner+others)
	case r == joiner:
		const joined = "\u0628" // beh joins on both sides
		virama := valid(letter+joiner) || valid(letter+marks+joiner)
		return virama || valid(letter+nonJoiner+joined) && !valid(letter+nonJoiner+others)
	}
	return false
}

func notMark(r rune) bool { return !unicode.Is(unicode.M, r) }
