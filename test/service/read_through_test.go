package service

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/internal/testkit"
)

// TestReadThrough: a poll confirms the page before it and returns what follows, and marks nothing that it returns.
func TestReadThrough(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob, carol := w.agent("alice"), w.agent("bob"), w.agent("carol")
	alice.send(bob, "one")
	chat := carol.createGroup("planners", bob)
	carol.sendGroup(chat, "two")
	alice.send(bob, "three")
	poll := func(query string) testkit.Reply {
		t.Helper()
		return bob.polls(query, bob.signsPoll())
	}
	first := isPage(t, "the first page", poll("?mark_read=false&page_size=2"), 2, 1)
	if again := isPage(t, "the same page", poll("?mark_read=false&page_size=2"), 2, 1); again != first {
		t.Errorf("the cursor of the same page is %s, then %s", first, again)
	}
	for _, mark := range []string{"", "&mark_read=true", "&mark_read=false"} { // the second time it changes nothing
		second := poll("?read_through=" + first + mark)
		isPage(t, "the second page", second, 1, 0)
		if !strings.Contains(string(second.Body), `"three"`) {
			t.Errorf("the second page is %v", second)
		}
	}
	for _, query := range []string{"?mark_read=false&page_size=1&page=2", "?mark_read=false&page=9", "?page=2&read_through=" + first} {
		later := poll(query)
		later.Want(t, query, http.StatusOK)
		if strings.Contains(string(later.Body), `"cursor"`) {
			t.Errorf("%s has a cursor, which would confirm nothing: %v", query, later)
		}
	}
	last := isPage(t, "the second page", poll("?read_through="+first), 1, 0)
	payment := bob.signsPoll()
	empty := bob.polls("?read_through="+last, payment)
	isPage(t, "the last page", empty, 0, 0)
	alice.send(bob, "four")
	if again := bob.polls("?read_through="+last, payment); string(again.Body) != string(empty.Body) {
		t.Errorf("the same payment returns %v, want %v", again, empty)
	}
	isPage(t, "an old cursor", poll("?read_through="+first), 1, 0)
	isPage(t, "the cursor of an empty page", poll("?read_through="+empty.Field(t, "cursor")), 1, 0)
	replies := bob.waits("?wait=30&read_through="+isPage(t, "four", poll("?mark_read=false"), 1, 0), bob.signsPoll(), 1)
	carol.groupMust("delete", chat)
	isPage(t, "a call that waits for what follows", <-replies, 0, 1)
	isPage(t, "the default marks as read", poll(""), 0, 1)
	isPage(t, "everything is read", poll("?wait=1"), 0, 0)
}

// TestDamagedCursors: a cursor that is damaged, made up, or of another account is a free 400, also before a wait.
func TestDamagedCursors(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	alice.send(bob, "one")
	bob.send(alice, "two")
	good := isPage(t, "bob", bob.polls("?mark_read=false", bob.signsPoll()), 1, 0)
	of := isPage(t, "alice", alice.polls("?mark_read=false", alice.signsPoll()), 1, 0)
	payments := w.Count("SELECT count(*) FROM payments")
	last := "A"
	if strings.HasSuffix(good, last) {
		last = "Q"
	}
	for _, cursor := range []string{of, good[:len(good)-1] + last, good + "AA", good[:len(good)-4], "c1", "c2" + good[2:], "c00", "c1AAAA",
		"c1_____________________w", "x", "1", strings.Repeat("c", 12_289), "c1%20"} {
		for _, query := range []string{"?read_through=", "?wait=60&read_through="} {
			reply := bob.polls(query+cursor, bob.signsPoll())
			reply.WantRefused(t, fmt.Sprintf("the cursor %.40s", cursor), http.StatusBadRequest, "invalid_request")
			if len(reply.Details) == 0 || !strings.Contains(reply.Details[0].Field, "read_through") {
				t.Errorf("the cursor %.40s: the details are %+v", cursor, reply.Details)
			}
		}
	}
	if now := w.Count("SELECT count(*) FROM payments"); now != payments {
		t.Errorf("damaged cursors have made %d payments", now-payments)
	}
	isPage(t, "bob afterwards", bob.polls("", bob.signsPoll()), 1, 0)
}

// TestClientFollows: the Go client gets messages as they come, and again what was not confirmed.
func TestClientFollows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	came := make(chan string)
	died := errors.New("died")
	follow := func(until string) chan error {
		ended := make(chan error, 1)
		go func() {
			ended <- bob.Follow(t.Context(), "", func(_ context.Context, page *client.UnreadPage) error {
				for _, message := range page.Messages {
					came <- message.Content
					if message.Content == until {
						return died
					}
				}
				return nil
			})
		}()
		return ended
	}
	hears := func(want string) {
		t.Helper()
		if got := <-came; got != want {
			t.Errorf("bob hears %q, want %q", got, want)
		}
	}
	ended := follow("two")
	w.holds(1)
	alice.send(bob, "one")
	hears("one")
	w.holds(1)
	alice.send(bob, "two")
	hears("two")
	if err := <-ended; !errors.Is(err, died) {
		t.Errorf("it ends with %v", err)
	}
	ended = follow("three")
	hears("two")
	alice.send(bob, "three")
	hears("three")
	if err := <-ended; !errors.Is(err, died) {
		t.Errorf("it ends with %v", err)
	}
	isPage(t, "what is unconfirmed", bob.polls("", bob.signsPoll()), 1, 0)
}
