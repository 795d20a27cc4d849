//go:build unix

package agent_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/agent/agenttest"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/server"
	"github.com/parley-chat/parley/x402"
)

// attackCalls is the number of calls of TestAttack. AGENT_ATTACK_CALLS sets another one.
const attackCalls = 200

// attackPrice is the price of a call of the attack, in atomic units.
const attackPrice = 5000

// childVariables tell this test's program to be a process of an agent: its folder, its key and its group chat.
const childFolder, childKey, childGroup = "AGENT_ATTACK_FOLDER", "AGENT_ATTACK_KEY", "AGENT_ATTACK_GROUP"

// reply is what became of a message that a child sent.
type reply struct {
	Done, Refused bool
	Error         string
}

// runChild sends the messages whose contents it reads, one after another, and writes their replies, until it is killed.
func runChild(folder, key, group string) error {
	if err := limitFiles(); err != nil {
		return err
	}
	signer, err := x402.ParseKeySigner(key)
	if err != nil {
		return err
	}
	secrets, err := agent.OpenSecrets(agent.PlaceFile, folder)
	if err != nil {
		return err
	}
	a, err := agent.Open(agent.Settings{Folder: folder, Signer: signer, Secrets: secrets, Networks: []x402.Network{testkit.PlayMoney}})
	if err != nil {
		return err
	}
	ctx := context.Background()
	orders, replies := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var content string
		if err := orders.Decode(&content); err != nil {
			return nil //nolint:nilerr // the test has ended
		}
		result, err := a.Call(ctx, "sendGroupMessage", map[string]any{"chat_id": group, "content": content},
			agent.CallOptions{Patience: 2 * time.Second})
		made := reply{Done: err == nil}
		if err != nil {
			failed, ok := errors.AsType[*agent.Failure](err)
			made.Refused = ok && failed.Status != 0
			made.Refused = made.Refused || isLimit(err)
			made.Error = err.Error()
		}
		if err := replies.Encode(made); err != nil {
			return err
		}
		if result != nil {
			if err := a.Seen(ctx, result); err != nil {
				return err
			}
		}
	}
}

// child is a process of an agent.
type child struct {
	cmd     *exec.Cmd
	orders  *json.Encoder
	replies *bufio.Reader
}

func (x *attack) start(environment ...string) *child {
	cmd := exec.CommandContext(x.t.Context(), os.Args[0])
	cmd.Env = append(append(os.Environ(), childFolder+"="+x.folder, childKey+"="+x.key, childGroup+"="+x.group), environment...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err == nil {
		var out io.ReadCloser
		if out, err = cmd.StdoutPipe(); err == nil {
			if err = cmd.Start(); err == nil {
				return &child{cmd, json.NewEncoder(in), bufio.NewReader(out)}
			}
		}
	}
	x.t.Error(err)
	return nil
}

// ask lets the child send a message. It returns false if the child died.
func (c *child) ask(content string) (made reply, ok bool) {
	err := c.orders.Encode(content)
	line, readErr := c.replies.ReadBytes('\n')
	return made, err == nil && readErr == nil && json.Unmarshal(line, &made) == nil
}

func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

// attack is a server that lies and loses responses, and processes of one agent that are killed.
type attack struct {
	*world
	t           *testing.T
	folder, key string
	group       string
	kills       atomic.Int64
	signed      signatures
	lies        [16]atomic.Int64 // how often each of the faults happened
}

// faults are what happens to a request instead of a response.
var faults = [...]struct {
	name string
	run  func(x *attack, rw http.ResponseWriter, r *http.Request, next http.Handler)
}{
	{"lose the response", func(_ *attack, rw http.ResponseWriter, r *http.Request, next http.Handler) {
		agenttest.LoseResponse(rw, r, next)
	}},
	{"lose the request", func(_ *attack, rw http.ResponseWriter, _ *http.Request, _ http.Handler) { testkit.HangUp(rw) }},
	{"503", func(_ *attack, rw http.ResponseWriter, _ *http.Request, _ http.Handler) { unavailable(rw) }},
	{"503 after the effect", func(_ *attack, rw http.ResponseWriter, r *http.Request, next http.Handler) {
		next.ServeHTTP(httptest.NewRecorder(), r)
		unavailable(rw)
	}},
	{"deny the payment", func(_ *attack, rw http.ResponseWriter, r *http.Request, next http.Handler) {
		next.ServeHTTP(httptest.NewRecorder(), r)
		rw.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(rw, `{"success":false,"code":"group_chat_not_found","message":"no","charged":false}`)
	}},
	{"other terms", func(x *attack, rw http.ResponseWriter, r *http.Request, _ http.Handler) {
		x.AskAgain(rw, r, "", testkit.PlayMoney.Requirements(2*attackPrice, testkit.Address(testkit.NewKey()), 60))
	}},
	{"wait", func(_ *attack, rw http.ResponseWriter, r *http.Request, next http.Handler) {
		time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond)
		next.ServeHTTP(rw, r)
	}},
}

func unavailable(rw http.ResponseWriter) {
	rw.Header().Set("Retry-After", "0")
	rw.WriteHeader(http.StatusServiceUnavailable)
	_, _ = io.WriteString(rw, `{"success":false,"code":"unavailable"}`)
}

// serve lets a third of the requests meet a fault.
func (x *attack) serve(rw http.ResponseWriter, r *http.Request, next http.Handler) {
	x.signed.note(r.Header.Get(x402.HeaderPaymentSignature))
	if fault := rand.IntN(3 * len(faults)); fault < len(faults) {
		x.lies[fault].Add(1)
		faults[fault].run(x, rw, r, next)
		return
	}
	next.ServeHTTP(rw, r)
}

// deliver lets a process make a call until it is done or refused. The process is killed now and then, and started again.
func (x *attack) deliver(process **child, content string) (done bool) {
	for try := 0; ; try++ {
		if *process == nil {
			*process = x.start()
		}
		if *process == nil || x.t.Context().Err() != nil {
			return false
		}
		if try == 100 {
			x.t.Errorf("%s was not done after 100 tries", content)
			return false
		}
		p := *process
		if rand.IntN(4) == 0 {
			x.kills.Add(1)
			time.AfterFunc(time.Duration(rand.IntN(30_000))*time.Microsecond, func() { _ = p.cmd.Process.Kill() })
		}
		made, ok := p.ask(content)
		if !ok {
			p.kill()
			*process = nil
			continue
		}
		if made.Done || made.Refused {
			return made.Done
		}
		if strings.Contains(made.Error, x.key) {
			x.t.Error("an error contains the key")
		}
	}
}

// TestAttack: whatever the server says, and whenever processes die, an agent pays at most its limit, a call that is done has its
// message once and its response stored, and none has it twice.
func TestAttack(t *testing.T) {
	t.Parallel()
	eachScheme(t, runAttack)
}

func runAttack(t *testing.T, settings ...func(*server.Config)) {
	t.Helper()
	calls := testkit.Times(attackCalls)
	if set, err := strconv.Atoi(os.Getenv("AGENT_ATTACK_CALLS")); err == nil {
		calls = set
	}
	x := newAttack(t, uint64(calls)*attackPrice*11/10, settings...) //nolint:gosec // not negative
	before := x.charged()
	var mu sync.Mutex
	done := map[string]bool{}
	var running sync.WaitGroup
	for process := range 6 {
		running.Go(func() {
			var p *child
			for i := process; i < calls; i += 6 {
				content := fmt.Sprintf("message %d", i)
				if x.deliver(&p, content) {
					mu.Lock()
					done[content] = true
					mu.Unlock()
				}
			}
			if p != nil {
				p.kill()
			}
		})
	}
	running.Wait()
	x.Answer(nil)
	x.check(done, before)
	for i := range faults {
		t.Logf("%s: %d times", faults[i].name, x.lies[i].Load())
	}
	t.Logf("%d of %d calls done, %d kills", len(done), calls, x.kills.Load())
}
