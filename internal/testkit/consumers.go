package testkit

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/parley-chat/parley/client"
)

// Consumers is what all consumers of unread messages have got. Each message has its own content.
type Consumers struct {
	pause time.Duration // of a consumer after each page

	mu       sync.Mutex
	seen     map[delivery]time.Time // when it was confirmed, if it was
	repeated []delivery             // although it was confirmed when the call began
	killed   int
	calls    int // that began
	pages    int // that came, empty ones of a call that waited aside
}

// NewConsumers returns consumers that pause after each page.
func NewConsumers(pause time.Duration) *Consumers {
	return &Consumers{pause: pause, seen: map[delivery]time.Time{}}
}

type delivery struct{ agent, content string }

// consumer is one of them. It keeps nothing but its last page.
type consumer struct {
	*Consumers
	agent string
	last  []client.UnreadMessage
	began time.Time // its call
}

func (c *Consumers) consumer(a *Agent) *consumer {
	return &consumer{Consumers: c, agent: a.Name, began: time.Now()}
}

// Live is a consumer that follows an agent's unread messages, from what is unconfirmed, until it is killed: while it calls, waits, gets a
// response, or before it confirms it. An error that another consumer would get too ends it earlier.
func (c *Consumers) Live(ctx context.Context, a *Agent, life time.Duration) error {
	ctx, kill := context.WithTimeout(ctx, life)
	defer kill()
	counting := *a.ClientInterface.(*client.Client) //nolint:forcetypeassert // NewAgent made it
	counting.RequestEditors = append(slices.Clip(counting.RequestEditors), c.count)
	one := c.consumer(a)
	err := (&client.ClientWithResponses{ClientInterface: &counting}).Follow(ctx, "", func(ctx context.Context, page *client.UnreadPage) error {
		one.got(page, ctx.Err() != nil)
		time.Sleep(c.pause)
		return ctx.Err()
	})
	if ctx.Err() == nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.killed++
	return nil
}

// Drain is a consumer that nobody kills. It ends when nothing is unread, or something came again.
func (c *Consumers) Drain(ctx context.Context, a *Agent) error {
	one := c.consumer(a)
	for next := (client.ListUnreadMessagesParams{MarkRead: new(false)}); ; {
		response, err := a.ListUnreadMessagesWithResponse(ctx, &next, c.count)
		if err != nil {
			return err
		}
		if response.JSON200 == nil {
			return fmt.Errorf("get unread messages: %s %s", response.Status(), response.Body)
		}
		if one.got(response.JSON200, false); len(response.JSON200.Messages) == 0 || len(one.repeated) > 0 {
			return nil
		}
		next.ReadThrough = response.JSON200.Cursor
	}
}

// count notes that a call begins.
func (c *Consumers) count(context.Context, *http.Request) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
	return nil
}

// got notes a page, which confirms the one before it. Of the page that a dead consumer got only the payment counts.
func (c *consumer) got(page *client.UnreadPage, dead bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pages++
	for _, message := range c.last {
		if of := (delivery{c.agent, message.Content}); c.seen[of].IsZero() {
			c.seen[of] = time.Now()
		}
	}
	if dead {
		return
	}
	for _, message := range page.Messages {
		of := delivery{c.agent, message.Content}
		confirmed := c.seen[of]
		if c.seen[of] = confirmed; !confirmed.IsZero() && confirmed.Before(c.began) {
			c.repeated = append(c.repeated, of)
		}
	}
	c.last, c.began = page.Messages, time.Now()
}

// Seen reports whether a consumer of the agent has got the message.
func (c *Consumers) Seen(agent, content string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, seen := c.seen[delivery{agent, content}]
	return seen
}

// Wrong returns what must not be, in words: a confirmed message came again, or of so many paid polls one was paid twice, or not at all.
func (c *Consumers) Wrong(paid int) (wrong []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.repeated) > 0 {
		wrong = append(wrong, fmt.Sprintf("%d messages were confirmed and came again, such as %v", len(c.repeated), c.repeated[0]))
	}
	if paid < c.pages || paid > c.calls {
		wrong = append(wrong, fmt.Sprintf("%d polls were paid; %d began, and %d returned", paid, c.calls, c.pages))
	}
	return wrong
}

func (c *Consumers) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprintf("%d consumers were killed; %d polls began, and %d returned; %d messages were seen", c.killed, c.calls, c.pages,
		len(c.seen))
}
