package operator

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/parley-chat/parley/internal/discovery"
	"github.com/parley-chat/parley/store"
)

// manual is the documentation that the page links.
const manual = "https://github.com/parley-chat/parley/blob/main/docs/run.md"

// functions can be called in the template.
var functions = template.FuncMap{
	"usd": usd, "number": number, "size": size, "took": took,
	"age":   func(from, to time.Time) string { return Age(to.Sub(from)) },
	"span":  Age,
	"date":  func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") + " UTC" },
	"iso":   func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	"clean": clean, "wrap": wrap, "short": short, "chart": newChart, "share": share,
	"runbook": func(anchor string) string { return manual + "#" + anchor },
	"meaning": func(state string) template.HTML { return meanings[state] },
	"outside": func(operation string) bool { return operation == OutsideContract },
	"style":   func() template.CSS { return template.CSS(style) },
	"icon":    func() template.URL { return discovery.IconURL },
}

// usd formats an amount with three decimals, or six where it needs them.
func usd(amount int64) string {
	sign := ""
	if amount < 0 {
		sign, amount = "−", -amount
	}
	fraction := fmt.Sprintf("%06d", amount%1_000_000)
	return sign + number(amount/1_000_000) + "." + strings.TrimSuffix(fraction, "000")
}

// number groups the digits of a number in threes.
func number(n int64) string {
	digits, negative := strings.CutPrefix(strconv.FormatInt(n, 10), "-")
	sign := ""
	if negative {
		sign = "−"
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

// size formats a number of bytes.
func size(bytes int64) string {
	value, units := float64(bytes), []string{"B", "kB", "MB", "GB", "TB", "PB"}
	decimals := 0
	for value >= 999.5 && len(units) > 1 {
		value, units, decimals = value/1000, units[1:], 1
	}
	if value >= 99.95 {
		decimals = 0
	}
	return strconv.FormatFloat(value, 'f', decimals, 64) + " " + units[0]
}

// Age formats a duration or an age, with two units at most.
func Age(d time.Duration) string {
	for _, unit := range []struct {
		of, next   time.Duration
		name, part string
	}{{24 * time.Hour, time.Hour, "d", "h"}, {time.Hour, time.Minute, "h", "min"}, {time.Minute, time.Second, "min", "s"}} {
		if d < unit.of {
			continue
		}
		text := fmt.Sprintf("%d %s", d/unit.of, unit.name)
		if rest := d % unit.of / unit.next; rest > 0 && d < 10*unit.of {
			text += fmt.Sprintf(" %d %s", rest, unit.part)
		}
		return text
	}
	return fmt.Sprintf("%d s", max(d, 0)/time.Second)
}

// took formats the duration of calls.
func took(d time.Duration) string {
	switch {
	case d == 0:
		return "–"
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1f ms", d.Seconds()*1000)
	case d < time.Second:
		return fmt.Sprintf("%.0f ms", d.Seconds()*1000)
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

// clean returns a text of at most limit characters. Control characters, invisible ones and those that change the direction of the text
// become a visible sign.
func clean(limit int, text string) string {
	if len(text) > limit && utf8.RuneCountInString(text) > limit {
		text = string([]rune(text)[:limit]) + "…"
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return utf8.RuneError
	}, text)
}

// wrap is clean for names, which may be broken after an underscore.
func wrap(limit int, name string) template.HTML {
	return template.HTML(strings.ReplaceAll(template.HTMLEscapeString(clean(limit, name)), "_", "_<wbr>")) //nolint:gosec // escaped
}

// short shortens an address or a hash to its ends.
func short(text string) string {
	text = clean(80, text)
	if len(text) <= 14 {
		return text
	}
	return text[:6] + "…" + text[len(text)-4:]
}

// share is a part of the whole in percent, for the width of a bar.
func share(part, whole int64) string {
	if whole <= 0 {
		return "0"
	}
	return fmt.Sprintf("%.1f", 100*float64(part)/float64(whole))
}

// meanings say what the state of an open payment means for the operator.
var meanings = map[string]template.HTML{
	store.PaymentSettling: "A call is being settled. Wait.",
	store.PaymentUnknown: "Whether it settled is not known yet; the servers ask again by themselves. If you have checked it on the " +
		"blockchain: " +
		"<code>parley payments resolve</code>.",
	store.PaymentUndeliverable: "It settled, then the call was refused. The payer can redeem it with another call of the same operation. " +
		"If it asks for its money: <code>parley payments refund</code>.",
}

// chart is a column chart as the template draws it. Positions and lengths are percentages of the plot, so that it fits every width
// without scaling its text.
type chart struct {
	Columns []column
	Lines   []gridLine
	Summary string // for those who do not see it
}

type column struct {
	X, Width, Y, Height, Middle, Label, Title string
	Missing                                   bool
}

type gridLine struct{ Y, Label string }

// newChart draws the revenue of days.
func newChart(days []Day) chart {
	var sum int64
	best := Day{}
	for _, day := range days {
		sum += day.Amount
		if day.Amount > best.Amount {
			best = day
		}
	}
	top := ceiling(best.Amount)
	drawn := chart{Lines: []gridLine{{"0%", usd(top)}, {"50%", usd(top / 2)}}}
	drawn.Summary = fmt.Sprintf("Revenue of the last %d days: %s USD", len(days), usd(sum))
	if best.Amount > 0 {
		drawn.Summary += fmt.Sprintf("; the most, %s USD, on %s", usd(best.Amount), best.Date.Format(time.DateOnly))
	}
	step := 100 / float64(max(1, len(days)))
	for i, day := range days {
		height := 100 * float64(day.Amount) / float64(top)
		if day.Amount > 0 {
			height = max(height, 1)
		}
		drawn.Columns = append(drawn.Columns, column{
			X: percent(step * (float64(i) + 0.15)), Width: percent(step * 0.7), Y: percent(100 - height), Height: percent(height),
			Middle: percent(step * (float64(i) + 0.5)), Label: strconv.Itoa(day.Date.Day()), Missing: !day.Counted,
			Title: fmt.Sprintf("%s: %s USD, %s calls", day.Date.Format(time.DateOnly), usd(day.Amount), number(day.Calls)),
		})
	}
	return drawn
}

func percent(value float64) string { return fmt.Sprintf("%.2f%%", value) }

// ceiling is the next of 1, 2, 5, 10, 20, … that is not below the amount.
func ceiling(amount int64) int64 {
	if amount <= 0 {
		return 1_000_000
	}
	power := math.Pow(10, math.Floor(math.Log10(float64(amount))))
	factors := []float64{1, 2, 5, 10}
	i, _ := slices.BinarySearch(factors, float64(amount)/power)
	return int64(factors[i] * power)
}
