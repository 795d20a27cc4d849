//go:build consistency

package consistency

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/devnet"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store/storetest"
	"github.com/parley-chat/parley/x402"
)

func TestMain(m *testing.M) { storetest.Main(m) }

// world is a database, a payment network and two servers.
type world struct {
	*testkit.World
	program     string
	flags       []string
	listen      []string
	logs        string
	environment []string

	mu      sync.Mutex
	servers []*testkit.Process
}

// newWorld starts two servers of a program, with further variables in their environment.
func newWorld(t testing.TB, program string, environment ...string) *world {
	t.Helper()
	w := &world{World: testkit.NewWorld(t, storetest.URL(t)), program: program, logs: t.ArtifactDir(), environment: environment,
		servers: make([]*testkit.Process, 2)}
	facilitator := httptest.NewServer(w.Facilitator)
	t.Cleanup(facilitator.Close)
	w.flags = []string{"serve", "--database-url", w.DatabaseURL, "--payee", devnet.Payee, "--network", x402.NetworkBaseSepolia,
		"--facilitator-url", facilitator.URL, "--rpc-url", facilitator.URL + "/rpc",
		"--authorizer-key", "file:" + testkit.KeyFile(t), "--server-secret", "file:" + testkit.KeyFile(t)}
	for i := range w.servers {
		w.listen = append(w.listen, testkit.FreeAddress(t))
		testkit.NoError(t, w.start(i))
		t.Cleanup(func() { w.servers[i].Kill() })
	}
	return w
}

// start starts a server and waits until it serves.
func (w *world) start(i int) error {
	log, err := os.OpenFile(filepath.Join(w.logs, fmt.Sprintf("server%d.log", i)), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(w.program, append(w.flags, "--listen", w.listen[i], "--base-url", "http://"+w.listen[i])...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "PARLEY_LIMIT_ADDRESS_RATE=100000000",
		"PGAPPNAME=" + served}
	cmd.Env = append(cmd.Env, w.environment...)
	cmd.Stdout, cmd.Stderr = log, log
	process, err := testkit.Launch(cmd)
	if err != nil {
		return err
	}
	w.mu.Lock()
	w.servers[i] = process
	w.mu.Unlock()
	if !process.Serves(30 * time.Second) {
		return fmt.Errorf("the server at %s does not start (%s)", w.listen[i], w.logs)
	}
	return nil
}

// served names the servers' connections, which break; those of the checks do not.
const served = "served"

// breakSomething kills a server and starts it again, or ends all connections of the servers to the database.
func (w *world) breakSomething(chance *rand.Rand) error {
	if chance.IntN(3) == 0 {
		if w.Count(`SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
			WHERE datname = current_database() AND application_name = $1`, served) == 0 {
			return errors.New("the servers have no connections to the database")
		}
		return nil
	}
	i := chance.IntN(len(w.listen))
	w.servers[i].Kill()
	time.Sleep(time.Duration(chance.IntN(1000)) * time.Millisecond)
	return w.start(i)
}

// transport sends each request to one of the servers, and loses some.
type transport struct {
	w        *world
	recorder *Recorder
	known    *terms
}

// terms are the prices that a client knows, so that it asks for each only once.
type terms struct {
	mu       sync.Mutex
	required map[string]*x402.PaymentRequired
}

func (k *terms) Required(request *http.Request) *x402.PaymentRequired {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.required[request.URL.Path]
}

func (k *terms) Accept(*http.Request, x402.PaymentRequirements) error { return nil }

func (k *terms) learn(path string, header http.Header) {
	required, err := x402.DecodePaymentRequired(header.Get(x402.HeaderPaymentRequired))
	if err != nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.required[path] = required
}

// network is a transport that loses some requests and some responses.
type network struct{ http.RoundTripper }

var errLost = errors.New("the connection is lost")

// lossy is one of so many requests that is lost, before or after the server handles it.
const lossy = 60

func (n network) RoundTrip(request *http.Request) (*http.Response, error) {
	chance := rand.IntN(2 * lossy)
	if chance == 0 {
		return nil, errLost
	}
	response, err := n.RoundTripper.RoundTrip(request)
	if err == nil && chance == 1 {
		_ = response.Body.Close()
		return nil, errLost
	}
	return response, err
}

// RoundTrip repeats a request without a payment until it gets a response: it changes nothing, and clients do not repeat it.
func (t *transport) RoundTrip(request *http.Request) (response *http.Response, err error) {
	paid := request.Header.Get(x402.HeaderPaymentSignature) != ""
	testkit.Eventually(patient, func() bool {
		again := request.Clone(request.Context())
		again.URL.Host = t.w.listen[rand.IntN(len(t.w.listen))]
		if request.GetBody != nil {
			again.Body, _ = request.GetBody()
		}
		response, err = t.recorder.RoundTrip(again) //nolint:bodyclose // the client's
		return paid || err == nil && response.StatusCode < http.StatusInternalServerError
	})
	if !paid && err == nil {
		t.known.learn(request.URL.Path, response.Header)
	}
	return response, err
}
