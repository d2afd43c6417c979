package plane

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/better-compute/metal/adapters/postgres"
	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/event"
)

// administered makes sure that somebody can log in, and gives the log's head afterwards.
func administered(ctx context.Context, service *commands.Service, secrets *postgres.Secrets, log event.Store, c Config,
) (event.Position, error) {
	if err := administrator(ctx, service, secrets, c); err != nil {
		return 0, err
	}
	return log.Head(ctx)
}

// administrator makes sure that somebody can log in: with the token that was given, or, at the first start, with one that
// is made and printed once.
func administrator(ctx context.Context, service *commands.Service, secrets *postgres.Secrets, c Config) error {
	hasToken, err := service.Bootstrap(ctx)
	if err != nil {
		return err
	}
	switch {
	case c.AdminToken != "":
		return service.GiveAdministratorToken(ctx, c.AdminToken, "set by file")
	case hasToken:
		return nil
	}
	token := secrets.Mint(firstToken)
	if err := service.GiveAdministratorToken(ctx, token, "made at the first start"); err != nil {
		return err
	}
	c.Logger.Info("made the first administrator; its token is printed once, to standard output")
	fmt.Println(token)
	return nil
}

// firstToken names the command of the first token: replicas that start together print the same one.
var firstToken = uuid.MustParse("00000000-0000-7000-8000-000000000003")
