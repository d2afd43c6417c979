package program

import (
	"log/slog"
	"os"

	"github.com/spf13/pflag"
)

// Log is how a program logs.
type Log struct{ level, format string }

// Bind makes the options of the log.
func (l *Log) Bind(flags *pflag.FlagSet) {
	flags.StringVar(&l.level, "log-level", "info", "what to log: debug, info, warn or error")
	flags.StringVar(&l.format, "log-format", "text", "how to log, to standard error: text or json")
}

// Check notes what is wrong with them.
func (l *Log) Check(w *Issues) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(l.level)); err != nil {
		w.Option("log-level", "one of debug, info, warn, error")
	}
	if l.format != "text" && l.format != "json" {
		w.Option("log-format", "one of text, json")
	}
}

// Logger is the logger that they ask for; what is wrong with them, Check tells.
func (l *Log) Logger() *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(l.level)); err != nil {
		level = slog.LevelInfo
	}
	options := &slog.HandlerOptions{Level: level}
	if l.format == "json" {
		return slog.New(slog.NewJSONHandler(os.Stderr, options))
	}
	return slog.New(slog.NewTextHandler(os.Stderr, options))
}
