package server

import (
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/parley-chat/parley/gen"
	"github.com/parley-chat/parley/payment/channel"
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
func waitingShare(limits Limits) int { return max(1, limits.Connections*3/4) }

// holdBack lets a call wait that asks for it, until something is unread. First the call passes the checks that follow, and its payment is
// checked. Then it waits and holds nothing but its request. After that it begins anew, as one that did not wait: its key and its payment
// are checked again, it is charged once, and what it returns is stored. So a call that waited and was not charged has changed nothing.
func (s *Server) holdBack(next echo.HandlerFunc) echo.HandlerFunc {
	prepare := s.checkPayment(s.prepareWait)
	return func(c echo.Context) error {
		operation, record := operationFrom(c), recordFrom(c)
		if operation == nil || operation.ID != listUnread || channel.MayBeRefund(c.Request().Header) {
			return next(c)
		}
		seconds, err := strconv.Atoi(c.QueryParam("wait")) // validated
		if err != nil || seconds == 0 {
			return next(c)
		}
		if err := prepare(c); err != nil {
			return err
		}
		if record.wait != nil {
			limit := s.payments.Patience(record.attempt, time.Duration(seconds)*time.Second)
			waiting, voucher := record.wait, record.attempt.ValidBefore.IsZero()
			record.wait, record.attempt, record.caller = nil, nil, nil // collected meanwhile
			requestFrom(c).wait(limit)
			began := time.Now()
			err = s.room.stay(c.Request().Context(), waiting, limit)
			record.waited = time.Since(began)
			if err != nil {
				return err
			}
			if voucher {
				return s.room.charge(c.Request().Context(), waiting.Agent, func() error { return next(c) })
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
	record.wait = &wait{Sources: sources, Channel: record.attempt.Channel(), Call: record.attempt.Nonce + string(record.attempt.Request())}
	record.wait.Agent, record.wait.Through = record.caller.ID, through
	return nil
}
