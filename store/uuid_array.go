package store

import (
	"database/sql/driver"
	"fmt"
	"strings"

	"github.com/google/uuid"
)

// UUIDs is a uuid[] column.
type UUIDs []uuid.UUID

// Scan parses PostgreSQL's array text, {a,b}.
func (u *UUIDs) Scan(value any) error {
	items, err := arrayItems(value)
	*u = make(UUIDs, len(items))
	for i, item := range items {
		if (*u)[i], err = uuid.Parse(item); err != nil {
			return err
		}
	}
	return err
}

// Value writes PostgreSQL's array text.
func (u UUIDs) Value() (driver.Value, error) { return arrayText(u), nil }

// arrayItems splits PostgreSQL's text of an array whose items need no quotes.
func arrayItems(value any) ([]string, error) {
	text, ok := value.(string)
	if !ok {
		return nil, fmt.Errorf("an array comes as %T", value)
	}
	if text = strings.Trim(text, "{}"); text == "" {
		return []string{}, nil
	}
	return strings.Split(text, ","), nil
}

func arrayText[T any](all []T) string {
	parts := make([]string, len(all))
	for i, one := range all {
		parts[i] = fmt.Sprint(one)
	}
	return "{" + strings.Join(parts, ",") + "}"
}
