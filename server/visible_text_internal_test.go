package server

import "testing"

// TestInvisible: characters without a shape are seen in emoji, and where they change the shape of letters; nowhere else.
func TestInvisible(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "plain", "👩‍👩‍👧 ❤️ 1️⃣ 🏳️‍🌈", "I\u2764\ufe0fyou", "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
		"می\u200cخواهم", "خانه\u200cها", "بَ\u200cبَ", "ه\u200d", "۱۴۰۲ ه\u200d.ش", "क्\u200d", "क्\u200dष", "क्\u200cष", "ශ්\u200dරී",
		"র\u200d্যাব",
		"ক্\u200cষ", "ന്\u200d", "\u0600\u0661", "\U00013000\U00013430\U00013001",
	} {
		if shown := withoutInvisible(text); shown != text {
			t.Errorf("%+q is shown as %+q, want all of it", text, shown)
		}
	}
	for text, want := range map[string]string{
		"a\u200bb": "ab", "\u200bX\u200b": "X", "Li\u00adsbon": "Lisbon", "bank\u202eknab": "bankknab", "x\ufeff": "x", "\u115fx\u3164": "x",
		"a\ufe0f": "a", "❤\ufe0e": "❤", "❤\ufe0f\ufe0f": "❤\ufe0f", "👍\u200d": "👍", "\u200d👍": "👍", "葛\U000e0100": "葛", "x\ufff9y": "xy",
		"🏴\U000e0068\U000e0069\U000e007f": "🏴", "x\U000e0041\U000e0042": "x", "a\u200db": "ab", "a\u200cb": "ab", "а\u200cб": "аб",
		"ب\u200dب": "بب", "کار\u200cا": "کارا", "ا\u200d": "ا", "ب\u200c": "ب", "\u200cب": "ب", "می\u200c\u200cخ": "میخ", "क्\u200c": "क्",
		"क\u200dष": "कष", "क\u200d\u200d्": "क्", "\u200d्": "्", "東\u200d京": "東京",
	} {
		if shown := withoutInvisible(text); shown != want {
			t.Errorf("%+q is shown as %+q, want %+q", text, shown, want)
		}
	}
}
