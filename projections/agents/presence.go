package agents

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/better-compute/metal/domain/agent"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/projections"
)

// Alive is how long after its last sign of life an agent counts as connected.
const Alive = 90 * time.Second

// connected needs the alias p of agent_presence. Alive, as SQL has it.
const connected = `coalesce(p.closed = '' AND p.last_contact > now() - interval '90 seconds', false)`

// present is connected, or in a session that was opened since: signs of life are written now and then, and the session's event
// is the first. It needs the alias a of agents, too.
const present = `(` + connected + ` OR coalesce(
	a.session_at > coalesce(p.last_contact, '-infinity') AND a.session_at > now() - interval '90 seconds', false))`

// Contact is a sign of life of one agent.
type Contact struct {
	Agent  id.Agent
	BootID string
	Role   agent.Role
	Ago    time.Duration // before it is written: no clock but the database's counts
	Closed string        // why the agent leaves on purpose; empty: it does not
	Doing  []string      // ids of agent commands
	Boot   string        // URL of its boot server; empty: it serves no network boot
}

// Progress is how far one agent command is.
type Progress struct {
	Command string
	Agent   id.Agent
	Percent float64 // 0 to 100; below zero: not known
	Message string
	At      time.Time // when it is read
}

// SiteAgents lists the connected agents of a site.
func SiteAgents(ctx context.Context, db projections.DB, at id.Site) ([]id.Agent, error) {
	const sql = `SELECT a.agent_id FROM agents a JOIN agent_presence p USING (agent_id)
		WHERE a.site_id = $1 AND a.role = $2 AND a.revoked = '' AND ` + connected + ` ORDER BY p.last_contact DESC`
	rows, err := db.Query(ctx, sql, at.String(), agent.RoleSite)
	if err != nil {
		return nil, fmt.Errorf("agents of %s: %w", at, err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[id.Agent])
	if err != nil {
		return nil, fmt.Errorf("agents of %s: %w", at, err)
	}
	return found, nil
}

// Seen is what is known of an agent from its signs of life.
type Seen struct {
	BootID    string
	Role      agent.Role
	Connected bool          // within Alive
	Silent    time.Duration // since the last sign that was written down; zero: there is none
}

// Connected reports whether an agent was heard of within Alive, in which boot and role.
func Connected(ctx context.Context, db projections.DB, a id.Agent) (bootID string, role agent.Role, is bool, err error) {
	s, err := SeenOf(ctx, db, a)
	return s.BootID, s.Role, s.Connected, err
}

// SeenOf tells when an agent was heard of last, and as what.
func SeenOf(ctx context.Context, db projections.DB, a id.Agent) (s Seen, err error) {
	const sql = `SELECT p.boot_id, p.role, ` + connected + `, extract(epoch FROM now() - p.last_contact)::float8
		FROM agent_presence p WHERE p.agent_id = $1`
	var seconds float64
	err = db.QueryRow(ctx, sql, a.String()).Scan(&s.BootID, &s.Role, &s.Connected, &seconds)
	if errors.Is(err, pgx.ErrNoRows) {
		return Seen{}, nil
	}
	if err != nil {
		return Seen{}, fmt.Errorf("presence of %s: %w", a, err)
	}
	s.Silent = max(time.Duration(seconds*float64(time.Second)), 0)
	return s, nil
}

// ProgressOf is the newest that was told of agent commands; those of which nothing was told are left out.
func ProgressOf(ctx context.Context, db projections.DB, commands ...id.AgentCommand) (map[string]Progress, error) {
	keys := make([]string, len(commands))
	for i, c := range commands {
		keys[i] = c.String()
	}
	rows, err := db.Query(ctx, `SELECT command_id, agent_id, percent, message, at FROM agent_progress WHERE command_id = ANY($1)`, keys)
	if err != nil {
		return nil, fmt.Errorf("progress of agent commands: %w", err)
	}
	found := map[string]Progress{}
	var p Progress
	_, err = pgx.ForEachRow(rows, []any{&p.Command, &p.Agent, &p.Percent, &p.Message, &p.At}, func() error {
		found[p.Command] = p
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("progress of agent commands: %w", err)
	}
	return found, nil
}
