package agent

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/client"
)

type walletRefund struct{}

func (walletRefund) Run(ctx context.Context, s *session) error {
	refunded, err := s.agent.Refund(ctx)
	if errors.Is(err, client.ErrNoPaymentChannel) {
		return errors.New("this server takes no payments from payment channels, so nothing is deposited")
	}
	if err != nil && !errors.Is(err, client.ErrNothingToRefund) {
		return err
	}
	return s.print(ctx, object{"refunded_usd": agent.USD(refunded)}, func(w io.Writer) {
		if refunded == 0 {
			fmt.Fprintln(w, "nothing to take back: no deposit is unspent")
			return
		}
		fmt.Fprintf(w, "%s USD came back to the wallet\n", agent.USD(refunded))
	})
}
