package server

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/parley-chat/parley/gen"
	"github.com/parley-chat/parley/server/operator"
)

// refusals counts the error responses of this server by code, for the operator's page. Its size is bounded: the codes are those of the
// contract.
type refusals struct {
	mu     sync.Mutex
	byCode map[gen.ErrorCode]operator.Refusal
}

func newRefusals() *refusals { return &refusals{byCode: map[gen.ErrorCode]operator.Refusal{}} }

// add counts a response. A question for the price is no refusal.
func (r *refusals) add(code gen.ErrorCode, operation string, at time.Time) {
	if code == "" || code == gen.ErrorCodePaymentRequired {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.byCode[code] = operator.Refusal{Code: string(code), Operation: operation, Count: r.byCode[code].Count + 1, Last: at}
}

// latest returns all codes, the latest first.
func (r *refusals) latest() []operator.Refusal {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []operator.Refusal
	for _, refusal := range r.byCode {
		list = append(list, refusal)
	}
	slices.SortFunc(list, func(a, b operator.Refusal) int {
		return cmp.Or(b.Last.Compare(a.Last), cmp.Compare(a.Code, b.Code))
	})
	return list
}
