package payment

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/parley-chat/parley/store"
)

// admission bounds what calls have at work at the same time. A payer with many payments waits for its own calls before others wait for
// them, whatever the scheme. Nothing is read before a call is admitted.
type admission struct {
	own       *queues             // calls of an account or, without one, of a wallet
	strangers *semaphore.Weighted // dry runs of wallets without a recent payment
	turns     *semaphore.Weighted // long pages
	responses *semaphore.Weighted // bytes of reads that wait for their settlement
}

const (
	// ownRoom is the weight of the calls that an account has at work. A call weighs one, and one more for each weightBytes of its request. A
	// search, which may examine thousands of rows, weighs as much as all.
	ownRoom     = 8
	weightBytes = 16 << 10
	// ownTransactions is how many transactions of the store, which has few, an account uses.
	ownTransactions = 2
	// strangerRoom is the weight of the dry runs of wallets that may have no money.
	strangerRoom = 16
	// maxWaiting is how many bytes of responses wait for their settlement.
	maxWaiting = 32 << 20
)

func newAdmission() *admission {
	return &admission{newQueues(), semaphore.NewWeighted(strangerRoom), semaphore.NewWeighted(int64(max(1, runtime.NumCPU()/2))),
		semaphore.NewWeighted(maxWaiting)}
}

// queueKey is whose calls wait for each other: the account, or the wallet.
func (a *Attempt) queueKey() string {
	if a.Caller != nil {
		return a.Caller.Account.String()
	}
	return a.Payer()
}

// enter waits until the payer has room for a further call, at most joinTime. The caller leaves.
func (s *admission) enter(ctx context.Context, a *Attempt, stranger bool) (leave func(), err error) {
	weight := min(1+int64(len(a.request))/weightBytes, ownRoom)
	if a.Operation.Search {
		weight = ownRoom
	}
	leaveOwn, err := s.own.enter(ctx, a.queueKey(), ownRoom, weight)
	if err != nil {
		return nil, busyWithOwn(err)
	}
	if !stranger {
		return leaveOwn, nil
	}
	ctx, cancel := context.WithTimeout(ctx, joinTime)
	defer cancel()
	if err := s.strangers.Acquire(ctx, weight); err != nil {
		leaveOwn()
		return nil, Unavailable("the server is busy", 2, err)
	}
	return func() { s.strangers.Release(weight); leaveOwn() }, nil
}

// transaction waits until the payer may use a further transaction of the store, and no other call of this server locks the same
// conversation, each at most joinTime. The lock on its row would be enough for the second, but calls would wait for it with a transaction.
func (s *admission) transaction(ctx context.Context, call *Call) (end func(), err error) {
	endOwn, err := s.own.enter(ctx, "transactions of "+call.Attempt.queueKey(), ownTransactions, 1)
	if err != nil {
		return nil, busyWithOwn(err)
	}
	locks := ""
	if !call.Attempt.Operation.Reads() {
		locks = call.Locks(call.Attempt.request)
	}
	if locks == "" {
		return endOwn, nil
	}
	endLock, err := s.own.enter(ctx, locks, 1, 1)
	if err != nil {
		endOwn()
		return nil, Unavailable("the server is busy with other changes of this conversation", 2, err)
	}
	return func() { endLock(); endOwn() }, nil
}

// work is what the call does in the database, in turn if it needs a transaction of its own.
func (s *admission) work(call *Call, page int64) store.Work {
	work := call.work(page)
	work.Turn = func(ctx context.Context) (end func(), err error) { return s.transaction(ctx, call) }
	return work
}

// turn waits until it is the payer's turn for a long page, at most joinTime. A payer has one turn. After each turn there is a pause as long
// as the turn was, so that long pages leave most of the processors to other calls. The caller releases it, perhaps more than once.
func (s *admission) turn(ctx context.Context, a *Attempt) (release func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, joinTime)
	defer cancel()
	leave, err := s.own.enter(ctx, "turn of "+a.queueKey(), 1, 1)
	if err != nil {
		return nil, busyWithOwn(err)
	}
	if err := s.turns.Acquire(ctx, 1); err != nil {
		leave()
		return nil, Unavailable("the server is busy with long pages", 2, err)
	}
	began := time.Now()
	return sync.OnceFunc(func() {
		leave()
		time.AfterFunc(time.Since(began), func() { s.turns.Release(1) })
	}), nil
}

// run calls do with the work of a call, which may read a short page. If the page is long, it waits for its turn and calls do again. The
// turn ends when the page is read: what follows shares a commit with others.
func (s *admission) run(ctx context.Context, call *Call, do func(work store.Work) error) error {
	if err := do(s.work(call, store.ShortPage)); !errors.Is(err, store.ErrLongPage) {
		return err
	}
	release, err := s.turn(ctx, call.Attempt)
	if err != nil {
		return err
	}
	defer release()
	work := s.work(call, store.LongPage)
	read := work.Batched
	work.Batched = func(ctx context.Context, from *store.Reader, actions store.Actions) (store.Response, error) {
		response, err := read(ctx, from, actions)
		if err == nil { // else it may run again, in a transaction
			release()
		}
		return response, err
	}
	return do(work)
}

func busyWithOwn(cause error) error {
	return Unavailable("the server is busy with other calls of yours", 2, cause)
}

// keep reports whether the response of a read can be kept until it is settled: too many may wait already. The caller forgets it.
func (s *admission) keep(response store.Response) bool {
	return s.responses.TryAcquire(int64(len(response.Body)))
}

func (s *admission) forget(response store.Response) { s.responses.Release(int64(len(response.Body))) }
