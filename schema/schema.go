// Package schema holds the contracts of the system as data, embedded into every program: the tables of the database,
// the golden samples of all events, the documents generated from the code.
//
// Nothing here is code that runs. Files under sql are applied in the order of their numbers and never edited once
// released; the database only moves forward.
package schema

import "embed"

// FS is the folder of this package: sql/NNNN_name.sql.
//
//go:embed sql/*.sql
var FS embed.FS
