// Allocs runs the micro-benchmarks and compares how often each allocates with the baseline in test/bench/allocs.txt. Times
// are not compared: they say more about the machine. `make allocs` runs it, `go run ./test/bench/allocs -update` writes a new baseline.
package main

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/benchmark/parse"
)

// benchmarks are those whose allocations do not depend on how long they run, by package.
var benchmarks = map[string]string{
	"./test/service": "Challenge|Validation|Violation|PaidProfile|PaidSend|PaidMessages|VoucherSend|VoucherUnread|Repetition",
	"./x402":         "DecodePaymentPayload|EncodePaymentRequired|EncodeSettleResponse|Match|Check|TransferDigest|Recover",
}

const header = `# Allocations of the micro-benchmarks. make allocs fails where there are more, by over 5 % and over 2;
# go run ./test/bench/allocs -update writes this file.
`

func main() {
	update := flag.Bool("update", false, "write the baseline instead of comparing with it")
	path := flag.String("baseline", filepath.Join("test", "bench", "allocs.txt"), "the baseline")
	flag.Parse()
	if err := run(context.Background(), os.Stdout, *path, *update); err != nil {
		fmt.Fprintln(os.Stderr, "allocs:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, path string, update bool) error {
	seen := map[string]uint64{}
	for in, names := range benchmarks {
		if err := measure(ctx, in, names, seen); err != nil {
			return err
		}
	}
	if update {
		text := []byte(header)
		for _, name := range slices.Sorted(maps.Keys(seen)) {
			text = fmt.Appendf(text, "%s %d\n", name, seen[name])
		}
		return os.WriteFile(path, text, 0o644)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return compare(out, string(text), seen)
}

// measure runs benchmarks three times and keeps the least of each: what comes on top is chance.
func measure(ctx context.Context, in, names string, seen map[string]uint64) error {
	test := exec.CommandContext(ctx, "go", "test", in, "-run", "^$", "-bench", "^Benchmark("+names+")$", "-benchmem", "-benchtime", "200x",
		"-count", "3", "-cpu", "2")
	output, err := test.CombinedOutput()
	if err != nil {
		return fmt.Errorf("go test %s: %w\n%s", in, err, output)
	}
	all, err := parse.ParseSet(bytes.NewReader(output))
	if err != nil {
		return err
	}
	for name := range strings.SplitSeq(names, "|") {
		runs := all["Benchmark"+name+"-2"]
		if len(runs) == 0 {
			return fmt.Errorf("%s has no Benchmark%s", in, name)
		}
		least := slices.MinFunc(runs, func(a, b *parse.Benchmark) int { return cmp.Compare(a.AllocsPerOp, b.AllocsPerOp) })
		seen[in+" "+name] = least.AllocsPerOp
	}
	return nil
}

// compare prints both and fails if anything allocates more than the baseline allows, or is missing from it.
func compare(out io.Writer, baseline string, seen map[string]uint64) error {
	was := map[string]uint64{}
	for text := range strings.Lines(baseline) {
		var in, name string
		var n uint64
		if _, err := fmt.Sscan(text, &in, &name, &n); err == nil { // a comment has no number
			was[in+" "+name] = n
		}
	}
	grown := 0
	for _, name := range slices.Sorted(maps.Keys(seen)) {
		before, known := was[name]
		verdict := ""
		switch now, slack := seen[name], max(2, before/20); {
		case !known:
			verdict = "  not in the baseline: go run ./test/bench/allocs -update"
			grown++
		case now > before+slack:
			verdict = "  GROWN"
			grown++
		case now+slack < before:
			verdict = "  less; go run ./test/bench/allocs -update keeps it so"
		}
		fmt.Fprintf(out, "%-32s %6d  was %6d%s\n", name, seen[name], before, verdict)
	}
	if grown > 0 {
		return fmt.Errorf("%d benchmarks allocate more than test/bench/allocs.txt allows", grown)
	}
	return nil
}
