// Package promises reads the numbered promises of the documents. Only tests use it.
//
// A promise is one sentence or table row, and ends with its number: "It never fails.[S1]". test/testdata/checklist.txt names what carries
// it. A check cannot know every promise. It demands a number of:
//
//   - each sentence or row that has one of claimWords or a figure with a unit
//   - each list item and row of a section that begins with <!-- promises -->
//
// Exempt are advice, causes and remedies: a section that begins with <!-- not promised -->, and a sentence that ends with it. A number in
// the head of a table is for all its rows.
package promises

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Letters are the documents that have promises, each with the letter of its numbers.
var Letters = map[string]string{"docs/security.md": "S", "docs/payments.md": "P", "docs/run.md": "O", "docs/disaster.md": "D"}

// Number matches the number of a promise.
var Number = regexp.MustCompile(`\[([SPOD][0-9]+)\]`)

const (
	promised = "<!-- promises -->"
	exempt   = "<!-- not promised -->"
)

var (
	claimWords = regexp.MustCompile(`(?i)\b(never|always|at most|at least|no more than|no longer than|cannot|within|exactly|nobody|nothing` +
		`|everybody|none|neither|forever|(?:[0-9][0-9,.]*|two|three|four|five|six|ten|twenty) (?:ms|seconds?|minutes?|hours?|days?|[KM]iB` +
		`|[kKMG]B|times|bits|bytes|characters|attempts|connections|messages|USD))\b`)
	sentenceEnd = regexp.MustCompile(`[.?!][)*]*(?:\[[A-Z][0-9]+\])*(?: ` + exempt + `)?(?: |$)`)
	listItem    = regexp.MustCompile(`^ *(?:-|[0-9]+\.) `)
)

// block is a paragraph, a list item or a table row.
type block struct {
	text       string
	row        bool
	mustHave   bool // a number: a list item or row in a section of promises
	underClaim bool // a row of a table whose head has the number
}

// reader collects the blocks of a document that are not exempt.
type reader struct {
	blocks                    []block
	marks                     []string // of the headings above, by level
	code, open, inTable, head bool     // open: the next line continues the last block; head: the head of the table has a number
}

func readBlocks(document string) []block {
	var r reader
	for line := range strings.Lines(document) {
		r.line(strings.TrimRight(line, "\n"))
	}
	return r.blocks
}

func (r *reader) line(line string) {
	text := strings.TrimSpace(line)
	row := strings.HasPrefix(text, "|")
	first := row && !r.inTable
	r.inTable = row
	switch {
	case strings.HasPrefix(text, "```"):
		r.code, r.open = !r.code, false
	case r.code:
	case strings.HasPrefix(line, "#"):
		r.heading(strings.IndexFunc(line, func(c rune) bool { return c != '#' }))
	case text == promised || text == exempt:
		r.marks[len(r.marks)-1] = text
	case text == "" || strings.HasPrefix(text, "<"):
		r.open = false
	case r.mark() == exempt:
	case first:
		r.head, r.open = Number.MatchString(text), false
		r.blocks = append(r.blocks, block{text: text, row: true})
	case strings.HasPrefix(text, "|--"):
	case r.open && !row && !listItem.MatchString(line):
		r.blocks[len(r.blocks)-1].text += " " + text
	default:
		r.blocks = append(r.blocks, block{
			text: listItem.ReplaceAllString(text, ""), row: row, underClaim: row && r.head,
			mustHave: r.mark() == promised && (row || listItem.MatchString(line)),
		})
		r.open = !row
	}
}

func (r *reader) heading(level int) {
	for len(r.marks) < level {
		r.marks = append(r.marks, "")
	}
	r.marks, r.open = r.marks[:level], false
	r.marks[level-1] = ""
}

// mark is that of the innermost section that has one.
func (r *reader) mark() string {
	for _, mark := range slices.Backward(r.marks) {
		if mark != "" {
			return mark
		}
	}
	return ""
}

// unnumbered returns the promises of a block that have no number.
func (b block) unnumbered() (found []string) {
	switch {
	case b.underClaim:
		return nil
	case b.mustHave && !Number.MatchString(b.text) && !strings.HasSuffix(b.text, exempt):
		return []string{b.text}
	}
	for _, sentence := range b.sentences() {
		if claimWords.MatchString(sentence) && !Number.MatchString(sentence) && !strings.HasSuffix(sentence, exempt) {
			found = append(found, sentence)
		}
	}
	return found
}

func (b block) sentences() (found []string) {
	if b.row {
		return []string{b.text}
	}
	rest := b.text
	for end := sentenceEnd.FindStringIndex(rest); end != nil; end = sentenceEnd.FindStringIndex(rest) {
		found, rest = append(found, strings.TrimSpace(rest[:end[1]])), rest[end[1]:]
	}
	return append(found, rest)
}

// Faults compares the documents, by path, with the numbers of the list, and whether they are in use.
func Faults(documents map[string]string, listed map[string]bool) (faults []string) {
	used := map[string]bool{}
	for _, path := range slices.Sorted(maps.Keys(documents)) {
		for _, block := range readBlocks(documents[path]) {
			for _, match := range Number.FindAllStringSubmatch(block.text, -1) {
				number := match[1]
				inUse, known := listed[number]
				switch {
				case !strings.HasPrefix(number, Letters[path]):
					faults = append(faults, fmt.Sprintf("%s: the numbers of %s begin with %s", number, path, Letters[path]))
				case used[number]:
					faults = append(faults, number+": the documents have it twice")
				case !known:
					faults = append(faults, number+": it is not in test/testdata/checklist.txt")
				case !inUse:
					faults = append(faults, number+": it was removed; take a new number")
				}
				used[number] = true
			}
			for _, text := range block.unnumbered() {
				faults = append(faults, fmt.Sprintf("%s: a promise needs a number and a line in test/testdata/checklist.txt: %s", path, text))
			}
		}
	}
	for _, number := range slices.Sorted(maps.Keys(listed)) {
		if listed[number] && !used[number] {
			faults = append(faults, number+": no document has it")
		}
	}
	return faults
}

// Says fails the test unless the promise has the values of the program: a time.Duration or an int in any spelling of the documents ("90
// seconds", "a minute", "20,000", "five"), or a text.
func Says(t *testing.T, number string, values ...any) {
	t.Helper()
	said := find(t, number)
	for _, value := range values {
		pattern := regexp.MustCompile(`(^|[^\w.,])(` + strings.Join(spellings(value), "|") + `)($|\W)`)
		if !pattern.MatchString(said) {
			t.Errorf("%s says %q, and the program has %v", number, said, value)
		}
	}
}

func spellings(value any) (forms []string) {
	words := map[int]string{1: "one|an?", 2: "two", 3: "three", 4: "four", 5: "five", 10: "ten", 20: "twenty"}
	count := func(n int, unit string) {
		for _, form := range []string{strconv.Itoa(n), fmt.Sprintf("%d,%03d", n/1000, n%1000), words[n]} {
			if form != "" {
				forms = append(forms, "(?:"+form+")"+unit)
			}
		}
	}
	switch value := value.(type) {
	case time.Duration:
		for unit, name := range map[time.Duration]string{time.Hour: " hours?", time.Minute: " minutes?", time.Second: " seconds?"} {
			if value%unit == 0 {
				count(int(value/unit), name)
			}
		}
		count(int(value.Milliseconds()), " ms")
		forms = append(forms, regexp.QuoteMeta(strconv.FormatFloat(value.Seconds(), 'f', -1, 64))+" seconds")
		if value == time.Hour {
			forms = append(forms, "every hour")
		}
	case int:
		count(value, "")
	case string:
		forms = append(forms, regexp.QuoteMeta(value))
	}
	return forms
}

// find returns the words of a promise: from the number before it, or from the start of its block.
func find(t *testing.T, number string) string {
	t.Helper()
	root := "."
	for _, err := os.Stat(filepath.Join(root, "go.mod")); err != nil; _, err = os.Stat(filepath.Join(root, "go.mod")) {
		root = filepath.Join(root, "..")
		if len(root) > len("../../../../../..") {
			t.Fatal("there is no go.mod above the test")
		}
	}
	for path := range Letters {
		document, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range readBlocks(string(document)) {
			before, _, ok := strings.Cut(block.text, "["+number+"]")
			if !ok {
				continue
			}
			if ends := Number.FindAllStringIndex(before, -1); ends != nil {
				before = before[ends[len(ends)-1][1]:]
			}
			return strings.TrimSpace(before)
		}
	}
	t.Fatalf("no document has the promise %s", number)
	return ""
}
