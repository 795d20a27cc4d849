package operator

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/cmd/parley/console"
	"github.com/parley-chat/parley/x402"
)

// columnOf is one value of a record. It is a string, a number, or nil.
type columnOf[T any] struct {
	name string
	of   func(r T) any
}

// show writes one record: its columns as a table of names and values, or one line of JSON.
func show[T any](to io.Writer, asJSON bool, columns []columnOf[T], record T) error {
	if asJSON {
		return writeJSON(to, columns, record)
	}
	out := console.Table(to)
	for _, column := range columns {
		fmt.Fprintf(out, "%s\t%s\n", column.name, console.Printable(text(column.of(record))))
	}
	return out.Flush()
}

// list writes records as a table with some columns, or as CSV or lines of JSON with all columns. A limit of 0 is none.
func list[T any](to io.Writer, format string, limit int, columns []columnOf[T], inTable []string, records iter.Seq2[T, error]) error {
	write, flush := writer(to, format, columns, inTable)
	written := 0
	for record, err := range records {
		if err == nil {
			err = write(record)
		}
		if err != nil {
			return err
		}
		if written++; written == limit {
			break
		}
	}
	return flush()
}

// writer returns functions that write a record, and what is buffered.
func writer[T any](to io.Writer, format string, columns []columnOf[T], inTable []string) (write func(T) error, flush func() error) {
	switch format {
	case "json":
		return func(r T) error { return writeJSON(to, columns, r) }, func() error { return nil }
	case "csv":
		out := csv.NewWriter(to)
		row := func(of func(columnOf[T]) string) error {
			var cells []string
			for _, column := range columns {
				cells = append(cells, of(column))
			}
			return out.Write(cells)
		}
		_ = row(func(c columnOf[T]) string { return c.name }) // flush reports the error
		return func(r T) error { return row(func(c columnOf[T]) string { return cell(c.of(r)) }) },
			func() error { out.Flush(); return out.Error() }
	}
	out := console.Table(to)
	fmt.Fprintln(out, strings.ToUpper(strings.Join(inTable, "\t")))
	return func(r T) error {
		var line []string
		for _, name := range inTable {
			of := columns[slices.IndexFunc(columns, func(c columnOf[T]) bool { return c.name == name })].of
			line = append(line, console.Printable(text(of(r))))
		}
		_, err := fmt.Fprintln(out, strings.Join(line, "\t"))
		return err
	}, out.Flush
}

// cell formats a value for a spreadsheet. A text begins with an apostrophe where it would be taken for a formula.
func cell(value any) string {
	written, isText := value.(string)
	if !isText {
		return text(value)
	}
	if written != "" && strings.ContainsAny(written[:1], "=+-@\t\r\n") {
		written = "'" + written
	}
	return agent.Reveal(written)
}

// optional is what a pointer points to, or nil.
func optional[T any](value *T) any {
	if value == nil {
		return nil
	}
	return *value
}

// ifSet is what a function makes of what a pointer points to, or nil.
func ifSet[T, R any](value *T, of func(T) R) any {
	if value == nil {
		return nil
	}
	return of(*value)
}

func timestamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// usd formats atomic units of USDC in dollars with six decimals.
func usd(amount int64) string {
	if amount < 0 {
		return "-" + x402.FormatUSD(uint64(-amount))
	}
	return x402.FormatUSD(uint64(amount))
}

// text formats a column's value for output other than JSON.
func text(value any) string {
	switch value := value.(type) {
	case nil:
		return ""
	case map[string]any:
		raw, err := json.Marshal(value)
		if err != nil {
			return err.Error()
		}
		return agent.EscapeJSON(string(raw))
	}
	return fmt.Sprint(value)
}

// writeJSON writes a record as one line of JSON.
func writeJSON[T any](to io.Writer, columns []columnOf[T], record T) error {
	line := []byte{'{'}
	for i, column := range columns {
		if i > 0 {
			line = append(line, ',')
		}
		value, err := json.Marshal(column.of(record))
		if err != nil {
			return err
		}
		line = append(fmt.Appendf(line, "%q:", column.name), value...)
	}
	return console.EncodeJSON(to, json.RawMessage(append(line, '}')))
}
