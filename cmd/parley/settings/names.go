package settings

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// otherVariables are read by parts of the program that have no flag for them, by the programs of the skill, and by tests.
var otherVariables = []string{
	"PARLEY_WALLET_KEY", "PARLEY_WALLET_KEY_FILE",
	"PARLEY_FROM", "PARLEY_MESSAGES", "PARLEY_MESSAGE_IDS", "PARLEY_URL", "PARLEY_FACILITATOR", "PARLEY_PAY_TO",
	"PARLEY_CLOCK_SHIFT", "PARLEY_CRASH", "PARLEY_POSTGRES_VERSION"}

// serviceVariable are the variables that Kubernetes sets in each container for a service with the name parley or parley-….
var serviceVariable = regexp.MustCompile(
	`^PARLEY_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// UnknownVariables returns a sentence for each variable PARLEY_… of an environment that no part of the program reads. It does not
// show the value, which may be a secret.
func (s *Settings) UnknownVariables(environment []string) (wrong Wrong) {
	known := slices.Clone(otherVariables)
	_ = kong.Visit(s.parser.Model, func(visited kong.Visitable, next kong.Next) error { // returns no error, because the function does not
		if flag, ok := visited.(*kong.Flag); ok {
			known = append(known, flag.Envs...)
		}
		return next(nil)
	})
	for _, entry := range environment {
		name, _, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, "PARLEY_") || strings.HasPrefix(name, "PARLEY_TEST_") || slices.Contains(known, name) ||
			serviceVariable.MatchString(name) {
			continue
		}
		wrong = append(wrong, fmt.Sprintf("%s in the environment is not a setting; %s", name, suggestion(name, known)))
	}
	slices.Sort(wrong)
	return wrong
}

// suggestion says what was probably meant by an unknown name.
func suggestion(name string, known []string) string {
	nearest, least := "", max(3, len(strings.TrimPrefix(name, "PARLEY_"))/3)+1
	for _, one := range known {
		if distance := editDistance(name, one); distance < least {
			nearest, least = one, distance
		}
	}
	if nearest == "" {
		return "remove it: parley serve --help lists the settings"
	}
	return "did you mean " + nearest + "?"
}

// editDistance returns how many characters must be inserted, deleted or replaced to make b from a (Levenshtein).
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
