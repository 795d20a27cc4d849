//go:build linux

// Bench measures Parley against the database that it stands on. `make bench` runs it; see its README.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"

	"github.com/parley-chat/parley/store"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// plan is how much is measured.
type plan struct {
	program string
	before  string // another build of it
	scale   float64
	seconds int // of one measurement
	rounds  int
	clients []int
	part    *regexp.Regexp
	only    *regexp.Regexp
}

func run(ctx context.Context, arguments []string) error {
	p := plan{seconds: 2, rounds: 2, clients: []int{1, 16, 64}}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.StringVar(&p.program, "parley", "bin/parley", "the program to measure")
	flags.StringVar(&p.before, "before", "", "another build of the program, whose schema may differ: compares the two at 16 and 64 clients, sends alone unless -only says otherwise")
	flags.Float64Var(&p.scale, "scale", 1, "how much data: 1 is two million messages, and is what the report is about")
	flags.IntVar(&p.seconds, "seconds", 2, "how long one measurement lasts")
	quick := flags.Bool("quick", false, "the part operations alone, at 16 clients, one round, with a tenth of the data: two minutes")
	part := flags.String("part", "", "the parts that match this regular expression: operations, floor, payments, ledger, search, processes, disk, growth, index")
	only := flags.String("only", "", "the operations whose names match this regular expression; alone, unless -part says otherwise")
	huge := flags.Bool("huge", false, "the growth alone, from two to twenty million messages: forty minutes")
	output := flags.String("report", "", "the folder whose README.md and result.svg get the report")
	kind := flags.String("stand-in", "", "serve one of the benchmark's own servers (for itself)")
	listen := flags.String("listen", "", "where a stand-in listens")
	databaseURL := flags.String("database", "", "a stand-in's database")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	if *kind != "" {
		return standIn(ctx, *kind, *listen, *databaseURL)
	}
	if *only != "" && *part == "" {
		*part = "operations"
	}
	if *quick {
		*part = "operations"
		p.scale, p.rounds, p.clients = 0.1, 1, []int{16}
	}
	if p.before != "" {
		p.scale, *only = 0.1, cmp.Or(*only, "^send")
	}
	var err error
	if p.part, err = regexp.Compile(*part); err != nil {
		return err
	}
	if p.only, err = regexp.Compile(*only); err != nil {
		return err
	}
	patience := 40 * time.Minute // twice of what it should take
	if *huge {
		patience = 4 * time.Hour
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	m, err := newMachine(ctx, p.program, p.before)
	if err != nil {
		return err
	}
	r := &report{began: began}
	measure := p.everything
	switch {
	case *huge:
		measure = p.grow
	case p.before != "":
		measure = p.compareBuilds
	}
	if err := errors.Join(measure(ctx, m, r), m.close()); err != nil {
		return err
	}
	return r.write(os.Stdout, *output)
}

// size is how much is in a database of that scale.
func size(scale float64) store.Seeding {
	times := func(full, least int64) int64 { return max(int64(scale*float64(full)), least) }
	return store.Seeding{Agents: times(100_000, 5_000), Conversations: times(20_000, 2_000), Messages: times(2_000_000, 100_000), Subscribers: times(100_000, 5_000)}
}

// archived is how many messages the searched conversation of a database of that scale has.
func archived(scale float64) int64 { return int64(min(max(scale, 0.1), 1) * 100_000) }

var began = time.Now()

// note tells whoever waits what goes on.
func note(format string, arguments ...any) {
	fmt.Fprintf(os.Stderr, "%5.0f s  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, arguments...))
}
