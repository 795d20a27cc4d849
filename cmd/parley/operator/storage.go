package operator

import (
	"context"
	"fmt"

	"github.com/parley-chat/parley/cmd/parley/console"
	"github.com/parley-chat/parley/store"
)

// storage shows what takes space in the database.
type storage struct {
	Ledger   ledger `embed:""`
	Accounts int    `default:"20" help:"Number of accounts (${default})."`
}

// allTables is more than there are.
const allTables = 100

func (s *storage) Run(ctx context.Context, to console.Console) error {
	return s.Ledger.with(ctx, func(database *store.Store) error {
		sizes, err := database.Storage(ctx, allTables)
		if err != nil {
			return err
		}
		accounts, share, err := database.LargestAccounts(ctx, s.Accounts)
		if err != nil {
			return err
		}
		out := console.Table(to.Out)
		fmt.Fprintf(out, "table\tsize\trows (estimate)\n")
		for _, one := range sizes.Tables {
			fmt.Fprintf(out, "%s\t%s\t%d\n", one.Name, byteCount(one.Bytes), max(one.Rows, 0))
		}
		fmt.Fprintf(out, "database\t%s\t\n\naccount\tusername\tmessages\tcontent\n", byteCount(sizes.Database))
		for _, one := range accounts {
			fmt.Fprintf(out, "%s\t%s\t%d\t%s\n", one.ID, one.Username, one.Messages, byteCount(one.Bytes))
		}
		if share < 1 {
			fmt.Fprintf(out, "(estimated from %.2g %% of the messages)\n", 100*share)
		}
		return out.Flush()
	})
}

// byteCount formats a size.
func byteCount(n int64) string {
	size, unit := float64(n), 0
	for ; size >= 1000 && unit < 4; unit++ {
		size /= 1000
	}
	if unit == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %cB", size, " kMGT"[unit])
}
