package operator

import (
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/parley-chat/parley/store"
)

// filters select payments that match all of them.
type filters struct {
	State     []string   `enum:"settling,unknown,delivered,failed,undeliverable,deposited,open" placeholder:"STATE"`
	Operation string     `placeholder:"NAME" help:"The operationId in the contract, such as sendPrivateMessage."`
	Payer     string     `placeholder:"0x…" help:"The payer's address."`
	Agent     *uuid.UUID `placeholder:"UUID" help:"The calling agent, as in the output."`
	Since     moment     `placeholder:"TIME" help:"Created at this time or later: 2026-11-01 (UTC) or 2026-11-01T08:30:00Z."`
	Until     moment     `placeholder:"TIME" help:"Created before this time."`
}

func (f filters) filter() store.PaymentFilter {
	filter := store.PaymentFilter{Operation: f.Operation, Payer: strings.ToLower(f.Payer), AgentID: f.Agent, Since: f.Since.Time,
		Until: f.Until.Time}
	for _, state := range f.State {
		if state == "open" {
			filter.States = append(filter.States, openStates...)
		} else {
			filter.States = append(filter.States, state)
		}
	}
	return filter
}

// openStates are the states of payments without a final outcome.
var openStates = []string{store.PaymentSettling, store.PaymentUnknown, store.PaymentUndeliverable}

// moment is a time, or the start of a day in UTC.
type moment struct{ time.Time }

// UnmarshalText accepts a day (2006-01-02) or a time (RFC 3339).
func (m *moment) UnmarshalText(text []byte) (err error) {
	if m.Time, err = time.Parse(time.DateOnly, string(text)); err == nil {
		return nil
	}
	if m.Time, err = time.Parse(time.RFC3339, string(text)); err != nil {
		return fmt.Errorf("%q is neither a day such as 2026-11-01 nor a time such as 2026-11-01T08:30:00Z", text)
	}
	return nil
}
