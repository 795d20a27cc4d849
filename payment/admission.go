package payment

import (
	"context"
	"errors"
	"runtime"

	"golang.org/x/sync/semaphore"

	"github.com/parley-chat/parley/store"
)

// admission bounds what calls have at work at the same time. A payer with many payments waits for its own calls before others wait for
// them, whatever the scheme. Nothing is read before a call is admitted.
type admission struct {
	own       *queues             // calls of an account or, without one, of a wallet
	strangers *semaphore.Weighted // dry runs of wallets without a recent payment
	turns     *semaphore.Weighted // searches and long pages
	responses *semaphore.Weighted // bytes of reads that wait for their settlement
}

const (
	// ownRoom is the weight of the calls that an account has at work. A call weighs one, and one more for each weightBytes of its request.
	ownRoom     = 8
	weightBytes = 16 << 10
	// strangerRoom is the weight of the dry runs of wallets that may have no money.
	strangerRoom = 16
	// pageTurn is the weight of a long page among the turns, searchTurn that of a search. An account has one turn at a time. Long pages use
	// half of the processors, and take some megabytes each until they are sent.
	pageTurn   = 2
	searchTurn = 1
	// maxWaiting is how many bytes of responses wait for their settlement.
	maxWaiting = 32 << 20
)

func newAdmission() *admission {
	return &admission{newQueues(), semaphore.NewWeighted(strangerRoom), semaphore.NewWeighted(int64(max(pageTurn, runtime.NumCPU()))),
		semaphore.NewWeighted(maxWaiting)}
}

// payer is whose calls wait for each other: the account, or the wallet.
func (a *Attempt) payer() string {
	if a.Caller != nil {
		return a.Caller.Account.String()
	}
	return a.Payer()
}

// enter waits until the payer has room for a further call, at most joinTime. The caller leaves.
func (s *admission) enter(ctx context.Context, a *Attempt, stranger bool) (leave func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, joinTime)
	defer cancel()
	weight := min(1+int64(len(a.request))/weightBytes, ownRoom)
	leaveOwn, err := s.own.enter(ctx, a.payer(), ownRoom, weight)
	if err != nil {
		return nil, busyWithOwn(err)
	}
	if !stranger {
		return leaveOwn, nil
	}
	if err := s.strangers.Acquire(ctx, weight); err != nil {
		leaveOwn()
		return nil, Unavailable("the server is busy", 2, err)
	}
	return func() { s.strangers.Release(weight); leaveOwn() }, nil
}

// read calls do with how many bytes of content a page may have. Most pages are short. Searches and long pages wait for their turn, at most
// joinTime: few of them are at work at a time, and a payer has one turn.
func (s *admission) read(ctx context.Context, a *Attempt, do func(page int64) error) error {
	weight := int64(searchTurn)
	if !a.Operation.Search {
		if err := do(store.ShortPage); !errors.Is(err, store.ErrLongPage) {
			return err
		}
		weight = pageTurn
	}
	return s.turn(ctx, a, weight, func() error { return do(store.LongPage) })
}

// turn calls do when it is the payer's turn.
func (s *admission) turn(ctx context.Context, a *Attempt, weight int64, do func() error) error {
	waiting, cancel := context.WithTimeout(ctx, joinTime)
	defer cancel()
	leave, err := s.own.enter(waiting, "turn of "+a.payer(), 1, 1)
	if err != nil {
		return busyWithOwn(err)
	}
	defer leave()
	if err := s.turns.Acquire(waiting, weight); err != nil {
		return Unavailable("the server is busy with searches and long pages", 2, err)
	}
	defer s.turns.Release(weight)
	return do()
}

func busyWithOwn(cause error) error {
	return Unavailable("the server is busy with other calls of yours", 2, cause)
}

// keep reports whether the response of a read can be kept until it is settled: too many may wait already. The caller forgets it.
func (s *admission) keep(response store.Response) bool {
	return s.responses.TryAcquire(int64(len(response.Body)))
}

func (s *admission) forget(response store.Response) { s.responses.Release(int64(len(response.Body))) }
