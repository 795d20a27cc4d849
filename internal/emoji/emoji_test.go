package emoji

import (
	"strings"
	"testing"
)

func TestIsEmoji(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"thumbs up": "👍", "with a skin tone": "👍🏽", "a heart": "❤️", "a heart as text by default": "❤", "copyright": "©",
		"a smiley of 1993": "☺️",
		"a flag":           "🇵🇹", "a flag of no country": "🇽🇽", "a keycap": "1️⃣", "a hash keycap": "#️⃣", "a star keycap": "*️⃣",
		"a keycap without selector": "1⃣",
		"a family":                  "👨‍👩‍👧‍👦", "a kiss with skin tones": "👩🏽‍❤️‍💋‍👨🏿", "a technician": "🧑🏻‍💻", "a red-haired man": "👨‍🦰",
		"the pirates' flag": "🏴‍☠️",
		"Scotland":          "🏴\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f", "the black flag": "🏴",
		"of Unicode 16": "\U0001fae9", "of Unicode 17": "\U0001faea",
	} {
		if !Is(text, 32) {
			t.Errorf("%s (%s, %+q) is not taken for an emoji", name, text, text)
		}
	}
	for name, text := range map[string]string{
		"nothing": "", "a letter": "a", "a digit": "1", "a hash": "#", "a word": "ok", "two emoji": "👍👍", "an emoji and a letter": "👍a",
		"a space behind": "👍 ", "a space before": " 👍",
		"a selector": "\ufe0f", "a joiner": "\u200d", "a regional indicator": "🇵", "three regional indicators": "🇵🇹🇵", "a skin tone": "🏽",
		"a keycap's frame":        "\u20e3",
		"a digit with a selector": "1\ufe0f", "a letter in a keycap": "a\ufe0f\u20e3", "a joiner behind": "👍\u200d", "a joiner before": "\u200d👍",
		"two joiners":                  "👨\u200d\u200d👩",
		"a heart that asks to be text": "❤\ufe0e", "two selectors": "❤\ufe0f\ufe0f", "two skin tones": "👍🏽🏽", "tags without end": "🏴\U000e0067",
		"an end without tags": "🏴\U000e007f", "hidden text": "👍\U000e0067\U000e007f",
		"an accent on an emoji": "👍\u0301", "a playing card": "🂡", "a chess queen": "♕", "bytes that are not text": "\xff", "zero": "\x00",
		"a flag that looks like the black flag": "🏴\U000e0075\U000e0073\U000e0074\U000e0078\U000e007f",
		"one that is too long when qualified":   strings.Repeat("❤\u200d", 15) + "❤",
		"the replacement character":             "�", "a flag and a joiner": "🇵🇹\u200d👍",
	} {
		if Is(text, 32) {
			t.Errorf("%s (%s, %+q) is taken for an emoji", name, text, text)
		}
	}
}
