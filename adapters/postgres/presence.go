package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/better-compute/metal/projections/agents"
)

// Presence keeps the signs of life of agents. They are no events: a row is overwritten.
type Presence struct{ pool *pgxpool.Pool }

// NewPresence keeps presence in the tables agent_presence and agent_progress.
func NewPresence(pool *pgxpool.Pool) *Presence { return &Presence{pool: pool} }

// Write stores what was heard of agents, the newest of each, in one statement a table and one round trip. Of two gateways
// that heard of one agent the later contact stays. Errors: UNAVAILABLE.
func (p *Presence) Write(ctx context.Context, contacts []agents.Contact, progress []agents.Progress) error {
	batch := &pgx.Batch{}
	if len(contacts) > 0 {
		queueContacts(batch, contacts)
	}
	if len(progress) > 0 {
		queueProgress(batch, progress)
	}
	if batch.Len() == 0 {
		return nil
	}
	return Fault(p.pool.SendBatch(ctx, batch).Close())
}

func queueContacts(batch *pgx.Batch, contacts []agents.Contact) {
	var ids, boots, roles, closed, doing, servers []string
	var ago []float64
	for _, c := range contacts {
		ids, boots, roles = append(ids, c.Agent.String()), append(boots, c.BootID), append(roles, string(c.Role))
		closed, ago = append(closed, c.Closed), append(ago, c.Ago.Seconds())
		doing, servers = append(doing, array(c.Doing)), append(servers, c.Boot)
	}
	batch.Queue(`INSERT INTO agent_presence AS p (agent_id, boot_id, role, last_contact, closed, doing, boot_url)
		SELECT a, b, r, now() - make_interval(secs => s), c, d::text[], v
		FROM unnest($1::text[], $2::text[], $3::text[], $4::float8[], $5::text[], $6::text[], $7::text[]) AS u (a, b, r, s, c, d, v)
		ORDER BY a
		ON CONFLICT (agent_id) DO UPDATE SET boot_id = excluded.boot_id, role = excluded.role, last_contact = excluded.last_contact,
			closed = excluded.closed, doing = excluded.doing, boot_url = excluded.boot_url
			WHERE excluded.last_contact >= p.last_contact`,
		ids, boots, roles, ago, closed, doing, servers)
}

// array is a list of ids as PostgreSQL writes arrays: unnest can't take lists of unlike lengths. Ids need no quotes.
func array(ids []string) string {
	text := "{"
	for i, id := range ids {
		if i > 0 {
			text += ","
		}
		text += id
	}
	return text + "}"
}

func queueProgress(batch *pgx.Batch, progress []agents.Progress) {
	var ids, by, messages []string
	var percents []float64
	for _, p := range progress {
		ids, by = append(ids, p.Command), append(by, p.Agent.String())
		messages, percents = append(messages, p.Message), append(percents, p.Percent)
	}
	batch.Queue(`INSERT INTO agent_progress (command_id, agent_id, percent, message, at)
		SELECT c, a, p, m, now() FROM unnest($1::text[], $2::text[], $3::float8[], $4::text[]) AS u (c, a, p, m) ORDER BY c
		ON CONFLICT (command_id) DO UPDATE SET agent_id = excluded.agent_id, percent = excluded.percent,
			message = excluded.message, at = excluded.at`,
		ids, by, percents, messages)
}

// Sweep forgets progress that nothing was added to for a while: of agent commands that are over.
func (p *Presence) Sweep(ctx context.Context, after time.Duration) error {
	_, err := p.pool.Exec(ctx, `DELETE FROM agent_progress WHERE at < now() - make_interval(secs => $1)`, after.Seconds())
	return Fault(err)
}
