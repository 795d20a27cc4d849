package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/parley-chat/parley/client"
)

// Action is something that an agent can do. The command line and the MCP server are two faces of [Actions].
type Action struct {
	// Name is the command, such as "group add".
	Name string
	// Tool is the MCP tool. If several actions share it, its parameter action has the last word of Name. Without a tool only the program has
	// the action: a human decides.
	Tool string
	// Summary is one sentence.
	Summary string
	Params  []Param
	// Operations are those of the contract that it makes, without the look-up of names. Prices are theirs.
	Operations []string
	// Price is what a call costs in USD.
	Price string
	// Changes is true if it changes something for others, or something that lasts, and Final if that cannot be taken back.
	Changes, Final bool
	// Example is a command line that runs.
	Example string
	// Returns are the fields of the result, with spaces, if they are not those of the operations' responses.
	Returns string
	// Run is nil for what the program does itself.
	Run func(r *Run) (*Value, error)

	fields map[string]string // parameters by field of the contract
	what   act
}

func (a *Action) Verb() string { return a.Name[strings.LastIndexByte(a.Name, ' ')+1:] }

type Type string

// The types of parameters, with the names of JSON schema.
const (
	Text   Type = "string"
	Number Type = "integer"
	Flag   Type = "boolean"
	List   Type = "array" // of texts
	Object Type = "object"
)

type Param struct {
	// Name is that of the tool's parameter, and with dashes in place of underscores that of the flag.
	Name string
	Type Type
	// Help is a few words. The limits are added.
	Help string
	// Arg is true if the command line has it without the name of a flag.
	Arg, Required bool
	// Stdin is true if a command reads it from standard input if it is - or missing.
	Stdin bool
	// Min and Max bound a number, and Max the characters of a text.
	Min, Max int
	Enum     []string
	Short    string
	// Empty is true if an empty text means something: there is no text any more.
	Empty bool
	// Default is what the action takes if the parameter is left out, as the help writes it.
	Default string
	// Program is true if only the program has it.
	Program bool
	// Not are parameters that it does not go with, and Needs one without which it means nothing.
	Not   []string
	Needs string
}

func (p Param) Flag() string { return strings.ReplaceAll(p.Name, "_", "-") }

func (a *Action) Cost() string {
	if a.Price == "free" {
		return "Free."
	}
	return "Costs " + map[bool]string{true: "USD "}[a.Price[0] <= '9'] + a.Price + "."
}

// Fields are the fields of the result as JSON, beside those of all results.
func (a *Action) Fields(contract Contract) (fields []string) {
	fields = strings.Fields(a.Returns)
	for _, id := range a.Operations {
		if a.Returns == "" {
			fields = append(fields, contract[id].Returns...)
		}
	}
	if a.what.kind != "" && a.Returns == "" {
		fields = append(fields, OperationsOf[a.what.kind].ID)
	}
	fields = slices.DeleteFunc(fields, func(name string) bool { return slices.Contains(secretFields, name) })
	slices.Sort(fields)
	return slices.Compact(fields)
}

func (p Param) Limited() string {
	switch {
	case p.Type == Number && p.Max > 0:
		return fmt.Sprintf("%s, %d to %d", p.Help, p.Min, p.Max)
	case p.Enum != nil:
		return p.Help + ": " + strings.Join(p.Enum, ", ")
	case p.Max > 0:
		return fmt.Sprintf("%s, at most %d characters", p.Help, p.Max)
	}
	return p.Help
}

// Take returns the arguments of an action in their types: a model cannot correct its client. Errors name the parameters as the face does.
func (a *Action) Take(face Face, given map[string]any) (map[string]any, error) {
	taken := map[string]any{}
	for name, value := range given {
		i := slices.IndexFunc(a.Params, func(p Param) bool { return p.Name == name })
		switch {
		case value == nil: // some clients, such as CrewAI, send null for what is left out
			continue
		case i < 0:
			var names []string
			for _, p := range a.Params {
				if !p.Program {
					names = append(names, face.Param(p))
				}
			}
			return nil, Usagef("%s takes no %s; it takes: %s", face.Call(a, nil), VisibleName(name), cmp.Or(strings.Join(names, ", "), "nothing"))
		}
		one, wrong := a.Params[i].take(value)
		if wrong != "" {
			return nil, Usagef("%s %s", face.Param(a.Params[i]), wrong)
		}
		taken[name] = one
	}
	has := func(name string) bool { return taken[name] != nil && taken[name] != false }
	for _, p := range a.Params {
		other := slices.IndexFunc(p.Not, has)
		switch _, there := taken[p.Name]; {
		case p.Required && !there:
			return nil, Usagef("%s is missing: %s", face.Param(p), p.Limited())
		case has(p.Name) && other >= 0:
			return nil, Usagef("%s does not go with %s", face.Param(p), face.Param(*a.param(p.Not[other])))
		case has(p.Name) && p.Needs != "" && !has(p.Needs):
			return nil, Usagef("%s needs %s", face.Param(p), face.Param(*a.param(p.Needs)))
		}
	}
	return taken, nil
}

func (a *Action) param(name string) *Param {
	for i := range a.Params {
		if a.Params[i].Name == name {
			return &a.Params[i]
		}
	}
	return nil
}

// take returns a value in the type of the parameter, or what is wrong with it. A text stands for a number, a boolean or a list.
func (p Param) take(value any) (taken any, wrong string) {
	text, isText := value.(string)
	if number, err := strconv.Atoi(strings.TrimSpace(text)); p.Type == Number && err == nil {
		value = float64(number) // as in JSON
	} else if flag, err := strconv.ParseBool(strings.TrimSpace(text)); p.Type == Flag && err == nil {
		value = flag
	}
	ok := false
	switch p.Type {
	case Text:
		if _, number := value.(float64); number {
			value = fmt.Sprint(value)
		}
		text, ok = value.(string)
		switch length := utf8.RuneCountInString(text); {
		case !utf8.ValidString(text):
			return nil, "has bytes that are not UTF-8"
		case ok && !p.Empty && strings.TrimSpace(text) == "":
			return nil, "is empty: " + p.Limited()
		case p.Max > 0 && length > p.Max:
			return nil, fmt.Sprintf("has %d characters, at most %d are allowed", length, p.Max)
		case ok && p.Enum != nil && !slices.Contains(p.Enum, text):
			return nil, "is one of: " + strings.Join(p.Enum, ", ")
		}
		value = text
	case Number:
		number, isNumber := value.(float64)
		ok = isNumber && number == float64(int(number))
		if ok && p.Max > 0 && (int(number) < p.Min || int(number) > p.Max) || !ok && p.Max > 0 {
			return nil, fmt.Sprintf("is a whole number from %d to %d", p.Min, p.Max)
		}
		value = int(number)
	case Flag:
		_, ok = value.(bool)
	case List:
		var list []string
		if list, ok = texts(value); ok && (len(list) == 0 || slices.Contains(list, "")) {
			return nil, "is empty: " + p.Limited()
		}
		value = list
	case Object:
		if isText {
			value = nil
			_ = json.Unmarshal([]byte(text), &value) // another text is no object
		}
		_, ok = value.(map[string]any)
	}
	if !ok {
		return nil, "must be of the JSON type " + string(p.Type)
	}
	return value, ""
}

// texts returns a list of texts, also from JSON in a text, or from one text.
func texts(value any) (list []string, ok bool) {
	if text, isText := value.(string); isText {
		if json.Unmarshal([]byte(text), &list) != nil {
			list = []string{text}
		}
		return list, true
	}
	if list, ok = value.([]string); ok {
		return list, utf8.ValidString(strings.Join(list, ""))
	}
	values, ok := value.([]any)
	for _, one := range values {
		text, isText := one.(string)
		list, ok = append(list, text), ok && isText && utf8.ValidString(text)
	}
	return list, ok
}

type Run struct {
	*Agent
	Context context.Context //nolint:containedctx // of this run only
	Args    map[string]any
	// Key is an idempotency key, or "".
	Key string
	// Confirmed allows what is dear or final.
	Confirmed bool
	// Room is how many characters of messages are shown, or 0 for all. The rest of a text that is cut is free.
	Room int
	// Patience limits each call; zero means 45 seconds.
	Patience time.Duration

	results []*Result
	meant   Contact // the conversation that a name means
}

// Do runs an action. After the value was shown, [Run.Seen] must be called, or else Release.
func (a *Action) Do(r *Run) (value *Value, err error) {
	command := commandOf(r.Context)
	command.action, r.Context = a, command.Continue(r.Context)
	if r.Args, err = a.Take(command.face(), r.Args); err != nil {
		return nil, err
	}
	if a.Price != "free" {
		ctx, cancel := context.WithTimeout(r.Context, finishTime) // what is open counts against the limit
		defer cancel()
		if _, err := r.Resume(ctx); ctx.Err() == nil && err != nil {
			return nil, err
		}
	}
	value, err = a.Run(r)
	if refusedAs(err, client.ErrorCodeDeleted) && r.meant.ID != "" { // the name may mean another conversation now
		again, failed := a.Run(r)
		if !refusedAs(failed, client.ErrorCodeChatNotFound, client.ErrorCodeChannelNotFound) {
			value, err = again, failed
		}
	}
	if f, ok := errors.AsType[*Failure](err); ok {
		a.complete(f, r.Args)
	}
	if err != nil {
		return nil, err
	}
	value.Data["paid_usd"] = USD(command.Charged())
	if a.Price != "free" || len(r.results) > 0 {
		r.addMoney(value)
	}
	return value, nil
}

// complete adds to a failure that asks the human what is asked, and the command that does the same confirmed.
func (a *Action) complete(f *Failure, arguments object) {
	if f.dear > 0 {
		of, given, asked := a, []string{}, arguments
		if inner, ok := arguments["arguments"].(object); ok { // of any call
			of, asked = ActionOf(fmt.Sprint(arguments["operation"])), inner
		}
		for _, name := range slices.Sorted(maps.Keys(asked)) {
			given = append(given, name+": "+VisibleName(wordsOf(*cmp.Or(a.param(name), &Param{}), asked[name])))
		}
		f.Question = fmt.Sprintf("%s (%s) for %s USD?", strings.TrimSuffix(of.Summary, "."), strings.Join(given, "; "), USD(f.dear))
	}
	if f.Question != "" {
		f.Next = a.Line(arguments) + " --yes"
	}
}

func wordsOf(p Param, value any) string {
	switch p.Type { //nolint:exhaustive // the others are as fmt prints them
	case Object:
		raw, _ := json.Marshal(value) // JSON
		return string(raw)
	case List:
		list, _ := value.([]string)
		return strings.Join(list, ",")
	case Flag:
		return map[any]string{true: "yes", false: "no"}[value]
	}
	return fmt.Sprint(value)
}

const finishTime = 5 * time.Second

func (r *Run) addMoney(v *Value) {
	today, err := r.ledger.Today(r.Context)
	if err != nil {
		return
	}
	v.Data["today_usd"], v.Data["limit_usd"] = USD(today.Spent-today.Reserved), USD(today.Limit)
	if today.Reserved > 0 {
		v.Data["reserved_usd"] = USD(today.Reserved)
	}
	paid := "paid " + USD(commandOf(r.Context).Charged()) + " USD · " + today.String()
	if slices.ContainsFunc(r.results, func(result *Result) bool { return result.Earlier }) {
		v.Data["earlier"] = true
		paid += " · the response of the same call, which was charged once"
	}
	v.line("%s", paid)
}

// Line returns the command line of the action with arguments, without the name of the program.
func (a *Action) Line(arguments map[string]any) string {
	line := a.Name
	for _, p := range a.Params {
		value, there := arguments[p.Name]
		text := Quoted(wordsOf(p, value))
		switch {
		case !there:
		case p.Arg && p.Type == List:
			line += " " + strings.ReplaceAll(wordsOf(p, value), ",", " ")
		case p.Arg:
			line += " " + text
		case value == true:
			line += " --" + p.Flag()
		case value == false:
			line += map[bool]string{true: " --no-" + p.Flag()}[p.Name == findable.Name]
		case p.Short != "":
			line += " -" + p.Short + " " + text
		default:
			line += " --" + p.Flag() + " " + text
		}
	}
	return line
}

// Quoted returns a word as a shell reads it.
func Quoted(word string) string {
	if word != "" && !strings.ContainsFunc(word, func(r rune) bool { return !plainName(r) }) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// Seen notes that the value was shown: the same action is a new one.
func (r *Run) Seen() error {
	for _, result := range r.results {
		if err := r.Agent.Seen(r.Context, result); err != nil {
			return err
		}
	}
	return nil
}

func (r *Run) Release() {
	for _, result := range r.results {
		result.release()
	}
}

func arg[T any](r *Run, name string) (value T) {
	value, _ = r.Args[name].(T)
	return value
}

func (r *Run) text(name string) string { return arg[string](r, name) }

func (r *Run) copyTo(arguments object, names map[string]string) object {
	for from, to := range names {
		if value, ok := r.Args[from]; ok {
			arguments[to] = value
		}
	}
	return arguments
}

type object = map[string]any

func (r *Run) call(operation, peer string, arguments object) (object, error) {
	result, err := r.Call(r.Context, operation, arguments, CallOptions{Peer: peer, Key: r.Key, Confirmed: r.Confirmed, Patience: r.Patience})
	if err != nil {
		return nil, err
	}
	r.results = append(r.results, result)
	return r.decode(result)
}

func (r *Run) decode(result *Result) (object, error) {
	var body object
	err := r.Decode(r.Context, result, &body)
	readableTimes(body)
	return body, err
}

// readableTimes writes the timestamps of a response as dates, as everywhere else.
func readableTimes(value any) {
	switch v := value.(type) {
	case []any:
		for _, one := range v {
			readableTimes(one)
		}
	case object:
		for name, one := range v {
			if seconds, ok := one.(float64); ok && strings.HasSuffix(name, "_at") {
				v[name] = time.Unix(int64(seconds), 0).UTC().Format(time.RFC3339)
			}
			readableTimes(one)
		}
	}
}

func (r *Run) resolve(name string, kinds ...string) (Contact, error) {
	if r.meant.ID != "" && !slices.Equal(kinds, []string{KindAgent}) {
		kinds = []string{r.meant.Kind} // it was deleted; nobody else is meant in its place
	}
	found, err := r.Resolve(r.Context, r.text(name), kinds...)
	if found.Kind != KindAgent && !isID(r.text(name)) {
		r.meant = found
	}
	return found, err
}

// Value is the result of an action: the fields, as the contract names them, and the same in lines.
type Value struct {
	Data  map[string]any
	Parts []Part
}

// Part is a line of our own words, or with Foreign a text that other agents wrote, after that line.
type Part struct{ Line, Foreign string }

func newValue(data object) *Value { return &Value{Data: data} }

// said returns the value of what was done: message says in a sentence what happened to what, and the ids with whom.
func said(data object, of Contact, format string, values ...any) *Value {
	if of.ID != "" {
		data[OperationsOf[of.Kind].ID] = of.ID
	}
	data["message"] = fmt.Sprintf(format, values...)
	return newValue(data).line("%s", data["message"])
}

func (v *Value) line(format string, values ...any) *Value {
	v.Parts = append(v.Parts, Part{Line: fmt.Sprintf(format, values...)})
	return v
}

// Shown returns a value whose lines are its fields, by name.
func Shown(fields object) *Value {
	v := newValue(fields)
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		v.field(name, fields[name])
	}
	return v
}

// field adds a line with a field. Texts that others wrote, and that could be more than a word, are marked.
func (v *Value) field(name string, value any) {
	switch value := value.(type) {
	case []any:
		v.list(name, value)
	case string:
		switch {
		case value == "":
		case name == "name":
			v.line("name: %s", VisibleName(value))
		case name != "description" && Tame(value) && utf8.RuneCountInString(value) <= 100:
			v.line("%s", strings.TrimSpace(name+": "+value+meanings[name]))
		default:
			v.Parts = append(v.Parts, Part{name + ":", value})
		}
	default:
		text, _ := json.Marshal(value) // a value of JSON
		v.line("%s: %s", name, text)
	}
}

// meanings follow amounts whose names do not say enough.
var meanings = map[string]string{
	"today_usd": " (spent, or still to be taken, since 00:00 UTC)", "left_usd": " (may still be spent today)", "limit_usd": " (daily limit)",
	"reserved_usd": " (of the limit, for refused calls)", "deposited_usd": " (in payment channels, in addition to the balance)",
}

func (v *Value) list(name string, list []any) {
	var words []string
	for _, one := range list {
		fields, _ := one.(object)
		word, isText := one.(string)
		if username, ok := fields["username"].(string); ok {
			word, isText = username, true
		}
		if !isText {
			continue // as pinned messages, which are shown as messages
		}
		word = VisibleName(word)
		if fields["is_admin"] == true {
			word += " (admin)"
		}
		words = append(words, word)
	}
	if len(words) == len(list) {
		v.line("%s: %s", name, cmp.Or(strings.Join(words, ", "), "none"))
	}
}
