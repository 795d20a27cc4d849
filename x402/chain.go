package x402

import "time"

// AuthorizationState is what a chain knows of an authorization (EIP-3009).
type AuthorizationState struct {
	// Used is true if the authorization has moved its money.
	Used bool
	// Cancelled is true if its authorizer took it back: it can never be used.
	Cancelled bool
	// Transaction is the hash of the transaction that used or cancelled it, 0x and 64 hex digits; else "".
	Transaction string
	// To and Amount say where the money went and how much, if Used.
	To     string
	Amount uint64
	// At is the time of that transaction's block.
	At time.Time
	// ChainTime is the time of the block whose state was read, the newest one.
	ChainTime time.Time
}
