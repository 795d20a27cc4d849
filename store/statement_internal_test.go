package store

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var (
	parameter = regexp.MustCompile(`@(\w+)`)
	table     = regexp.MustCompile(`(?s)unnest\((.*?)\)\s*(?:WITH ORDINALITY )?AS \w+ \((.*?)\)`)
	word      = regexp.MustCompile(`\w+`)
)

// TestStatementParameters: a statement names exactly the values that its batches have, and the columns of a batch have the names of their
// arrays.
func TestStatementParameters(t *testing.T) {
	t.Parallel()
	charge, delivery := Closing{Charge: &VoucherCharge{Payment: &Payment{}}}, Closing{Delivery: &Delivery{}}
	_, charges := closeStatement(batchOf(charge))
	charge.page = &readPage{}
	_, pages := closeStatement(batchOf(charge))
	_, deliveries := closeStatement(batchOf(delivery))
	_, charged := sendStatement(time.Time{}, batchOf(paidMessage{Closing: charge}))
	_, sent := sendStatement(time.Time{}, batchOf(paidMessage{Closing: delivery}))
	for text, values := range map[string]pairs{
		beginPayments: beginValues(batchOf(&Payment{}), 1), chargeVouchers: charges, chargePages: pages, deliverPayments: deliveries,
		sendCharged: charged, sendMessages: sent, checkMessages: checkValues(batchOf(&messageCheck{})),
	} {
		var want, got []string
		for _, value := range values {
			want = append(want, value.name)
		}
		for _, name := range parameter.FindAllStringSubmatch(text, -1) {
			got = append(got, name[1])
		}
		for _, found := range table.FindAllStringSubmatch(text, -1) {
			var arrays []string
			for _, name := range parameter.FindAllStringSubmatch(found[1], -1) {
				arrays = append(arrays, strings.TrimPrefix(name[1], "range_"))
			}
			columns := word.FindAllString(found[2], -1)
			if position := len(columns) - 1; len(columns) > len(arrays) && columns[position] == "n" { // WITH ORDINALITY
				columns = columns[:position]
			}
			if diff := cmp.Diff(arrays, columns); diff != "" {
				t.Errorf("arrays and columns differ (-arrays +columns):\n%s\n%.80s", diff, text)
			}
		}
		slices.Sort(want)
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("values and parameters differ (-values +parameters):\n%s\n%.80s", diff, text)
		}
	}
}
