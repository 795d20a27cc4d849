package agent

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"os"
	"slices"
	"time"

	"github.com/parley-chat/parley/agent"
)

//go:embed report.html
var reportHTML string

var reportTemplate = template.Must(template.New("report").Funcs(template.FuncMap{"usd": agent.USD}).Parse(reportHTML))

// reportPage is the report for a person: one HTML document without scripts and without anything from elsewhere. Names are those that are
// safe to show to a model too, because an agent can read the file.
type reportPage struct {
	Name, Server, Network, Address, Since, Until, Made string
	PlayMoney, Frozen                                  bool

	Calls                    int
	Charged, Open, LeftToday uint64
	Limits                   agent.Limits

	// The chart has 10 units for a day, and 100 for the amount Top. LimitY is 0 if the limit is above it.
	Width     int
	Top, Half uint64
	LimitY    float64
	Bars      []bar
	Account   bool // an account was paid

	Meters        []meter
	Operations    []agent.Costs
	Conversations []conversationCosts
	Approvals     []agent.ApprovedPayment
}

// bar is a day of the chart.
type bar struct {
	agent.Costs

	X, Wide                                float64
	ChargedY, ChargedHigh, OpenY, OpenHigh float64
}

// meter is a limit and how much of it is used.
type meter struct {
	Name, Text string
	Of         bool
	Percent    float64
}

// conversationCosts is a contact and what calls about it cost.
type conversationCosts struct {
	Name, Kind, State string
	Calls             int
	Charged           uint64
}

// newReportPage collects what the page shows.
func newReportPage(ctx context.Context, s *session, since, now time.Time) (page *reportPage, err error) {
	ledger := s.agent.Ledger()
	limits, left, frozen, err := ledger.Limits(ctx)
	if err != nil {
		return nil, err
	}
	page = &reportPage{
		Name: agent.PlainWord(cmp.Or(s.config.Username, s.agent.Address())), Server: s.agent.Server(), Network: s.config.Network,
		Address: s.agent.Address(), PlayMoney: s.config.PlayMoney, Since: since.Format(time.DateOnly), Until: now.Format(time.DateOnly),
		Made: now.Format("2006-01-02 15:04"), Frozen: frozen, Limits: limits, LeftToday: left.PerDay,
		Meters: []meter{
			{Name: "One call without an approval", Text: agent.USD(limits.PerCall)}, used("In 24 hours", limits.PerDay, left.PerDay),
			used("Of that, fetching messages", limits.Polls, left.Polls),
		},
	}
	costs, err := ledger.Report(ctx, since, "day", "operation")
	if err != nil {
		return nil, err
	}
	page.draw(costs, since, now)
	if page.Operations, err = ledger.Report(ctx, since, "operation"); err != nil {
		return nil, err
	}
	byCost := func(a, b agent.Costs) int { return cmp.Compare(b.Charged, a.Charged) }
	slices.SortStableFunc(page.Operations, byCost)
	contacts, err := s.agent.Contacts()
	if err != nil {
		return nil, err
	}
	peers, err := ledger.Report(ctx, since, "peer")
	if err != nil {
		return nil, err
	}
	peers = slices.DeleteFunc(peers, func(one agent.Costs) bool { return one.Peer == s.config.Username }) // the account itself
	page.Conversations = conversations(contacts, peers)
	page.Approvals, err = ledger.Approvals(ctx, since)
	for i := range page.Approvals {
		page.Approvals[i].Peer = nameOfPeer(contacts, page.Approvals[i].Peer)
	}
	return page, err
}

// draw computes sums and chart from costs by day and operation. The chart leaves out the account, next to which nothing else is seen.
func (p *reportPage) draw(costs []agent.Costs, since, now time.Time) {
	p.Top = 1000 // 0.001 USD
	var days []agent.Costs
	for _, one := range costs {
		p.Calls, p.Charged, p.Open = p.Calls+one.Calls, p.Charged+one.Charged, p.Open+one.Open
		if agent.CallerOf(one.Operation).Command == "init" {
			p.Account = true
			continue
		}
		if last := len(days) - 1; last < 0 || days[last].Day != one.Day {
			days = append(days, agent.Costs{Day: one.Day})
		}
		day := &days[len(days)-1]
		day.Calls, day.Charged, day.Open = day.Calls+one.Calls, day.Charged+one.Charged, day.Open+one.Open
	}
	steps := 0
	for _, day := range days {
		for ; p.Top < day.Charged+day.Open; steps++ { // 1, 2, 5, 10, 20 and so on
			p.Top = p.Top / []uint64{1, 2, 5}[steps%3] * []uint64{2, 5, 10}[steps%3]
		}
	}
	p.Half = p.Top / 2
	p.Width = 10 * (1 + int(now.Sub(since)/(24*time.Hour)))
	high := func(amount uint64) float64 { return 100 * float64(amount) / float64(p.Top) }
	if p.Limits.PerDay < p.Top {
		p.LimitY = 100 - high(p.Limits.PerDay)
	}
	for _, day := range days {
		at, err := time.Parse(time.DateOnly, day.Day)
		if err != nil {
			continue // the ledger writes dates
		}
		one := bar{Costs: day, X: 10*at.Sub(since).Hours()/24 + 1.5, Wide: 7, ChargedHigh: high(day.Charged), OpenHigh: high(day.Open)}
		one.ChargedY = 100 - one.ChargedHigh
		one.OpenY = one.ChargedY - one.OpenHigh
		p.Bars = append(p.Bars, one)
	}
}

func used(name string, limit, left uint64) meter {
	m := meter{Name: name, Text: fmt.Sprintf("%s of %s", agent.USD(limit-left), agent.USD(limit)), Of: true, Percent: 100}
	if limit > 0 {
		m.Percent = 100 * float64(limit-left) / float64(limit)
	}
	return m
}

// conversations adds costs to contacts. Those that cost most come first.
func conversations(contacts agent.Contacts, peers []agent.Costs) (all []conversationCosts) {
	costs := map[string]agent.Costs{}
	for _, peer := range peers {
		name := nameOfPeer(contacts, peer.Peer)
		sum := costs[name]
		sum.Calls, sum.Charged = sum.Calls+peer.Calls, sum.Charged+peer.Charged
		costs[name] = sum
	}
	delete(costs, "") // calls about nobody
	for _, contact := range contacts {
		name := contact.Plain()
		all = append(all, conversationCosts{name, contact.Kind, contact.State(), costs[name].Calls, costs[name].Charged})
		delete(costs, name)
	}
	for name, cost := range costs {
		all = append(all, conversationCosts{Name: name, State: "not a contact", Calls: cost.Calls, Charged: cost.Charged})
	}
	slices.SortFunc(all, func(a, b conversationCosts) int {
		return cmp.Or(cmp.Compare(b.Charged, a.Charged), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// nameOfPeer returns how a peer of a call is shown.
func nameOfPeer(contacts agent.Contacts, peer string) string {
	if known := contacts.ByID(peer); known != nil {
		return known.Plain()
	}
	return agent.Visible(peer)
}

// writePage writes the page to a file that only its owner can read.
func writePage(page *reportPage, name string) error {
	var text bytes.Buffer
	if err := reportTemplate.Execute(&text, page); err != nil {
		return fmt.Errorf("make the report: %w", err)
	}
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	found, err := file.Stat()
	if err == nil && found.Mode().IsRegular() {
		err = file.Chmod(0o600) // it may have been there
	}
	if err == nil {
		_, err = file.Write(text.Bytes())
	}
	return errors.Join(err, file.Close())
}
