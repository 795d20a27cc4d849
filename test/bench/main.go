//go:build linux

// Bench measures Parley, and compares two builds of it. `make bench` runs it; test/bench/README.md explains it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"

	"github.com/parley-chat/parley/store/storetest"
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

// plan is what is measured, and for how long.
type plan struct {
	program string
	before  string // another build of it
	free    string // a build without prices
	picture string // the file for the picture of the peers
	scale   float64
	seconds int // of one measurement
	rounds  int
	clients []int
	part    regexp.Regexp
	only    regexp.Regexp
}

func run(ctx context.Context, arguments []string) error {
	switch {
	case len(arguments) == 2 && arguments[0] == asFacilitator:
		return serveFacilitator(ctx, arguments[1])
	case len(arguments) == 3 && arguments[0] == asPeer:
		return servePeer(ctx, arguments[1], arguments[2])
	}
	p := plan{clients: []int{1, 16, 64}}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.StringVar(&p.program, "parley", "bin/parley", "the program to measure")
	flags.StringVar(&p.before, "before", "", "another build of the program, whose schema may differ: compare the two at 16 and 64 "+
		"clients, only sends unless -only is set")
	flags.StringVar(&p.free, "free", "", "a build whose contract has no prices (make bench builds one): the part peers compares paid calls "+
		"with its calls")
	flags.StringVar(&p.picture, "picture", "", "an SVG file: the part peers draws its result")
	flags.Float64Var(&p.scale, "scale", 1, "amount of data: 1 is two million messages")
	flags.IntVar(&p.seconds, "seconds", 2, "duration of one measurement")
	flags.IntVar(&p.rounds, "rounds", 2, "rounds of alternating measurements; peers has twice as many and one, -before and growth one more")
	flags.TextVar(&p.part, "part", regexp.MustCompile(""),
		"the parts that match this regular expression: operations, peers, growth, servers, tracing, retention, waiting")
	flags.TextVar(&p.only, "only", regexp.MustCompile(""),
		"the operations whose names match this regular expression; only the part operations unless -part is set")
	quick := flags.Bool("quick", false, "short for -part operations -scale 0.1 -rounds 1, at 16 clients: two minutes")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	if *quick {
		p.scale, p.rounds, p.clients = 0.1, 1, []int{16}
	}
	if *quick || (p.only.String() != "" && p.part.String() == "") {
		p.part = *regexp.MustCompile("operations")
	}
	if p.before != "" {
		p.scale, p.part = 0.1, *regexp.MustCompile("")
		if p.only.String() == "" {
			p.only = *regexp.MustCompile("^send")
		}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(max(1, p.scale)*float64(60*time.Minute))) // twice what it should take
	defer cancel()
	b := &bench{plan: p}
	err := errors.Join(b.measure(ctx), b.close())
	b.write(os.Stdout) // after an error what was measured before it
	return err
}

// size is the amount of data at a scale.
func size(scale float64) storetest.Seeding {
	times := func(full, least int64) int64 { return max(int64(scale*float64(full)), least) }
	return storetest.Seeding{Agents: times(100_000, 5_000), Conversations: times(20_000, 2_000), Messages: times(2_000_000, 100_000),
		Subscribers: times(100_000, 5_000)}
}

var began = time.Now()

// note prints progress.
func note(format string, arguments ...any) {
	fmt.Fprintf(os.Stderr, "%5.0f s  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, arguments...))
}
