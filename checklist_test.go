package parley

import (
	_ "embed"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/parley-chat/parley/internal/promises"
)

//go:embed test/testdata/checklist.txt
var checklist string

var (
	testFunction = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	buildTag     = regexp.MustCompile(`(?m)^//go:build .*\b(acme|attack|contract|failover|plans|restore)\b`)
	stageLine    = regexp.MustCompile(`(?m)^([\w-]+) +; [\w-]+ +; [0-9] ; (?:push|night|both)`)
	alertLine    = regexp.MustCompile(`(?m)^ *- alert: (\w+)$`)
	makeTest     = regexp.MustCompile(`^make ([\w-]+)(?: (Test\w+))?$`)
)

// carriers are what can carry a rule or a promise: tests of `make test-all`, tests with a build tag, stages of CI, and alerts.
type carriers struct {
	tests, tagged, stages, alerts map[string]bool
}

// fault returns what is wrong with the name of a carrier.
func (c carriers) fault(name string) string {
	match := makeTest.FindStringSubmatch(name)
	switch {
	case match != nil && !c.stages[match[1]]:
		return "CI has no stage " + match[1]
	case match != nil && match[2] != "" && !c.tagged[match[2]]:
		return "no test with a build tag is called " + match[2]
	case match == nil && c.tagged[name] && !c.tests[name]:
		return name + " needs the stage that runs it: make STAGE " + name
	case match == nil && !c.tests[name] && !c.alerts[name]:
		return "there is no test or alert " + name
	}
	return ""
}

// TestChecklist checks that each rule and each promise of the documents has carriers that exist. .ci/run checks that they ran and
// passed.
func TestChecklist(t *testing.T) {
	t.Parallel()
	for _, fault := range checklistFaults(readPromises(t), checklist, readCarriers(t)) {
		t.Error(fault)
	}
}

// TestChecklistFindsFaults plants faults into the documents and the list.
func TestChecklistFindsFaults(t *testing.T) {
	t.Parallel()
	const list = "a rule | TestOne\nS1 | make attack TestTagged, TestOne\nS2 | removed\nS3 | ParleyDown"
	const document = "# Security\n\nIt never fails.[S1]\n\n## Promises\n\n<!-- promises -->\n\n- It starts.[S3]\n\n" +
		"## Advice\n\n<!-- not promised -->\n\nNever stop it.\n"
	const more = document + "\n## More\n\n"
	swap := func(text, old, with string) string { return strings.Replace(text, old, with, 1) }
	before := func(text string) string { return swap(document, "- It starts", text+"- It starts") }
	known := carriers{
		tests: map[string]bool{"TestOne": true}, tagged: map[string]bool{"TestTagged": true},
		stages: map[string]bool{"attack": true}, alerts: map[string]bool{"ParleyDown": true},
	}
	for _, test := range []struct{ name, document, list, want string }{
		{"nothing", document, list, ""},
		{"a promise without a number", more + "It responds\nwithin a second. Good.\n", list, "It responds within a second."},
		{"a figure without a number", more + "It ends after 3 seconds.\n", list, "It ends after 3 seconds."},
		{"a second promise in a sentence's block", swap(document, "It never", "It always works. It never"), list, "It always works."},
		{"an item without a number", before("- It stops.\n"), list, "It stops."},
		{"a row without a number", before("| a | b |\n|---|---|\n| c | d |\n\n"), list, "| c | d |"},
		{"no carrier", document, swap(list, "S3 | ParleyDown", "S3 |"), "S3: it has no carrier"},
		{"no line", swap(document, "never fails.[S1]", "never fails.[S4]"), list, "S4: it is not in"},
		{"a test that does not exist", document, swap(list, "TestOne\nS2", "TestTwo\nS2"), "S1: there is no test or alert TestTwo"},
		{"a tagged test without its stage", document, swap(list, "make attack ", ""), "S1: TestTagged needs the stage"},
		{"no such stage", document, swap(list, "make attack", "make tea"), "S1: CI has no stage tea"},
		{"a number in the list only", swap(document, "- It starts.[S3]\n", ""), list, "S3: no document has it"},
		{"twice in the documents", more + "It never ends.[S3]\n", list, "S3: the documents have it twice"},
		{"twice in the list", document, list + "\nS3 | TestOne", "S3: it is in the list twice"},
		{"a removed number that comes back", swap(document, "[S3]", "[S2]"), list, "S2: it was removed"},
		{"a number that was deleted", document, swap(list, "S2 | removed\n", ""), "S2: it is missing"},
		{"the letter of another document", swap(document, "[S3]", "[P1]"), list + "\nP1 | TestOne", "P1: the numbers of docs/security.md"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			faults := checklistFaults(map[string]string{"docs/security.md": test.document}, test.list, known)
			if test.want == "" && len(faults) > 0 || test.want != "" && !strings.Contains(strings.Join(faults, "\n"), test.want) {
				t.Errorf("the faults are %q, want one with %q", faults, test.want)
			}
		})
	}
}

// TestPricesOfAttacks: docs/security.md has the prices of the contract.
func TestPricesOfAttacks(t *testing.T) {
	t.Parallel()
	prices := map[string]uint64{}
	for _, item := range contract(t).Paths.Map() {
		for _, operation := range item.Operations() {
			price, err := Price(operation)
			if err != nil {
				t.Fatal(err)
			}
			prices[operation.OperationID] = price
		}
	}
	usd := func(operations ...string) string {
		var sum uint64
		for _, operation := range operations {
			sum += prices[operation]
		}
		return strconv.FormatFloat(float64(sum)/1e6, 'f', -1, 64) + " USD"
	}
	promises.Says(t, "S37", usd("sendPrivateMessage")+" each", usd("editGroupChat")+" for each edit")
	promises.Says(t, "S39", usd("requestAccount")+" for ten minutes", "an account "+usd("requestAccount", "createAccount"))
}

func readPromises(t *testing.T) map[string]string {
	t.Helper()
	documents := map[string]string{}
	for path := range promises.Letters {
		documents[path] = readFile(t, path)
	}
	return documents
}

func readCarriers(t *testing.T) carriers {
	t.Helper()
	found := carriers{
		tests: map[string]bool{}, tagged: map[string]bool{},
		stages: names(stageLine, readFile(t, ".ci/run")), alerts: names(alertLine, readFile(t, "deploy/monitoring/rules.yaml")),
	}
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "bin/") {
			return err
		}
		source := readFile(t, path)
		kind := found.tests
		if buildTag.MatchString(source) {
			kind = found.tagged
		}
		for name := range names(testFunction, source) {
			kind[name] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func names(pattern *regexp.Regexp, text string) map[string]bool {
	found := map[string]bool{}
	for _, match := range pattern.FindAllStringSubmatch(text, -1) {
		found[match[1]] = true
	}
	return found
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// checklistFaults compares the list with the documents and the carriers.
func checklistFaults(documents map[string]string, list string, known carriers) []string {
	var faults []string
	listed := map[string]bool{} // whether the number is in use
	for line := range strings.Lines(list) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		rule, what, _ := strings.Cut(line, "|")
		rule, what = strings.TrimSpace(rule), strings.TrimSpace(what)
		if promises.Number.MatchString("[" + rule + "]") {
			if _, twice := listed[rule]; twice {
				faults = append(faults, rule+": it is in the list twice")
			}
			listed[rule] = what != "removed"
			if what == "removed" {
				continue
			}
		}
		if what == "" {
			faults = append(faults, rule+": it has no carrier")
			continue
		}
		for name := range strings.SplitSeq(what, ",") {
			if fault := known.fault(strings.TrimSpace(name)); fault != "" {
				faults = append(faults, rule+": "+fault)
			}
		}
	}
	faults = append(faults, missingNumbers(listed)...)
	return append(faults, promises.Faults(documents, listed)...)
}

// missingNumbers returns the gaps below the highest number of each letter. The line of a removed promise stays, so that nobody reuses its
// number.
func missingNumbers(listed map[string]bool) []string {
	var faults []string
	for _, letter := range promises.Letters {
		most := 0
		for number := range listed {
			if n, err := strconv.Atoi(strings.TrimPrefix(number, letter)); err == nil {
				most = max(most, n)
			}
		}
		for n := range most {
			number := letter + strconv.Itoa(n+1)
			if _, ok := listed[number]; !ok {
				faults = append(faults, number+": it is missing; the line of a removed promise is: "+number+" | removed")
			}
		}
	}
	slices.Sort(faults)
	return faults
}
