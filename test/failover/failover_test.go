//go:build failover

package failover

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/parley-chat/parley/internal/testkit"
)

// TestFailover breaks one thing after another under paid load. FAILOVER_FAULTS names the faults; without it all of them come in random
// order for FAILOVER_TIME. FAILOVER_SEED repeats an order.
func TestFailover(t *testing.T) {
	r := newRun(t, true)
	list, limit := faults, r.duration()
	if names := os.Getenv("FAILOVER_FAULTS"); names != "" {
		var err error
		list, err = chosen(names)
		testkit.NoError(t, err)
		limit = 0
	}
	found := r.test(list, limit)
	for _, offence := range found.offences() {
		t.Error(offence)
	}
	if found.acked == 0 {
		t.Error("no message was acknowledged")
	}
}

// TestAsynchronousReplicationLoses is the negative control: without synchronous replication the same checks must find lost messages.
func TestAsynchronousReplicationLoses(t *testing.T) {
	r := newRun(t, false)
	list, err := chosen(loseLeader)
	testkit.NoError(t, err)
	// The payments of lost messages stay open: nobody waits for them longer than for the outage.
	r.load.maxOpen = 10 * time.Second
	for _, a := range r.load.agents {
		a.Payer.Patience = time.Minute
	}
	found := r.test(list, 0)
	if found.lost == 0 {
		t.Error("acknowledged messages survived a failover without synchronous replication: the checks find nothing")
	}
	if len(found.histories.Anomalies) == 0 {
		t.Fatal("the histories have no anomaly: the checks find nothing")
	}
	t.Logf("found, as expected: %d lost; %s", found.lost, found.histories.Anomalies[0])
}

// run is a cluster with servers and clients.
type run struct {
	t       testing.TB
	seed    uint64
	cluster *cluster
	servers []*server
	world   *testkit.World
	load    *load
}

func newRun(t testing.TB, synchronous bool) *run {
	t.Helper()
	seed, err := strconv.ParseUint(cmp.Or(os.Getenv("FAILOVER_SEED"), strconv.FormatInt(time.Now().UnixNano()%1_000_000, 10)), 10, 64)
	if err != nil {
		t.Fatalf("FAILOVER_SEED: %v", err)
	}
	t.Logf("FAILOVER_SEED=%d", seed)
	r := &run{t: t, seed: seed, cluster: newCluster(t, synchronous)}
	r.createDatabase()
	r.world = testkit.NewWorld(t, r.cluster.url(routeHosts))
	facilitator := httptest.NewServer(r.world.Facilitator)
	t.Cleanup(facilitator.Close)
	keys := []string{"--authorizer-key", "file:" + testkit.KeyFile(t), "--server-secret", "file:" + testkit.KeyFile(t)}
	for i := range routes {
		s := newServer(t, i, r.cluster, facilitator.URL, keys)
		r.servers = append(r.servers, s)
		testkit.NoError(t, s.start(0))
		t.Cleanup(s.kill)
	}
	for _, s := range r.servers {
		if !s.process.Serves(30 * time.Second) {
			t.Fatalf("the server at %s does not start (%s)", s.listen, r.cluster.root)
		}
	}
	r.load = newLoad(t, r.world, facilitator.URL, r.servers)
	return r
}

// createDatabase makes the database and migrates it at once: the standbys may not have it yet.
func (r *run) createDatabase() {
	r.t.Helper()
	address := addressOf(r.cluster.leader())
	database, err := pgx.Connect(r.t.Context(), "postgres://postgres@"+address+"/postgres?sslmode=disable")
	testkit.NoError(r.t, err)
	defer func() { _ = database.Close(context.WithoutCancel(r.t.Context())) }()
	_, err = database.Exec(r.t.Context(), "CREATE DATABASE parley")
	testkit.NoError(r.t, err)
	testkit.NoError(r.t, execute(program, "migrate", "--database-url", r.cluster.url(routeHosts)))
}

// duration is how long faults come.
func (r *run) duration() time.Duration {
	limit, err := time.ParseDuration(cmp.Or(os.Getenv("FAILOVER_TIME"), "30m"))
	if err != nil {
		r.t.Fatalf("FAILOVER_TIME: %v", err)
	}
	return limit
}

// test runs the faults under load, once if limit is 0 and otherwise in random order again and again, and checks what is left.
func (r *run) test(list []fault, limit time.Duration) *books {
	r.t.Helper()
	n := &nemesis{cluster: r.cluster, servers: r.servers, chance: rand.New(rand.NewPCG(r.seed, 0))} //nolint:gosec // repeatable
	ctx, stop := context.WithCancel(r.t.Context())
	r.load.start(ctx, r.seed)
	for begun := time.Now(); ; {
		if limit > 0 {
			n.chance.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		}
		for _, fault := range list {
			if err := r.inflict(n, fault); err != nil {
				stop()
				r.t.Fatalf("%s: %v", fault.name, err)
			}
			if limit > 0 && time.Since(begun) > limit {
				break
			}
		}
		if time.Since(begun) >= limit {
			break
		}
	}
	stop()
	r.load.done.Wait()
	r.load.readAll()
	found, err := r.load.check(context.WithoutCancel(r.t.Context()), r.cluster.url(routeHosts))
	testkit.NoError(r.t, err)
	r.t.Logf("seed %d: %d messages acknowledged, %d lost, %d doubled, %d contradicted", r.seed, found.acked, found.lost, found.doubled,
		found.contradicted)
	r.t.Log(r.load.consumers)
	r.t.Logf("the histories:\n%s", &found.histories)
	return found
}

// inflict runs a fault and waits until everything is as before: three nodes, two servers that serve.
func (r *run) inflict(n *nemesis, f fault) error {
	time.Sleep(2 * time.Second)
	var broken time.Time
	if err := f.run(n, func() { broken = time.Now() }); err != nil {
		return err
	}
	mended := time.Now()
	if !testkit.Eventually(2*time.Minute, func() bool { return r.cluster.whole() == nil && r.load.transport.ackedBy(mended) == len(routes) }) {
		if err := r.cluster.whole(); err != nil {
			return fmt.Errorf("it was not whole again: %w", err)
		}
		return fmt.Errorf("%d of %d servers serve", r.load.transport.ackedBy(mended), len(routes))
	}
	r.t.Log(r.load.transport.measure(f.name, broken))
	return nil
}
