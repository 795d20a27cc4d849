package agent

import "context"

// Responses returns the stored responses to an operation, the oldest first.
func (a *Agent) Responses(ctx context.Context, operation string) ([]*Result, error) {
	return a.ledger.responses(ctx, "operation = ? ORDER BY number", operation)
}
