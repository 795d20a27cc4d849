package store

import "github.com/prometheus/client_golang/prometheus"

// newBatchSizes returns the sizes of batches by kind.
func newBatchSizes() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "parley_batch_calls",
		Help:    "Calls that shared one statement and one commit, by kind of batch.",
		Buckets: []float64{1, 2, 4, 8, 16, 32, maxBatch}}, []string{"batch"})
}

// Collectors are the store's metrics.
func (s *Store) Collectors() []prometheus.Collector { return []prometheus.Collector{s.batchSizes} }
