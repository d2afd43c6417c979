package postgres

// MigrateFiles and MigratedFiles are Migrate and Migrated with other files than the embedded ones.
var (
	MigrateFiles  = migrate
	MigratedFiles = migrated
)
