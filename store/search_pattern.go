package store

import (
	"errors"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// pattern is the query of a message search, under NFC. The matcher decides what matches. The tree gives the literals that every match
// contains, so that the trigram index can exclude most messages first. The database never gets the expression itself.
type pattern struct {
	matcher *regexp.Regexp
	tree    *syntax.Regexp
	size    int // steps of the compiled program; the matcher needs at most this many for each byte
	literal bool
}

// normalizing is how many steps of the matcher it takes at worst to normalize a byte.
const normalizing = 40

// matches reports whether the pattern matches a text under NFC, and the work that this took (bounds). Most texts are under NFC already.
func (p *pattern) matches(text string) (matched bool, work int64) {
	work = int64(len(text)) * int64(p.size)
	if norm.NFC.QuickSpanString(text) < len(text) {
		work += int64(len(text)) * normalizing
		text = norm.NFC.String(text)
	}
	return p.matcher.MatchString(text), work
}

// mostSteps limits the compiled program. Go's parser accepts a few (\w?){999} in a row, which compile to tens of thousands of steps.
const mostSteps = 1_000

// parsePattern parses a query as a regular expression, ignoring case, or as a literal if it is not a valid expression.
// It returns ErrPatternTooLarge or ErrNothingToFind.
func parsePattern(query string) (*pattern, error) {
	query = norm.NFC.String(query)
	tree, err := syntax.Parse("(?i)"+query, syntax.Perl)
	invalid, isInvalid := errors.AsType[*syntax.Error](err)
	switch {
	case isInvalid && slices.Contains(tooLarge, invalid.Code):
		return nil, ErrPatternTooLarge
	case err != nil:
		query = regexp.QuoteMeta(query)
		if tree, err = syntax.Parse("(?i)"+query, syntax.Perl); err != nil {
			return nil, err
		}
	}
	switch {
	case steps(tree) > mostSteps: // compiling it would take tens of megabytes
		return nil, ErrPatternTooLarge
	case !finds(tree):
		return nil, ErrNothingToFind
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
	if matcher.MatchString("") && matcher.MatchString(unlikely) { // a*: every message
		return nil, ErrNothingToFind
	}
	return &pattern{matcher, tree, len(program.Inst), isInvalid}, nil
}

// tooLarge are the errors of the parser for expressions that are valid but too large, such as (a{500}){500}.
var tooLarge = []syntax.ErrorCode{syntax.ErrInvalidRepeatSize, syntax.ErrLarge, syntax.ErrNestingDepth}

// finds reports whether an expression names a character other than white space. Otherwise it matches nearly every message, like "...".
func finds(node *syntax.Regexp) bool {
	switch node.Op {
	case syntax.OpCharClass: // not of all characters
		return !slices.Equal(node.Rune, []rune{0, unicode.MaxRune}) && !onlySpace(node.Rune)
	case syntax.OpLiteral:
		return slices.ContainsFunc(node.Rune, func(r rune) bool { return !unicode.IsSpace(r) })
	}
	return slices.ContainsFunc(node.Sub, finds)
}

// onlySpace reports whether a class has no characters but white space. The class is a list of ranges.
func onlySpace(class []rune) bool {
	for i := 0; i < len(class); i += 2 {
		for r := class[i]; r <= class[i+1]; r++ { // ends soon: few characters in a row are white space
			if !unicode.IsSpace(r) {
				return false
			}
		}
	}
	return true
}

// unlikely is a text that an expression matches only if it matches everything: a character for private use.
const unlikely = "\uE000"

// steps is a lower bound of the steps of the compiled program.
func steps(node *syntax.Regexp) int {
	count := 1
	switch node.Op {
	case syntax.OpLiteral:
		return len(node.Rune)
	case syntax.OpConcat:
		count = 0
	case syntax.OpRepeat:
		return max(node.Min, node.Max) * steps(node.Sub[0])
	}
	for _, sub := range node.Sub {
		count += steps(sub)
	}
	return count
}

// folding is how the database folds a character. The database folds case by its locale, the matcher by Unicode.
type folding struct {
	Of   rune
	Text string
	Word bool // the character can be part of a trigram
}

// characters returns all characters in the pattern's literals, their case variants, and accented alpha for safe; "" if there are no
// literals.
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
	return strings.TrimPrefix(string(slices.Compact(all)), "\x00") // the database does not accept or store NUL
}

// orbit returns r and the characters that differ from r only in case.
func orbit(r rune) []rune {
	all := []rune{r}
	for other := unicode.SimpleFold(r); other != r; other = unicode.SimpleFold(other) {
		all = append(all, other)
	}
	return all
}

// safe reports whether the folded text of every message in which the matcher finds r contains r's folding. For that the database must fold
// all case variants of r to the same text, whatever is next to them. So safe excludes what ICU folds depending on neighbours in some
// locale: combining marks, sigma, dotless i, and Greek if upper case loses its accents.
func safe(r rune, foldings map[rune]folding) bool {
	if unicode.Is(unicode.M, r) || unicode.Is(unicode.Greek, r) && foldings['ά'].Text != "ά" {
		return false
	}
	for _, other := range orbit(r) {
		if other == 'Σ' || other == 'ı' || foldings[other].Text != foldings[r].Text {
			return false
		}
	}
	return foldings[r].Text != ""
}

// mostAlternatives limits how many LIKE patterns the index looks up.
const mostAlternatives = 16

// likes returns LIKE patterns for folded text. Every matching message matches at least one of them. It returns nil if one has no trigram,
// because they then do not narrow the search.
func (p *pattern) likes(foldings map[rune]folding) []string {
	alternatives := required(p.tree, foldings)
	for i, alternative := range alternatives {
		if longestRun(alternative, func(r rune) bool { return foldings[r].Word }) < trigram {
			return nil
		}
		alternatives[i] = "%" + strings.ReplaceAll(escapeLike(alternative), gap, "%") + "%"
	}
	return alternatives
}

// gap stands for any text between the literals of an alternative. The database stores no NUL.
const gap = "\x00"

// anything stands for parts of an expression that are not analysed.
var anything = []string{gap}

// required translates an expression into alternatives. Every text that matches the expression contains the literals of at least one of
// them.
func required(node *syntax.Regexp, foldings map[rune]folding) []string {
	switch node.Op {
	case syntax.OpLiteral:
		var literal strings.Builder
		for _, r := range node.Rune {
			if safe(r, foldings) {
				literal.WriteString(foldings[r].Text)
			} else {
				literal.WriteString(gap)
			}
		}
		return []string{literal.String()}
	case syntax.OpEmptyMatch, syntax.OpBeginLine, syntax.OpEndLine, syntax.OpBeginText, syntax.OpEndText, syntax.OpWordBoundary,
		syntax.OpNoWordBoundary:
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

// followed combines each of some with each of others. If there are too many combinations, it replaces others by anything.
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
