package operator

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"
)

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

func percent(value float64) string { return strconv.FormatFloat(value, 'f', 2, 64) + "%" }

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
