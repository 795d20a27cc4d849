package store

import (
	"embed"
	"fmt"
)

//go:embed sql/*.sql
var statementFiles embed.FS

// The statements of the group commit, one in each file of the folder sql. Their parameters are arrays with a value for each item of the
// batch. Each array stands in a subquery, which hides its length from the planner. Otherwise a plan for these lengths looks cheaper than
// the generic plan, and PostgreSQL plans the statement again for every batch, which takes longer than to run it.
var (
	beginPayments   = statement("begin_payments")
	deliverPayments = statement("deliver_payments")
	chargeVouchers  = statement("charge_vouchers")
	chargePages     = statement("charge_pages")
	sendMessages    = statement("send_messages")
	sendCharged     = statement("send_charged")
	checkMessages   = statement("check_messages")
	markRead        = statement("mark_read")
)

// statement reads the text of a statement.
func statement(name string) string {
	text, err := statementFiles.ReadFile("sql/" + name + ".sql")
	if err != nil {
		panic(fmt.Sprintf("the program has no statement %s: %v", name, err))
	}
	return string(text)
}
