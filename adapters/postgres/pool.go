// Package postgres is what every adapter on PostgreSQL shares (the pool, the migrations, notifications between processes),
// and the tables that are no read models: wake-ups, sealed secrets, outcomes of keyed requests, signs of life. The server is
// version 15 or newer.
package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/better-compute/metal/domain/fault"
)

// Options tune a pool; the zero value is right for a control plane on one machine.
type Options struct {
	// MaxConns bounds the connections of the pool, 1 or more. Zero: 16, or pool_max_conns of the connection string if
	// that is larger.
	MaxConns int32
	// Name is shown by pg_stat_activity. Empty: metal.
	Name string
}

const (
	defaultMaxConns = 16
	connectTimeout  = 5 * time.Second
)

// Open makes a pool and proves that the server answers. dsn is a URL or key=value words, as libpq has them, completed
// by the PG* environment variables. Errors: INVALID_CONFIG for a malformed dsn, a login that the server refuses and a
// database that does not exist; UNAVAILABLE where no server answers.
func Open(ctx context.Context, dsn string, o Options) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		// The parser's own message may quote the string with its password.
		return nil, fault.New(fault.InvalidConfig, "the PostgreSQL connection string cannot be read").
			WithRemedy("write it as postgres://user@host:5432/database or host=… user=… dbname=…")
	}
	config.MaxConns = max(config.MaxConns, defaultMaxConns)
	if o.MaxConns > 0 {
		config.MaxConns = o.MaxConns
	}
	config.MaxConnIdleTime = 5 * time.Minute
	config.MaxConnLifetime = time.Hour
	config.MaxConnLifetimeJitter = 10 * time.Minute
	config.HealthCheckPeriod = 30 * time.Second
	if config.ConnConfig.ConnectTimeout == 0 || config.ConnConfig.ConnectTimeout > connectTimeout {
		config.ConnConfig.ConnectTimeout = connectTimeout
	}
	parameters := config.ConnConfig.RuntimeParams
	if parameters["application_name"] = o.Name; o.Name == "" {
		parameters["application_name"] = "metal"
	}
	// Read models are filled and queried while small and while large: a plan is made for the values at hand.
	parameters["plan_cache_mode"] = "auto"

	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, openFault(ctx, err, config.ConnConfig)
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, openFault(ctx, err, config.ConnConfig)
	}
	return pool, nil
}
