// Package emoji tells emoji from other texts.
package emoji

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

// The grammar of emoji sequences (Unicode UTS #51): a pair of regional indicators (a country's flag, assigned or not), a keycap (#️⃣), or
// elements joined by zero-width joiners. An element is the flag of England, Scotland or Wales, or an emoji character, alone or with
// variation selector 16 (show it as a picture) or a skin tone. Other flags with tags are none: they look like the black flag, and tags
// can hide a text.
//
// A sequence is always one grapheme cluster, so no segmentation is needed. Parts of emoji are no sequence.
const (
	emojiSequence = `(?:[\x{1f1e6}-\x{1f1ff}]{2}|[0-9#*]\x{fe0f}?\x{20e3}|` + emojiElement + `(?:\x{200d}` + emojiElement + `)*)`
	emojiElement  = `(?:\x{1f3f4}\x{e0067}\x{e0062}(?:\x{e0065}\x{e006e}\x{e0067}|\x{e0073}\x{e0063}\x{e0074}|` +
		`\x{e0077}\x{e006c}\x{e0073})\x{e007f}|[` + textEmoji + pictureEmoji + `][\x{fe0f}\x{1f3fb}-\x{1f3ff}]?)`
)

var (
	// Sequences finds emoji in a text.
	Sequences = regexp.MustCompile(emojiSequence)

	oneEmoji       = regexp.MustCompile("^" + emojiSequence + "$")
	spelledTwoWays = regexp.MustCompile(`[\x{fe0f}` + takesSelector + `]`)
	selectable     = regexp.MustCompile(`[` + takesSelector + `][\x{1f3fb}-\x{1f3ff}]?`)
)

// Is reports whether a text is exactly one emoji, whose qualified spelling has at most so many characters.
func Is(text string, most uint64) bool {
	return oneEmoji.MatchString(text) && utf8.RuneCountInString(Qualified(text)) <= int(most)
}

// Style is variation selector 16.
const Style = "\ufe0f"

// Qualified returns the spelling of an emoji that is stored, because equal emoji are counted together ("fully-qualified" in UTS #51): with
// Style behind each character that is shown as text by default, unless it has a skin tone, and nowhere else.
func Qualified(emoji string) string {
	if !spelledTwoWays.MatchString(emoji) {
		return emoji
	}
	return selectable.ReplaceAllStringFunc(strings.ReplaceAll(emoji, Style, ""), func(character string) string {
		if utf8.RuneCountInString(character) > 1 {
			return character
		}
		return character + Style
	})
}

// takesSelector are the characters that a fully-qualified emoji has Style behind.
const takesSelector = `0-9#*` + textEmoji

// textEmoji and pictureEmoji are the code points with the property Emoji in emoji-data.txt of Unicode 17, without ASCII, regional
// indicators and skin tones (Emoji_Modifier). Those of pictureEmoji have the property Emoji_Presentation. Each new Unicode version
// adds a few of them.
const textEmoji = `\x{a9}\x{ae}\x{203c}\x{2049}\x{2122}\x{2139}\x{2194}-\x{2199}\x{21a9}-\x{21aa}\x{2328}\x{23cf}\x{23ed}-\x{23ef}` +
	`\x{23f1}-\x{23f2}\x{23f8}-\x{23fa}\x{24c2}\x{25aa}-\x{25ab}\x{25b6}\x{25c0}\x{25fb}-\x{25fc}\x{2600}-\x{2604}\x{260e}\x{2611}` +
	`\x{2618}\x{261d}\x{2620}\x{2622}-\x{2623}\x{2626}\x{262a}\x{262e}-\x{262f}\x{2638}-\x{263a}\x{2640}\x{2642}\x{265f}-\x{2660}` +
	`\x{2663}\x{2665}-\x{2666}\x{2668}\x{267b}\x{267e}\x{2692}\x{2694}-\x{2697}\x{2699}\x{269b}-\x{269c}\x{26a0}\x{26a7}` +
	`\x{26b0}-\x{26b1}\x{26c8}\x{26cf}\x{26d1}\x{26d3}\x{26e9}\x{26f0}-\x{26f1}\x{26f4}\x{26f7}-\x{26f9}\x{2702}\x{2708}-\x{2709}` +
	`\x{270c}-\x{270d}\x{270f}\x{2712}\x{2714}\x{2716}\x{271d}\x{2721}\x{2733}-\x{2734}\x{2744}\x{2747}\x{2763}-\x{2764}\x{27a1}` +
	`\x{2934}-\x{2935}\x{2b05}-\x{2b07}\x{3030}\x{303d}\x{3297}\x{3299}\x{1f170}-\x{1f171}\x{1f17e}-\x{1f17f}\x{1f202}\x{1f237}` +
	`\x{1f321}\x{1f324}-\x{1f32c}\x{1f336}\x{1f37d}\x{1f396}-\x{1f397}\x{1f399}-\x{1f39b}\x{1f39e}-\x{1f39f}\x{1f3cb}-\x{1f3ce}` +
	`\x{1f3d4}-\x{1f3df}\x{1f3f3}\x{1f3f5}\x{1f3f7}\x{1f43f}\x{1f441}\x{1f4fd}\x{1f549}-\x{1f54a}\x{1f56f}-\x{1f570}` +
	`\x{1f573}-\x{1f579}\x{1f587}\x{1f58a}-\x{1f58d}\x{1f590}\x{1f5a5}\x{1f5a8}\x{1f5b1}-\x{1f5b2}\x{1f5bc}\x{1f5c2}-\x{1f5c4}` +
	`\x{1f5d1}-\x{1f5d3}\x{1f5dc}-\x{1f5de}\x{1f5e1}\x{1f5e3}\x{1f5e8}\x{1f5ef}\x{1f5f3}\x{1f5fa}\x{1f6cb}\x{1f6cd}-\x{1f6cf}` +
	`\x{1f6e0}-\x{1f6e5}\x{1f6e9}\x{1f6f0}\x{1f6f3}`

const pictureEmoji = `\x{231a}-\x{231b}\x{23e9}-\x{23ec}\x{23f0}\x{23f3}\x{25fd}-\x{25fe}\x{2614}-\x{2615}\x{2648}-\x{2653}` +
	`\x{267f}\x{2693}\x{26a1}` +
	`\x{26aa}-\x{26ab}\x{26bd}-\x{26be}\x{26c4}-\x{26c5}\x{26ce}\x{26d4}\x{26ea}\x{26f2}-\x{26f3}\x{26f5}\x{26fa}\x{26fd}\x{2705}` +
	`\x{270a}-\x{270b}\x{2728}\x{274c}\x{274e}\x{2753}-\x{2755}\x{2757}\x{2795}-\x{2797}\x{27b0}\x{27bf}\x{2b1b}-\x{2b1c}\x{2b50}` +
	`\x{2b55}\x{1f004}\x{1f0cf}\x{1f18e}\x{1f191}-\x{1f19a}\x{1f201}\x{1f21a}\x{1f22f}\x{1f232}-\x{1f236}\x{1f238}-\x{1f23a}` +
	`\x{1f250}-\x{1f251}\x{1f300}-\x{1f320}\x{1f32d}-\x{1f335}\x{1f337}-\x{1f37c}\x{1f37e}-\x{1f393}\x{1f3a0}-\x{1f3ca}` +
	`\x{1f3cf}-\x{1f3d3}\x{1f3e0}-\x{1f3f0}\x{1f3f4}\x{1f3f8}-\x{1f3fa}\x{1f400}-\x{1f43e}\x{1f440}\x{1f442}-\x{1f4fc}` +
	`\x{1f4ff}-\x{1f53d}\x{1f54b}-\x{1f54e}\x{1f550}-\x{1f567}\x{1f57a}\x{1f595}-\x{1f596}\x{1f5a4}\x{1f5fb}-\x{1f64f}` +
	`\x{1f680}-\x{1f6c5}\x{1f6cc}\x{1f6d0}-\x{1f6d2}\x{1f6d5}-\x{1f6d8}\x{1f6dc}-\x{1f6df}\x{1f6eb}-\x{1f6ec}\x{1f6f4}-\x{1f6fc}` +
	`\x{1f7e0}-\x{1f7eb}\x{1f7f0}\x{1f90c}-\x{1f93a}\x{1f93c}-\x{1f945}\x{1f947}-\x{1f9ff}\x{1fa70}-\x{1fa7c}\x{1fa80}-\x{1fa8a}` +
	`\x{1fa8e}-\x{1fac6}\x{1fac8}\x{1facd}-\x{1fadc}\x{1fadf}-\x{1faea}\x{1faef}-\x{1faf8}`
