//go:build restore

package restore

import (
	"strings"
	"time"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

// run backs up, destroys, restores, and checks.
func (d *drill) run() {
	d.follow(backUp[d.way]...)
	d.must("systemctl start parley")
	senders := []*sender{d.register("exact_a", false), d.register("exact_b", false), d.register("channel_a", true),
		d.register("channel_b", true)}
	for i, s := range senders {
		s.to = senders[(i+1)%len(senders)].ID
	}
	withdrawing := d.register("withdrawing", true)
	withdrawing.to = senders[0].ID
	withdrawing.send(d.t)
	stop := d.load(senders)
	defer func() { stop() }()
	time.Sleep(time.Second)
	d.claim()
	time.Sleep(time.Second)
	before, after := d.mark()
	time.Sleep(time.Second)
	// These accounts are lost, with their payments and the payment channel of one.
	lost := []*sender{d.register("late_exact", false), d.register("late_channel", true)}
	redeemed := d.write(senders[0], "redeemed later")
	d.withdraw(withdrawing)
	d.claim()
	time.Sleep(time.Second)
	stop()
	stop = func() {}
	if d.t.Failed() {
		return
	}
	d.destroy()

	d.follow(restores[d.way]...)
	if d.answers() {
		d.t.Fatal("a server runs while the database is restored")
	}
	d.follow(recovers...)
	d.compareMessages(senders, before, after)
	if n := d.world.Count(`SELECT count(*) FROM payment_channels WHERE withdraw_requested_at <> 0`); n != 1 {
		d.t.Errorf("%d withdrawals are known, want the one that began after the backup", n)
	}
	d.goOn(senders, lost, redeemed)
	d.follow(backUpAgain[d.way]...)
	if d.way == "pgbackrest" && strings.Count(d.must("sudo -u postgres pgbackrest --stanza=parley info"), "full backup: ") < 2 {
		d.t.Fatal("there is no backup of the restored database")
	}
	if d.leftOut { // it had no consequence that the drill sees
		d.t.Fatal("a step of the guide was left out")
	}
}

// withdraw begins to withdraw what a sender has in its payment channel.
func (d *drill) withdraw(s *sender) {
	d.t.Helper()
	config := x402.ChannelConfig{Payer: testkit.Address(s.Wallet)}
	d.world.Scan(`SELECT payer_authorizer, pay_to, receiver_authorizer, asset, withdraw_delay, salt FROM payment_channels WHERE payer = $1`,
		[]any{strings.ToLower(config.Payer)}, &config.PayerAuthorizer, &config.Receiver, &config.ReceiverAuthorizer, &config.Token,
		&config.WithdrawDelay, &config.Salt)
	testkit.NoError(d.t, d.world.Ledger.InitiateWithdraw(config, 1))
}

// claim claims everything and pays it out. The server, which also claims, may have a payment channel at that moment.
func (d *drill) claim() {
	d.t.Helper()
	claimed := func() bool { _, err := d.shell("parley payments claim --all"); return err == nil }
	if !testkit.Eventually(20*time.Second, claimed) {
		d.t.Fatal("the vouchers cannot be claimed")
	}
}

// mark notes the point to which the database is restored: calls that ended before the first time are in it, and those that began
// after the second are not.
func (d *drill) mark() (before, after time.Time) {
	d.t.Helper()
	before = time.Now()
	if d.way == "pg-dump" {
		d.follow(dump)
	} else {
		d.point = strings.TrimSpace(d.must(
			`psql -d parley -Atc "SELECT to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US') || '+00'"`))
	}
	return before, time.Now()
}

// destroy waits until the WAL is archived, and then loses the machine of PostgreSQL.
func (d *drill) destroy() {
	d.t.Helper()
	if d.way == "pgbackrest" {
		segment := strings.TrimSpace(d.must(`psql -d parley -Atc "SELECT pg_walfile_name(pg_switch_wal())"`))
		archived := func() bool {
			return strings.TrimSpace(d.must(`psql -d parley -Atc "SELECT coalesce(last_archived_wal, '') FROM pg_stat_archiver"`)) >= segment
		}
		if !testkit.Eventually(30*time.Second, archived) {
			d.t.Fatalf("%s is not archived", segment)
		}
	}
	// PostgreSQL does not start beside the lock file of a socket whose process nobody has waited for yet.
	d.must(`kill -9 "$(head -1 data/postmaster.pid)"; rm -rf data socket/.s.PGSQL.*`)
	if d.way == "pg-dump" {
		d.initialize()
		return
	}
	d.must(`mkdir data; chmod 700 data; [ "$(id -u)" != 0 ] || chown postgres data`)
}

// compareMessages wants each message that was acknowledged before the point once, and none that was sent after it.
func (d *drill) compareMessages(senders []*sender, before, after time.Time) {
	d.t.Helper()
	kept, gone := 0, 0
	for _, s := range senders {
		for _, c := range s.calls {
			n := d.world.Count(`SELECT count(*) FROM messages WHERE content = $1`, c.content)
			switch {
			case c.ended.Before(before) && n != 1:
				d.t.Errorf("%q was acknowledged before the point and is there %d times", c.content, n)
			case c.begun.After(after) && n != 0:
				d.t.Errorf("%q was sent after the point and is there", c.content)
			case n > 1:
				d.t.Errorf("%q is there %d times", c.content, n)
			case n == 1:
				kept++
			default:
				gone++
			}
		}
	}
	if kept == 0 || gone == 0 {
		d.t.Errorf("%d messages are kept and %d lost: the drill proves nothing", kept, gone)
	}
	d.t.Logf("%d acknowledged messages are there once, %d of after the point are lost", kept, gone)
}

// goOn lets all clients go on: the old ones, a lost message whose payment is sent again, and the lost accounts, which register again.
// Then the books agree.
func (d *drill) goOn(senders, lost []*sender, redeemed message) {
	d.t.Helper()
	revenue := d.world.Revenue()
	d.post(redeemed).Require(d.t, "the payment of a lost message, sent again", 200)
	d.post(redeemed).Require(d.t, "once more", 200)
	if n := d.world.Count(`SELECT count(*) FROM messages WHERE content = $1`, redeemed.content); n != 1 || d.world.Revenue() != revenue {
		d.t.Errorf("the lost message is there %d times, charged %d", n, d.world.Revenue()-revenue)
	}
	for _, s := range lost {
		key := s.Key
		s.Key, s.to = "", senders[0].ID
		s.Register(d.t, s.Name)
		if s.Key == key {
			d.t.Errorf("%s has its old API key", s.Name)
		}
	}
	if d.world.Revenue() != revenue {
		d.t.Errorf("to register again cost %d", d.world.Revenue()-revenue)
	}
	for _, s := range append(senders, lost...) {
		s.send(d.t)
		s.send(d.t)
	}
	d.claim()
	_, findings, _ := strings.Cut(d.must("parley payments reconcile --strict"), "FINDING")
	if output := strings.TrimSpace(findings); strings.Count(output, "\n") != 1 || !strings.Contains(output, "can be withdrawn by the payer") {
		d.t.Errorf("the books have something else to report than the withdrawal:\n%s", output)
	}
}
