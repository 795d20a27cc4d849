package operator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/parley-chat/parley/cmd/parley/console"
	"github.com/parley-chat/parley/cmd/parley/settings"
	"github.com/parley-chat/parley/server"
)

// checkTime limits the check of one thing.
const checkTime = 15 * time.Second

// check tries everything that a server with these settings needs. It changes nothing.
type check struct {
	serverSettings

	JSON bool `name:"json" help:"Write one JSON object instead of a table."`
}

// The states of a finding.
const (
	good    = "ok"
	warning = "warning"
	failed  = "failed"
)

// finding is the result of one check. Remedy is empty if all is well.
type finding struct {
	State  string `json:"state"`
	What   string `json:"what"`
	Found  string `json:"found"`
	Remedy string `json:"remedy,omitempty"`
}

// findings are in the order of the table.
type findings []finding

func (f *findings) ok(what, found string) { *f = append(*f, finding{good, what, found, ""}) }

func (f *findings) warn(what, found, remedy string) {
	*f = append(*f, finding{warning, what, found, remedy})
}

// fail returns all findings, for a check that ends with this one.
func (f *findings) fail(what, found, remedy string) findings {
	*f = append(*f, finding{failed, what, found, remedy})
	return *f
}

// require adds a finding that is ok, or failed with a remedy.
func (f *findings) require(ok bool, what, found, remedy string) {
	if ok {
		f.ok(what, found)
	} else {
		f.fail(what, found, remedy)
	}
}

func (f findings) count(state string) (n int) {
	for _, one := range f {
		if one.State == state {
			n++
		}
	}
	return n
}

// Run prints the findings. The error counts those that failed.
func (c *check) Run(ctx context.Context, to console.Console, given *settings.Settings) error {
	config, err := c.config()
	found := settingsFindings(given, given.Report(err))
	// Each group needs few settings. So a wrong setting does not keep the others from being checked.
	groups := []func(context.Context) findings{
		c.checkDatabase,
		func(ctx context.Context) findings { return c.checkFacilitator(ctx, config) },
		func(ctx context.Context) findings { return c.checkChain(ctx, config) },
		func(context.Context) findings { return c.checkKeys(config) },
		func(ctx context.Context) findings { return c.checkAddresses(ctx, config) },
	}
	results := make([]findings, len(groups))
	var running sync.WaitGroup
	for i, group := range groups {
		running.Go(func() {
			limited, cancel := context.WithTimeout(ctx, checkTime)
			defer cancel()
			results[i] = group(limited)
		})
	}
	running.Wait()
	found = append(found, slices.Concat(results...)...)
	if c.JSON {
		err = console.EncodeJSON(to.Out, map[string]any{"findings": found, "failed": found.count(failed), "warnings": found.count(warning)})
	} else {
		err = found.print(to.Out)
	}
	if n := found.count(failed); err == nil && n > 0 {
		err = fmt.Errorf("%d of %d checks failed", n, len(found))
	}
	return err
}

func (f findings) print(to io.Writer) error {
	out := console.Table(to)
	for _, one := range f {
		fmt.Fprintf(out, "%s\t%s\t%s\n", one.State, one.What, console.Printable(one.Found))
		if one.Remedy != "" {
			fmt.Fprintf(out, "\t\t→ %s\n", console.Printable(one.Remedy))
		}
	}
	fmt.Fprintf(out, "\n%d ok, %d warnings, %d failed\n", f.count(good), f.count(warning), f.count(failed))
	return out.Flush()
}

// settingsFindings are about the values and the files of settings.
func settingsFindings(given *settings.Settings, err error) (found findings) {
	wrong, ok := errors.AsType[settings.Wrong](err)
	for _, sentence := range wrong {
		is, remedy, _ := strings.Cut(sentence, "; ")
		found.fail("settings", is, remedy)
	}
	if !ok {
		from := "flags and environment"
		if given.FileName != "" {
			from += ", " + given.FileName
		}
		found.ok("settings", "complete: "+from)
	}
	for _, name := range given.SecretPlaces() {
		if readableByAll(name) {
			found.warn("secrets", name+" can be read by every user of this machine", "let only the server read it: chmod o-r "+name)
		}
	}
	return found
}

// checkKeys checks the key that signs claims, and those that seal stored responses. Wrong keys are told as wrong settings.
func (c *check) checkKeys(config server.Config) (found findings) {
	if c.Channels.AuthorizerKey.Value == "" {
		found.ok("authorizer", "none: payment channels are not offered")
	} else if config.Channels.Authorizer != nil {
		found.ok("authorizer", "key of "+addressOf(config.Channels.Authorizer)+", not the payee's")
	}
	if secrets := len(config.Secrets); secrets > 0 {
		found.ok("server secret", fmt.Sprintf("one that API keys are derived from, and %d former ones", secrets-1))
	}
	return found
}
