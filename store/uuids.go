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
	text, ok := value.(string)
	if !ok {
		return fmt.Errorf("a uuid[] comes as %T", value)
	}
	*u = UUIDs{}
	for part := range strings.SplitSeq(strings.Trim(text, "{}"), ",") {
		if part == "" {
			continue
		}
		id, err := uuid.Parse(part)
		if err != nil {
			return err
		}
		*u = append(*u, id)
	}
	return nil
}

// Value writes PostgreSQL's array text.
func (u UUIDs) Value() (driver.Value, error) { return arrayText(u), nil }

func arrayText[T any](all []T) string {
	parts := make([]string, len(all))
	for i, one := range all {
		parts[i] = fmt.Sprint(one)
	}
	return "{" + strings.Join(parts, ",") + "}"
}
