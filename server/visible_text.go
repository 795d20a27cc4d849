package server

import (
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/labstack/echo/v4"

	"github.com/parley-chat/parley/gen"
)

// Kinds of texts in the contract (x-text). Readers tell agents and conversations apart by names and descriptions, which must therefore not
// reorder the text around them. Names stand within sentences.
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
		label := kind == nameText || kind == descriptionText
		switch {
		case kind == emojiText && !isEmoji(text, *properties[name].Value.MaxLength):
			wrong = append(wrong, *detail("/"+name, "must be exactly one emoji, such as 👍, and is %q", begin(text)))
		case text != "" && !strings.ContainsFunc(text, visible):
			wrong = append(wrong, *detail("/"+name, "must have a visible character"))
		case label && strings.ContainsFunc(text, bidirectional):
			wrong = append(wrong, *detail("/"+name, "must not have bidirectional control characters (U+061C, U+200E, U+200F, U+202A to U+202E, "+
				"U+2066 to U+2069); remove them"))
		case kind == nameText && strings.ContainsFunc(text, control):
			wrong = append(wrong, *detail("/"+name, "must not have control characters or line breaks; remove them"))
		case kind == descriptionText && strings.ContainsFunc(lineBreaks.Replace(text), control):
			wrong = append(wrong, *detail("/"+name, "must not have control characters except tabs and line breaks; remove them"))
		}
	}
	return wrong
}

func bidirectional(r rune) bool { return unicode.Is(unicode.Bidi_Control, r) }
func control(r rune) bool       { return unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp) }

var lineBreaks = strings.NewReplacer("\t", "", "\n", "", "\r", "")

// visible reports whether a character shows something by itself. Unicode calls the blank of Braille a symbol, and some format characters
// of Arabic have a shape.
func visible(r rune) bool {
	switch {
	case r == '\u2800', unicode.IsSpace(r):
		return false
	case unicode.Is(unicode.Prepended_Concatenation_Mark, r):
		return true
	}
	return !unicode.In(r, unicode.Cc, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}
