package operator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	parley "github.com/parley-chat/parley"
	"github.com/parley-chat/parley/cmd/parley/console"
	"github.com/parley-chat/parley/cmd/parley/settings"
	"github.com/parley-chat/parley/server"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

const (
	// listedFor is how long catalogues of facilitators list a resource after a settlement.
	listedFor = 30 * 24 * time.Hour
	// lapsesAfter leaves five days to do something. The alert ParleyListingsLapse has the same bound.
	lapsesAfter = 25 * 24 * time.Hour
)

// listings compares what catalogues need of each paid operation with what the facilitator's catalogue lists. It changes nothing, unless
// it is to pay.
type listings struct {
	serverSettings

	JSON   bool            `name:"json" help:"Write one JSON object instead of a table."`
	Pay    settings.Secret `placeholder:"KEY"`
	APIKey settings.Secret `name:"pay-api-key" placeholder:"KEY"`
	Most   string          `name:"pay-most" placeholder:"USD" help:"What --pay may spend, such as 0.10. Required with --pay."`
	Actor  string          `env:"PARLEY_ACTOR" placeholder:"NAME" help:"Who pays, for the audit. The user of the operating system by default."`
}

// listing is what is known about one paid operation. Age is in seconds, or nil: it was never settled with exact. Listed is nil if the
// facilitator has no catalogue. Faults keep the operation out of catalogues.
type listing struct {
	Operation string     `json:"operation"`
	Resource  string     `json:"resource"`
	Faults    []string   `json:"faults"`
	Age       *float64   `json:"settled_seconds"`
	Listed    *bool      `json:"listed"`
	ListedAt  *time.Time `json:"listed_at"`
	State     string     `json:"state"`
	Paid      string     `json:"paid,omitempty"` // by this command

	method, path string
	price        uint64
}

// The states of a listing.
const (
	listingFaulty  = "faulty"  // catalogues cannot list it
	listingNever   = "never"   // never settled with exact
	listingLapsed  = "lapsed"  // not settled for listedFor
	listingLapsing = "lapsing" // not settled for lapsesAfter
	listingMissing = "missing" // settled, and not listed
	listingGood    = "ok"
)

func (l *listings) Run(ctx context.Context, to console.Console, given *settings.Settings) error {
	config, err := l.config()
	if err = given.Report(err); err != nil {
		return err
	}
	all, err := paidOperations(config.BaseURL)
	if err != nil {
		return err
	}
	of := ledger{DatabaseURL: l.DatabaseURL}
	return of.with(ctx, func(database *store.Store) error { return l.tell(ctx, to, database, config, all) })
}

// tell prints the listings. The error counts those with faults.
func (l *listings) tell(ctx context.Context, to console.Console, database *store.Store, config server.Config, all []*listing) error {
	if _, err := fetchContract(ctx, config.BaseURL); err != nil {
		return fmt.Errorf("%s cannot be reached: %w", config.BaseURL, err)
	}
	for _, one := range all {
		one.Faults = faults(ctx, config, one)
	}
	err := addAges(ctx, database, all)
	if err == nil && l.Pay.Value != "" {
		err = errors.Join(l.pay(ctx, database, config, all), addAges(ctx, database, all))
	}
	if err != nil {
		return err
	}
	catalogue, err := l.look(ctx, config, all)
	if err != nil {
		return err
	}
	faulty := 0
	for _, one := range all {
		if one.judge(); one.State == listingFaulty {
			faulty++
		}
	}
	if l.JSON {
		err = console.EncodeJSON(to.Out, map[string]any{"catalogue": catalogue, "operations": all})
	} else {
		err = printListings(to.Out, all, catalogue)
	}
	if err == nil && faulty > 0 {
		err = fmt.Errorf("catalogues cannot list %d of %d operations", faulty, len(all))
	}
	return err
}

// paidOperations returns the operations that cost something, sorted by path.
func paidOperations(base string) (all []*listing, err error) {
	document, err := parley.Document()
	if err != nil {
		return nil, err
	}
	for _, path := range slices.Sorted(maps.Keys(document.Paths.Map())) {
		for method, described := range document.Paths.Find(path).Operations() {
			if price, err := parley.Price(described); err != nil {
				return nil, err
			} else if price > 0 {
				all = append(all, &listing{Operation: described.OperationID, Resource: base + path, Faults: []string{}, method: method, path: path,
					price: price})
			}
		}
	}
	return all, nil
}

// addAges adds when the operations were settled last.
func addAges(ctx context.Context, database *store.Store, all []*listing) error {
	var names []string
	for _, one := range all {
		names = append(names, one.Operation)
	}
	ages, err := database.LastSettled(ctx, names)
	for _, one := range all {
		if age, ok := ages[one.Operation]; ok {
			one.Age = new(age.Seconds())
		}
	}
	return err
}

// look adds what the facilitator's catalogue lists, and returns a sentence about it.
func (l *listings) look(ctx context.Context, config server.Config, all []*listing) (catalogue string, err error) {
	facilitator, err := l.Facilitator.Config(slog.New(slog.DiscardHandler))
	if err != nil {
		return "", err
	}
	found, err := facilitator.Listings(ctx, config.PayTo, config.BaseURL+"/")
	if errors.Is(err, x402.ErrNoCatalogue) {
		return err.Error(), nil
	}
	if err != nil {
		return "", err
	}
	listed := 0
	for _, one := range all {
		i := slices.IndexFunc(found, func(entry x402.Listing) bool { return entry.Resource == one.Resource })
		if one.Listed = new(i >= 0); i >= 0 {
			one.ListedAt = &found[i].LastUpdated
			listed++
		}
	}
	return fmt.Sprintf("%s lists %d of %d operations", config.FacilitatorURL, listed, len(all)), nil
}

// lapses reports whether catalogues have dropped the operation, or soon will.
func (l *listing) lapses() bool { return l.Age == nil || l.age() > lapsesAfter }

// age is how long ago the operation was settled, if it ever was.
func (l *listing) age() time.Duration { return time.Duration(*l.Age * float64(time.Second)) }

// judge sets the state.
func (l *listing) judge() {
	switch {
	case len(l.Faults) > 0:
		l.State = listingFaulty
	case l.Age == nil:
		l.State = listingNever
	case l.age() > listedFor:
		l.State = listingLapsed
	case l.age() > lapsesAfter:
		l.State = listingLapsing
	case l.Listed != nil && !*l.Listed:
		l.State = listingMissing
	default:
		l.State = listingGood
	}
}

// remedies say what to do about the states that are not good.
var remedies = []struct{ state, remedy string }{
	{listingFaulty, "correct the server, or the proxy in front of it"},
	{listingNever, "catalogues list an operation when it is first paid with scheme exact"},
	{listingLapsed, "catalogues have dropped it until it is paid with scheme exact again; see --pay"},
	{listingLapsing, "catalogues drop it 30 days after the last payment with scheme exact; see --pay"},
	{listingMissing, "catalogues can take hours; lines with extension in the server's log show why they reject an entry"},
}

func printListings(to io.Writer, all []*listing, catalogue string) error {
	out := console.Table(to)
	fmt.Fprintln(out, "OPERATION\tSETTLED\tLISTED\tSTATE")
	states := map[string]bool{}
	for _, one := range all {
		states[one.State] = true
		settled, listed := "never", "unknown"
		if one.Age != nil {
			settled = fmt.Sprintf("%.1f days ago", one.age().Hours()/24)
		}
		if one.Listed != nil {
			listed = "no"
		}
		if one.ListedAt != nil {
			listed = timestamp(*one.ListedAt)
		}
		state := one.State
		if one.Paid != "" {
			state += "; " + one.Paid
		}
		state = console.Printable(strings.Join(append([]string{state}, one.Faults...), ": "))
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\n", one.Operation, settled, listed, state)
	}
	fmt.Fprintf(out, "\n%s\n", console.Printable(catalogue))
	for _, one := range remedies {
		if states[one.state] {
			fmt.Fprintf(out, "%s → %s\n", one.state, one.remedy)
		}
	}
	return out.Flush()
}
