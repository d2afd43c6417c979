package postgres

// MigrateFiles is Migrate with other files than the embedded ones.
var MigrateFiles = migrate
