package agent

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/parley-chat/parley/agent"
)

// silence is how long a call may take before the command says that it waits.
const silence = 2 * time.Second

// progress tells on standard error what a command waits for, once, and with --verbose each request.
type progress struct {
	to      io.Writer
	verbose bool

	mu   sync.Mutex
	told bool
	last string // what became of the last request
}

// waiting is [agent.Command.Waiting].
func (p *progress) waiting(call string) (ended func()) {
	timer := time.AfterFunc(silence, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.told {
			return
		}
		p.told = true
		text := "waiting for the server (" + call + ")"
		if p.last != "" {
			text += "; the last request: " + p.last
		}
		fmt.Fprintln(p.to, text)
	})
	return func() { timer.Stop() }
}

// requested is [agent.Command.Requested].
func (p *progress) requested(r agent.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = fmt.Sprintf("%s %s, ", r.Method, r.Path)
	if r.Err != nil {
		p.last += r.Err.Error()
	} else {
		p.last += fmt.Sprintf("status %d", r.Status)
	}
	if p.verbose {
		fmt.Fprintf(p.to, "%s, %d ms, payment %s USD\n", p.last, r.Took.Milliseconds(), agent.USD(r.Paid))
	}
}
