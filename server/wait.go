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

// waitUnread lets a call wait that asks for it. Its first run checks the key and the payment, and ends in beginWait. While it waits it
// holds nothing but its request, or a voucher instead of the header that brought it. The second run checks the key again, and a payment
// that can expire; it is charged once, and what it returns is stored. So a call that waited and was not charged changed nothing.
func (s *Server) waitUnread(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		operation, record := operationFrom(c), recordFrom(c)
		if operation == nil || operation.ID != listUnread {
			return next(c)
		}
		seconds, _ := strconv.Atoi(c.QueryParam("wait")) // validated
		record.mayWait = seconds > 0
		if err := next(c); err != nil || record.wait == nil {
			return err
		}
		waiting, voucher := record.wait, record.attempt.ValidBefore.IsZero()
		limit := s.payments.Patience(record.attempt, time.Duration(seconds)*time.Second)
		record.mayWait, record.wait, record.caller = false, nil, nil // collected meanwhile
		if voucher {
			payment.Forget(c.Request().Header)
		} else {
			record.attempt = nil
		}
		edge.RequestOf(c).Wait(limit)
		began := time.Now()
		err := s.room.stay(c.Request().Context(), waiting, limit)
		record.waited = time.Since(began)
		switch {
		case err != nil:
			record.attempt = nil // it is no paid call that failed: see paidOutcomes
		case voucher:
			err = s.room.charge(c.Request().Context(), waiting.Agent, func() error { return next(c) })
		default:
			err = next(c)
		}
		s.room.settle(waiting, hungUp(c), err)
		return err
	}
}

// beginWait ends the first run of a call that is to wait.
func (s *Server) beginWait(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		record := recordFrom(c)
		if record.mayWait {
			if err := s.prepareWait(c); err != nil || record.wait != nil {
				return err
			}
		}
		return next(c)
	}
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
		Address: record.buckets.address}
	record.wait.Agent, record.wait.Through = record.caller.ID, through
	return nil
}
