package store

import "github.com/google/uuid"

// readPage is what a call that shares its commit marks as read: ranges that an agent got, at most one for each conversation. Once means
// that no other call may have returned them: see Tx.ReadUnread.
type readPage struct {
	agent  uuid.UUID
	ranges []ReadRange
	once   bool
}

// pageValues are the values of chargePages and deliverPayments for the pages that the calls return.
func pageValues(values pairs, batch []batchItem[Closing]) pairs {
	var places, oldest, newest []int64
	var agents, conversations []uuid.UUID
	var once []bool
	for i, item := range batch {
		page := item.value.page
		if page == nil {
			continue
		}
		for _, read := range page.ranges {
			places, agents, once = append(places, int64(i)+1), append(agents, page.agent), append(once, page.once)
			conversations, oldest, newest = append(conversations, read.Conversation), append(oldest, read.Oldest), append(newest, read.Newest)
		}
	}
	return append(values, pair{"range_n", places}, pair{"range_agent", agents}, pair{"range_conversation", conversations},
		pair{"range_oldest", oldest}, pair{"range_newest", newest}, pair{"range_once", once})
}
