package store

import (
	"fmt"
	"iter"
	"time"

	"gorm.io/gorm"
)

// conditions narrow a query.
type conditions struct{ search *gorm.DB }

// match adds a condition for each field of a record that has a value. The period is one of a column; a zero time is no limit.
func match(search *gorm.DB, record any, column string, since, until time.Time) conditions {
	c := conditions{search.Where(record)}
	c.add(!since.IsZero(), column+" >= ?", since)
	c.add(!until.IsZero(), column+" < ?", until)
	return c
}

// add adds a condition if it is given.
func (c *conditions) add(given bool, condition string, values ...any) {
	if given {
		c.search = c.search.Where(condition, values...)
	}
}

// recordPage is the maximum number of records in memory.
const recordPage = 500

// allPages yields the rows of all pages. Search returns the query for the rows after last, or for all rows if last is nil; the
// error of a query says what was done. The functions complete each page.
func allPages[T any](what string, search func(last *T) *gorm.DB, complete ...func(page []T) error) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for last := (*T)(nil); ; {
			var page []T
			err := search(last).Limit(recordPage).Find(&page).Error
			for _, add := range complete {
				if err == nil {
					err = add(page)
				}
			}
			if err != nil {
				yield(*new(T), fmt.Errorf("%s: %w", what, err))
				return
			}
			for _, row := range page {
				if !yield(row, nil) {
					return
				}
			}
			if len(page) < recordPage {
				return
			}
			last = &page[len(page)-1]
		}
	}
}
