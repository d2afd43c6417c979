package plane

import (
	"context"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/better-compute/metal/adapters/eventstore/memory"
	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/agent"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
)

// dying is a database that dies in the middle of a read.
type dying struct{}

var errDied = &net.OpError{Op: "read", Net: "unix", Err: syscall.ECONNRESET}

func (dying) Query(context.Context, string, ...any) (pgx.Rows, error) { return nil, errDied }
func (dying) QueryRow(context.Context, string, ...any) pgx.Row        { return dying{} }
func (dying) Scan(...any) error                                       { return errDied }

// A step that looks for an agent while the database dies is looked at again: it does not fail for good.
func TestADatabaseThatDiesFailsNoStep(t *testing.T) {
	registry, err := commands.Registry()
	if err != nil {
		t.Fatal(err)
	}
	log, n := memory.New(registry), id.Of[id.Node](uuid.UUID{15: 1})
	of := commands.AgentOf(n)
	if _, err := log.Append(t.Context(), agent.StreamOf(of), 0, event.Meta{}, agent.Joined{Agent: of, Node: n, Role: agent.RoleRamdisk}); err != nil {
		t.Fatal(err)
	}
	s := stepAgents{service: commands.New(log, nil, nil, time.Now), db: dying{}, clock: time.Now}
	if _, err := s.OfNode(t.Context(), n); fault.CodeOf(err) != fault.Unavailable {
		t.Errorf("the agent of a node: %v", err)
	}
	if _, err := s.SiteAgents(t.Context(), id.Of[id.Site](uuid.UUID{15: 2})); fault.CodeOf(err) != fault.Unavailable {
		t.Errorf("the agents of a site: %v", err)
	}
}
