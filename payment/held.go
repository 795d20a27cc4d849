package payment

import (
	"sync"

	"github.com/google/uuid"
)

// held are the open payments that a request or the recovery worker of this server works on.
type held struct {
	mu  sync.Mutex
	ids map[uuid.UUID]int
}

// add holds a payment until the returned function is called.
func (h *held) add(id uuid.UUID) (release func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ids == nil {
		h.ids = map[uuid.UUID]int{}
	}
	h.ids[id]++
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.ids[id]--; h.ids[id] == 0 {
			delete(h.ids, id)
		}
	}
}

func (h *held) list() []uuid.UUID {
	h.mu.Lock()
	defer h.mu.Unlock()
	ids := make([]uuid.UUID, 0, len(h.ids))
	for id := range h.ids {
		ids = append(ids, id)
	}
	return ids
}
