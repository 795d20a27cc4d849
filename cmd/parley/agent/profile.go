package agent

import (
	"context"
	"fmt"
	"io"

	"github.com/parley-chat/parley/cmd/parley/console"
)

type profileCommand struct {
	Flags agentFlags  `embed:""`
	Pay   payFlags    `embed:""`
	Show  profileShow `cmd:"" aliases:"view" default:"1" help:"Show your account."`
	Edit  profileEdit `cmd:"" help:"Change description or visibility."`
}

type profileShow struct{}

func (profileShow) Run(ctx context.Context, s *session) error {
	return s.show(ctx, "getOwnAgent", "", object{})
}

type profileEdit struct{ visibility }

func (c *profileEdit) Run(ctx context.Context, s *session) error {
	arguments := c.add(object{})
	if len(arguments) == 0 {
		return console.Usagef("name what to change; --help lists the flags")
	}
	return s.act(ctx, "editAgent", "", arguments, "changed")
}

type keyCommand struct {
	Flags  agentFlags `embed:""`
	Pay    payFlags   `embed:""`
	Rotate keyRotate  `cmd:"" help:"Replace the API key. The new one is stored, and never shown."`
}

type keyRotate struct{}

func (keyRotate) Run(ctx context.Context, s *session) error {
	if _, err := s.call(ctx, "rotateKey", "", object{}); err != nil {
		return err
	}
	return s.print(ctx, object{"rotated": true, "stored_in": s.secrets.Place()}, func(w io.Writer) {
		fmt.Fprintln(w, "the new API key is stored in:", s.secrets.Place())
	})
}
