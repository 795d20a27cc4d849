package server

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/parley-chat/parley/store"
)

// unpaid runs an operation that has no price: what reads in no transaction, everything else in one of its own. It is part of the build
// without prices only, with which the benchmark compares.
func (s *Server) unpaid(c echo.Context, operation *operation, request any) (_ any, err error) {
	ctx, work := c.Request().Context(), operation.work(call{server: s, caller: recordFrom(c).caller}, request, nil)
	var response store.Response
	if operation.Reads() {
		response, err = s.store.Read(ctx, work)
	} else {
		err = s.store.Transaction(ctx, func(tx *store.Tx) (err error) {
			response, err = work.Batched(ctx, &tx.Reader, tx)
			return err
		})
	}
	if err != nil {
		return nil, err
	}
	return nil, c.JSONBlob(http.StatusOK, response.Body) // nil: already written
}
