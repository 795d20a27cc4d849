package server

import (
	"context"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/parley-chat/parley/gen"
	"github.com/parley-chat/parley/store"
)

// ReactToMessage adds or replaces the reaction of the caller.
func (c *change) ReactToMessage(ctx context.Context, req gen.ReactToMessageRequestObject) (gen.ReactToMessageResponseObject, error) {
	if !isEmoji(req.Body.Emoji) {
		return nil, store.ErrNotAnEmoji
	}
	message, err := c.messageForReader(ctx, idOf(messagePrefix, req.Body.MessageID))
	if err != nil {
		return nil, err
	}
	err = c.tx.React(ctx, message.ID, message.Number, c.caller.ID, req.Body.Emoji)
	return gen.ReactToMessage200JSONResponse{Success: true, Message: "reaction added"}, err
}

// RemoveReaction removes the reaction of the caller.
func (c *change) RemoveReaction(ctx context.Context, req gen.RemoveReactionRequestObject) (gen.RemoveReactionResponseObject, error) {
	message, err := c.messageForReader(ctx, idOf(messagePrefix, req.Body.MessageID))
	if err != nil {
		return nil, err
	}
	err = c.tx.RemoveReaction(ctx, message.ID, message.Number, c.caller.ID)
	return gen.RemoveReaction200JSONResponse{Success: true, Message: "reaction removed"}, err
}

// Code points that combine several into one emoji.
const (
	zeroWidthJoiner = '\u200d'
	emojiStyle      = '\ufe0f' // variation selector 16: show what stands before as an emoji
	keycap          = '\u20e3'
	blackFlag       = '\U0001f3f4'
	cancelTag       = '\U000e007f'
)

// isEmoji reports whether the text is exactly one emoji, by the grammar of emoji sequences (Unicode UTS #51): one of
//
//	a pair of regional indicators              a country's flag, assigned or not
//	a digit, # or * [emojiStyle] keycap        a keycap
//	an element {zeroWidthJoiner element}       where an element is an emoji character, alone or with emojiStyle or a
//	                                           skin tone, or the black flag with tags (England, Scotland, Wales)
//
// A match is always one grapheme cluster, so no segmentation is needed. Some emoji are shown as text by default (❤, ©);
// they match with and without emojiStyle, and count as different emoji. Parts of emoji (a skin tone, a regional
// indicator, a joiner, a selector) do not match alone.
func isEmoji(text string) bool {
	if first, rest := next(text); isRegional(first) {
		second, rest := next(rest)
		return isRegional(second) && rest == ""
	} else if strings.ContainsRune("0123456789#*", first) {
		return strings.TrimPrefix(rest, string(emojiStyle)) == string(keycap)
	}
	for {
		base, rest := next(text)
		if !unicode.Is(emojiCharacters, base) {
			return false
		}
		switch follower, after := next(rest); {
		case follower == emojiStyle, isSkinTone(follower):
			rest = after
		case base == blackFlag && isTag(follower):
			for isTag(follower) {
				follower, after = next(after)
			}
			if follower != cancelTag {
				return false
			}
			rest = after
		}
		if rest == "" {
			return true
		}
		joiner, joined := next(rest)
		if joiner != zeroWidthJoiner {
			return false
		}
		text = joined
	}
}

// next splits off the first code point; 0 at the end.
func next(text string) (rune, string) {
	if text == "" {
		return 0, ""
	}
	first, size := utf8.DecodeRuneInString(text)
	return first, text[size:]
}

func isRegional(r rune) bool { return '\U0001f1e6' <= r && r <= '\U0001f1ff' }
func isSkinTone(r rune) bool { return '\U0001f3fb' <= r && r <= '\U0001f3ff' }
func isTag(r rune) bool      { return '\U000e0020' <= r && r <= '\U000e007e' }

// emojiCharacters are the code points with the property Emoji in emoji-data.txt of Unicode 17, without ASCII, regional
// indicators and skin tones (Emoji_Modifier). Each new Unicode version adds a few.
var emojiCharacters = &unicode.RangeTable{
	R16: []unicode.Range16{
		{0xa9, 0xa9, 1}, {0xae, 0xae, 1}, {0x203c, 0x203c, 1}, {0x2049, 0x2049, 1}, {0x2122, 0x2122, 1},
		{0x2139, 0x2139, 1}, {0x2194, 0x2199, 1}, {0x21a9, 0x21aa, 1}, {0x231a, 0x231b, 1}, {0x2328, 0x2328, 1},
		{0x23cf, 0x23cf, 1}, {0x23e9, 0x23f3, 1}, {0x23f8, 0x23fa, 1}, {0x24c2, 0x24c2, 1}, {0x25aa, 0x25ab, 1},
		{0x25b6, 0x25b6, 1}, {0x25c0, 0x25c0, 1}, {0x25fb, 0x25fe, 1}, {0x2600, 0x2604, 1}, {0x260e, 0x260e, 1},
		{0x2611, 0x2611, 1}, {0x2614, 0x2615, 1}, {0x2618, 0x2618, 1}, {0x261d, 0x261d, 1}, {0x2620, 0x2620, 1},
		{0x2622, 0x2623, 1}, {0x2626, 0x2626, 1}, {0x262a, 0x262a, 1}, {0x262e, 0x262f, 1}, {0x2638, 0x263a, 1},
		{0x2640, 0x2640, 1}, {0x2642, 0x2642, 1}, {0x2648, 0x2653, 1}, {0x265f, 0x2660, 1}, {0x2663, 0x2663, 1},
		{0x2665, 0x2666, 1}, {0x2668, 0x2668, 1}, {0x267b, 0x267b, 1}, {0x267e, 0x267f, 1}, {0x2692, 0x2697, 1},
		{0x2699, 0x2699, 1}, {0x269b, 0x269c, 1}, {0x26a0, 0x26a1, 1}, {0x26a7, 0x26a7, 1}, {0x26aa, 0x26ab, 1},
		{0x26b0, 0x26b1, 1}, {0x26bd, 0x26be, 1}, {0x26c4, 0x26c5, 1}, {0x26c8, 0x26c8, 1}, {0x26ce, 0x26cf, 1},
		{0x26d1, 0x26d1, 1}, {0x26d3, 0x26d4, 1}, {0x26e9, 0x26ea, 1}, {0x26f0, 0x26f5, 1}, {0x26f7, 0x26fa, 1},
		{0x26fd, 0x26fd, 1}, {0x2702, 0x2702, 1}, {0x2705, 0x2705, 1}, {0x2708, 0x270d, 1}, {0x270f, 0x270f, 1},
		{0x2712, 0x2712, 1}, {0x2714, 0x2714, 1}, {0x2716, 0x2716, 1}, {0x271d, 0x271d, 1}, {0x2721, 0x2721, 1},
		{0x2728, 0x2728, 1}, {0x2733, 0x2734, 1}, {0x2744, 0x2744, 1}, {0x2747, 0x2747, 1}, {0x274c, 0x274c, 1},
		{0x274e, 0x274e, 1}, {0x2753, 0x2755, 1}, {0x2757, 0x2757, 1}, {0x2763, 0x2764, 1}, {0x2795, 0x2797, 1},
		{0x27a1, 0x27a1, 1}, {0x27b0, 0x27b0, 1}, {0x27bf, 0x27bf, 1}, {0x2934, 0x2935, 1}, {0x2b05, 0x2b07, 1},
		{0x2b1b, 0x2b1c, 1}, {0x2b50, 0x2b50, 1}, {0x2b55, 0x2b55, 1}, {0x3030, 0x3030, 1}, {0x303d, 0x303d, 1},
		{0x3297, 0x3297, 1}, {0x3299, 0x3299, 1},
	},
	R32: []unicode.Range32{
		{0x1f004, 0x1f004, 1}, {0x1f0cf, 0x1f0cf, 1}, {0x1f170, 0x1f171, 1}, {0x1f17e, 0x1f17f, 1}, {0x1f18e, 0x1f18e, 1},
		{0x1f191, 0x1f19a, 1}, {0x1f201, 0x1f202, 1}, {0x1f21a, 0x1f21a, 1}, {0x1f22f, 0x1f22f, 1}, {0x1f232, 0x1f23a, 1},
		{0x1f250, 0x1f251, 1}, {0x1f300, 0x1f321, 1}, {0x1f324, 0x1f393, 1}, {0x1f396, 0x1f397, 1}, {0x1f399, 0x1f39b, 1},
		{0x1f39e, 0x1f3f0, 1}, {0x1f3f3, 0x1f3f5, 1}, {0x1f3f7, 0x1f3fa, 1}, {0x1f400, 0x1f4fd, 1}, {0x1f4ff, 0x1f53d, 1},
		{0x1f549, 0x1f54e, 1}, {0x1f550, 0x1f567, 1}, {0x1f56f, 0x1f570, 1}, {0x1f573, 0x1f57a, 1}, {0x1f587, 0x1f587, 1},
		{0x1f58a, 0x1f58d, 1}, {0x1f590, 0x1f590, 1}, {0x1f595, 0x1f596, 1}, {0x1f5a4, 0x1f5a5, 1}, {0x1f5a8, 0x1f5a8, 1},
		{0x1f5b1, 0x1f5b2, 1}, {0x1f5bc, 0x1f5bc, 1}, {0x1f5c2, 0x1f5c4, 1}, {0x1f5d1, 0x1f5d3, 1}, {0x1f5dc, 0x1f5de, 1},
		{0x1f5e1, 0x1f5e1, 1}, {0x1f5e3, 0x1f5e3, 1}, {0x1f5e8, 0x1f5e8, 1}, {0x1f5ef, 0x1f5ef, 1}, {0x1f5f3, 0x1f5f3, 1},
		{0x1f5fa, 0x1f64f, 1}, {0x1f680, 0x1f6c5, 1}, {0x1f6cb, 0x1f6d2, 1}, {0x1f6d5, 0x1f6d8, 1}, {0x1f6dc, 0x1f6e5, 1},
		{0x1f6e9, 0x1f6e9, 1}, {0x1f6eb, 0x1f6ec, 1}, {0x1f6f0, 0x1f6f0, 1}, {0x1f6f3, 0x1f6fc, 1}, {0x1f7e0, 0x1f7eb, 1},
		{0x1f7f0, 0x1f7f0, 1}, {0x1f90c, 0x1f93a, 1}, {0x1f93c, 0x1f945, 1}, {0x1f947, 0x1f9ff, 1},
		{0x1fa70, 0x1fa7c, 1}, {0x1fa80, 0x1fa8a, 1}, {0x1fa8e, 0x1fac6, 1}, {0x1fac8, 0x1fac8, 1}, {0x1facd, 0x1fadc, 1},
		{0x1fadf, 0x1faea, 1}, {0x1faef, 0x1faf8, 1},
	},
	LatinOffset: 2,
}
