package store

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"
)

// groupCommit are the batches of a Store: see batch.go.
type groupCommit struct {
	checks     *batcher[*messageCheck]
	polls      *batcher[*unreadPoll]
	begins     *batcher[*Payment]
	deliveries *batcher[Closing]
	charges    *batcher[Closing]
	sends      *sendQueues
	sizes      *prometheus.HistogramVec
}

// newGroupCommit returns the group commit of a database. waiters bounds the transactions that wait for the lock of a conversation.
func newGroupCommit(r Reader, waiters *semaphore.Weighted) *groupCommit {
	sizes := newBatchSizes()
	of := func(kind string) batchKind {
		return batchKind{r.limits.Queue, sizes.WithLabelValues(kind)}
	}
	r.reads = newBatcher(of("reads"), r.readBatch, nil)
	r.reads.lanes = max(2, runtime.NumCPU()/2) // one statement of a page keeps a processor busy
	g := &groupCommit{
		checks:     newBatcher(of("checks"), r.checkBatch, nil),
		polls:      newBatcher(of("polls"), r.pollBatch, nil),
		begins:     newBatcher(of("begins"), r.beginBatch, nil),
		deliveries: newBatcher(of("deliveries"), r.closeBatch, Closing.keys),
		charges:    newBatcher(of("charges"), r.closeBatch, Closing.keys),
		sends:      newSendQueues(r, waiters, of), sizes: sizes,
	}
	g.begins.bytes = func(p *Payment) int { return len(p.Request) + len(p.Payload) }
	g.deliveries.bytes, g.charges.bytes = Closing.bytes, Closing.bytes
	return g
}

// newBatchSizes returns the sizes of batches by kind.
func newBatchSizes() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "parley_batch_calls",
		Help:    "Calls that shared one statement and one commit, by kind of batch.",
		Buckets: []float64{1, 2, 4, 8, 16, 32, maxBatch}}, []string{"batch"})
}

// Collectors are the store's metrics.
func (s *Store) Collectors() []prometheus.Collector { return []prometheus.Collector{s.group.sizes} }
