//go:build linux

package main

import (
	"context"
	"fmt"

	"github.com/parley-chat/parley/server"
	"github.com/parley-chat/parley/store"
)

// sharedGroups is the number of group chats that agents of both servers write to, besides the one.
const sharedGroups = 16

// servers compares one server with two on the same database, which share the clients. Each server has a processor of its
// own. PostgreSQL and the load generator run on all of them.
func (d *dataset) servers(ctx context.Context) error {
	var shared [sharedGroups]string // several, and still so few that the servers meet in each
	for i := range shared {
		group, err := d.createGroup(ctx, fmt.Sprintf("shared group %d", i), d.writers, 0)
		if err != nil {
			return err
		}
		shared[i] = server.ConversationID(store.KindGroup, group)
	}
	// Callers take the groups in turn, each time from another one on, so that every client writes to all of them.
	several := newOperation(fmt.Sprintf("send to %d conversations", sharedGroups), "/chat/group/send", d.writers, func(i int) map[string]any {
		return map[string]any{"chat_id": shared[(i+i/sharedGroups+i/perRole)%sharedGroups], "content": d.texts[i%texts]}
	})
	operations := []operation{d.named(sendOne), several, d.named(sendMany)}
	for _, scheme := range []struct {
		name     string
		settings []string
	}{{"voucher", []string{d.withChannels()}}, {"exact", nil}} {
		// Both offer the same resource, so a payment is good for either.
		settings := append([]string{"PARLEY_BASE_URL=http://parley.test"}, scheme.settings...)
		first, err := d.serveOn(ctx, 0, settings...)
		if err != nil {
			return err
		}
		second, err := d.serveOn(ctx, 1, settings...)
		if err != nil {
			return err
		}
		for _, o := range operations {
			if !d.only.MatchString(o.name) {
				continue
			}
			title := fmt.Sprintf("%s, %s", o.name, scheme.name)
			if err := d.compare("Two servers", title, []int{16, 64}, 2*d.rounds,
				d.calls(ctx, "one server", o, first), d.calls(ctx, "two servers", o, first, second)); err != nil {
				return err
			}
		}
		d.stopServers()
	}
	return nil
}
