package store

import (
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode"
)

// pattern is the query of a message search. The matcher decides what matches; the tree tells which literals every
// match must contain, so that the trigram index can leave out most messages first. The database never sees the
// expression itself.
type pattern struct {
	matcher *regexp.Regexp
	tree    *syntax.Regexp
	size    int // steps of the compiled program: the matcher needs at most so many for each byte
}

// mostSteps bounds the compiled program. Go's parser has its own bounds, but a few characters like (\w?){999} repeated
// still make a program of tens of thousands of steps.
const mostSteps = 1_000

// parsePattern reads a query as a regular expression, ignoring case, and where it is none as a literal. ErrPatternTooLarge.
func parsePattern(query string) (*pattern, error) {
	tree, err := syntax.Parse("(?i)"+query, syntax.Perl)
	if err != nil {
		query = regexp.QuoteMeta(query)
		if tree, err = syntax.Parse("(?i)"+query, syntax.Perl); err != nil {
			return nil, err
		}
	}
	program, err := syntax.Compile(tree.Simplify())
	if err != nil {
		return nil, err
	}
	if len(program.Inst) > mostSteps {
		return nil, ErrPatternTooLarge
	}
	matcher, err := regexp.Compile("(?i)" + query)
	if err != nil {
		return nil, err
	}
	return &pattern{matcher, tree, len(program.Inst)}, nil
}

// folding is what the database makes of a character: it folds case by its locale, the matcher by Unicode.
type folding struct {
	text string
	word bool // it is part of trigrams
}

// characters returns all characters in the pattern's literals, what the matcher takes for the same, and accented alpha.
func (p *pattern) characters() string {
	var all []rune
	var walk func(*syntax.Regexp)
	walk = func(node *syntax.Regexp) {
		if node.Op == syntax.OpLiteral {
			for _, r := range node.Rune {
				all = append(all, orbit(r)...)
			}
		}
		for _, sub := range node.Sub {
			walk(sub)
		}
	}
	walk(p.tree)
	if len(all) == 0 {
		return ""
	}
	all = append(all, 'ά')
	slices.Sort(all)
	return strings.TrimPrefix(string(slices.Compact(all)), "\x00") // which the database cannot take, nor has
}

// orbit returns the characters that differ from r only in case, and r.
func orbit(r rune) []rune {
	all := []rune{r}
	for other := unicode.SimpleFold(r); other != r; other = unicode.SimpleFold(other) {
		all = append(all, other)
	}
	return all
}

// safe tells whether a message in which the matcher finds r has r's folding in its folded text. The database must fold
// all that the matcher takes for r alike, and whatever stands beside it: so nothing is safe that ICU folds by its
// neighbours in some locale. Those are combining marks, sigma, dotless i, and Greek where upper case has no accents.
func safe(r rune, foldings map[rune]folding) bool {
	if unicode.Is(unicode.M, r) || unicode.Is(unicode.Greek, r) && foldings['ά'].text != "ά" {
		return false
	}
	for _, other := range orbit(r) {
		if other == 'Σ' || other == 'ı' || foldings[other].text != foldings[r].text {
			return false
		}
	}
	return foldings[r].text != ""
}

// mostAlternatives bounds how often the index is asked.
const mostAlternatives = 16

// likes returns LIKE patterns on folded text, of which every matching message matches one; nil if they would not
// narrow the search, because one of them has no trigram.
func (p *pattern) likes(foldings map[rune]folding) []string {
	alternatives := required(p.tree, foldings)
	for i, alternative := range alternatives {
		run, longest, escaped := 0, 0, false
		for _, r := range alternative {
			if r == '\\' && !escaped {
				escaped = true
				continue
			}
			run++
			if escaped || !foldings[r].word {
				run = 0
			}
			escaped = false
			longest = max(longest, run)
		}
		if longest < trigram {
			return nil
		}
		alternatives[i] = "%" + alternative + "%"
	}
	return alternatives
}

// anything is the LIKE pattern of what is not looked at.
var anything = []string{"%"}

// required translates an expression into LIKE patterns, one of which whatever matches the expression must match.
func required(node *syntax.Regexp, foldings map[rune]folding) []string {
	switch node.Op {
	case syntax.OpLiteral:
		var like strings.Builder
		for _, r := range node.Rune {
			if safe(r, foldings) {
				like.WriteString(escapeLike(foldings[r].text))
			} else {
				like.WriteByte('%')
			}
		}
		return []string{like.String()}
	case syntax.OpEmptyMatch, syntax.OpBeginLine, syntax.OpEndLine, syntax.OpBeginText, syntax.OpEndText, syntax.OpWordBoundary, syntax.OpNoWordBoundary:
		return []string{""}
	case syntax.OpCapture:
		return required(node.Sub[0], foldings)
	case syntax.OpPlus:
		return followed(required(node.Sub[0], foldings), anything)
	case syntax.OpRepeat:
		if node.Min > 0 {
			return followed(required(node.Sub[0], foldings), anything)
		}
	case syntax.OpQuest:
		return either(required(node.Sub[0], foldings), []string{""})
	case syntax.OpConcat:
		all := []string{""}
		for _, sub := range node.Sub {
			all = followed(all, required(sub, foldings))
		}
		return all
	case syntax.OpAlternate:
		var all []string
		for _, sub := range node.Sub {
			all = either(all, required(sub, foldings))
		}
		return all
	}
	return anything
}

func either(some, others []string) []string {
	if len(some)+len(others) > mostAlternatives {
		return anything
	}
	return append(slices.Clone(some), others...)
}

// followed combines each of some with each of others. Where that becomes too many, nothing is required of the others.
func followed(some, others []string) []string {
	if len(some)*len(others) > mostAlternatives {
		others = anything
	}
	all := make([]string, 0, len(some)*len(others))
	for _, a := range some {
		for _, b := range others {
			all = append(all, a+b)
		}
	}
	return all
}
