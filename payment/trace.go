package payment

import (
	"errors"

	"github.com/parley-chat/parley/internal/tracing"
	"github.com/parley-chat/parley/store"
)

// endSpan ends the span of a step of a payment. A step that is refused has not failed.
func endSpan(span tracing.Span, err error) {
	if !span.Recording() {
		return
	}
	failed := err != nil && !errors.Is(err, store.ErrStalePayment) && !errors.Is(err, store.ErrVoucherMismatch)
	if refusal, ok := errors.AsType[*store.Refusal](err); ok {
		span.Set("parley.refusal", refusal.Code)
		failed = false
	}
	if refused, ok := errors.AsType[*Error](err); ok {
		span.Set("parley.code", string(refused.Code))
		failed = refused.Code == CodeUnknown || refused.Code == CodeBusy
	}
	if errors.As(err, new(*RefusedSettlement)) {
		failed = false
	}
	span.End(failed)
}
