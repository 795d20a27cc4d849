package server

import (
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/parley-chat/parley/gen"
	"github.com/parley-chat/parley/payment"
	"github.com/parley-chat/parley/server/edge"
	"github.com/parley-chat/parley/store"
)

// listUnread is the operation whose calls can wait.
const listUnread = "listUnreadMessages"

var (
	errRoomFull = &problem{status: http.StatusServiceUnavailable, code: gen.ErrorCodeUnavailable, retryAfter: 5,
		message: "too many calls wait on this server, and nothing was charged; wait for Retry-After seconds, then send the same request " +
			"with the same payment again, or a request without wait"}
	// A page at once would cost a price for nothing, again and again for a caller that polls.
	errRoomClosed = &problem{status: http.StatusServiceUnavailable, code: gen.ErrorCodeUnavailable, retryAfter: 5,
		message: "this server stops, and nothing was charged; wait for Retry-After seconds, then send the same request with the same " +
			"payment again, or a request without wait"}
	errWaitReplaced = &problem{status: http.StatusConflict, code: gen.ErrorCodePaymentInProgress, retryAfter: 5,
		message: "another call with wait, of this account or with this payment channel, began and ended this one; nothing was charged; " +
			"wait for Retry-After seconds, then send the same request with the same payment again, which ends the other one; let only one " +
			"process wait"}
	errWaitRepeated = &problem{status: http.StatusConflict, code: gen.ErrorCodePaymentInProgress, retryAfter: 2, unknown: true,
		message: "this payment waits in a newer copy of this call; send the same request with the same payment again"}
	errWaitCharged = &problem{status: http.StatusConflict, code: gen.ErrorCodePaymentInProgress, retryAfter: 2, unknown: true,
		message: "another call of this account has waited and is being charged; wait for Retry-After seconds, then send the same request with " +
			"the same payment again"}
)

// waitingShare is how many of the requests that the server admits may wait: three in four. The others find room.
func waitingShare(limits edge.Limits) int { return max(1, limits.Connections*3/4) }

// checkPayment checks the key and the payment, but does not ask the facilitator. Then a call that asks for it waits until something is
// unread, and holds nothing but its request, or a voucher instead of the header that brought it. After that its key is checked again, and a
// payment that can expire; it is charged once, and what it returns is stored. So a call that waited and was not charged changed nothing.
func (s *Server) checkPayment(next echo.HandlerFunc) echo.HandlerFunc {
	check := func(next echo.HandlerFunc) echo.HandlerFunc {
		return s.limitTime(s.authenticate(before(s.parsePayment, s.limitPayments)(next)))
	}
	atOnce, prepare, proceed := check(next), check(s.prepareWait), s.limitTime(s.authenticate(before(s.renewCaller)(next)))
	return func(c echo.Context) error {
		operation, record := operationFrom(c), recordFrom(c)
		if operation == nil || operation.ID != listUnread {
			return atOnce(c)
		}
		seconds, err := strconv.Atoi(c.QueryParam("wait")) // validated
		if err != nil || seconds == 0 {
			return atOnce(c)
		}
		if err := prepare(c); err != nil {
			return err
		}
		waiting := record.wait
		if waiting == nil {
			return proceed(c)
		}
		limit, voucher := s.payments.Patience(record.attempt, time.Duration(seconds)*time.Second), record.attempt.ValidBefore.IsZero()
		record.wait, record.caller = nil, nil // collected meanwhile
		if voucher {
			payment.Forget(c.Request().Header)
		} else {
			record.attempt = nil
		}
		edge.RequestOf(c).Wait(limit)
		began := time.Now()
		err = s.room.stay(c.Request().Context(), waiting, limit)
		record.waited = time.Since(began)
		switch {
		case err != nil:
			record.attempt = nil // it is no paid call that failed: see paidOutcomes
		case voucher:
			err = s.room.charge(c.Request().Context(), waiting.Agent, func() error { return proceed(c) })
		default:
			err = atOnce(c)
		}
		s.room.settle(waiting, hungUp(c), err)
		return err
	}
}

// renewCaller replaces the caller of the payment, which may be suspended since, or have another key.
func (s *Server) renewCaller(c echo.Context) error {
	record := recordFrom(c)
	record.attempt.Caller = record.payingCaller()
	return nil
}

// prepareWait sets record.wait if the call is to wait: its payment is good and has not begun.
func (s *Server) prepareWait(c echo.Context) error {
	record, ctx := recordFrom(c), c.Request().Context()
	var through store.Through
	if cursor := c.QueryParam("read_through"); cursor != "" {
		var err error
		if through, err = parseCursor(record.caller.ID, cursor); err != nil {
			return err
		}
	}
	if begins, err := s.payments.Begins(ctx, record.attempt); err != nil || !begins {
		return err
	}
	sources, err := s.store.Sources(ctx, record.caller.ID)
	if err != nil {
		return err
	}
	record.wait = &wait{Sources: sources, Channel: record.attempt.Channel(), Call: record.attempt.Nonce + string(record.attempt.Request()),
		Address: record.payment.address}
	record.wait.Agent, record.wait.Through = record.caller.ID, through
	return nil
}
