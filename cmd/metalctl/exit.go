package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/better-compute/metal/adapters/httpapi/client"
	"github.com/better-compute/metal/domain/fault"
)

// exitCode is what a script learns from a command. exitTable says what each means.
type exitCode int

const (
	exitOK          exitCode = 0
	exitRefused     exitCode = 1
	exitUsage       exitCode = 2
	exitNotFound    exitCode = 3
	exitState       exitCode = 4
	exitDenied      exitCode = 5
	exitUnavailable exitCode = 6
	exitUnwell      exitCode = 7
	exitInterrupted exitCode = 130
)

// exitTable is the closed list, with the error codes that lead to each.
var exitTable = []struct {
	code  exitCode
	means string
	codes []fault.Code
}{
	{exitOK, "done", nil},
	{exitRefused, "it failed in another way", []fault.Code{fault.DriverError, fault.Internal}},
	{exitUsage, "bad usage or bad input", []fault.Code{fault.InvalidInput, fault.InvalidConfig}},
	{exitNotFound, "no such thing, or not for this credential", []fault.Code{fault.NotFound}},
	{
		exitState, "not in this state, or lost a race",
		[]fault.Code{fault.InvalidState, fault.Conflict, fault.UnverifiedWipe},
	},
	{exitDenied, "no valid credential, or not allowed", []fault.Code{fault.Unauthenticated, fault.Forbidden}},
	{
		exitUnavailable, "not now: out of reach, behind, or too many requests",
		[]fault.Code{fault.Unavailable, fault.RateLimited, fault.Timeout, fault.RejoinTimeout},
	},
	{exitUnwell, "it was looked at and is not well: findings, a broken audit, a watched machine that failed", nil},
	{exitInterrupted, "interrupted", nil},
}

// The exits of a command that asks the control plane, and of one that does not.
var (
	remoteExits = []exitCode{
		exitOK, exitRefused, exitUsage, exitNotFound, exitState, exitDenied, exitUnavailable, exitInterrupted,
	}
	localExits = []exitCode{exitOK, exitRefused, exitUsage}
	watchExits = append(slices.Clone(remoteExits), exitUnwell)
)

// withExits puts the section EXIT STATUS under a command's description.
func withExits(long string, exits []exitCode) string {
	var s strings.Builder
	s.WriteString(wrapped(long) + "\n\nEXIT STATUS\n")
	for _, row := range exitTable {
		if !slices.Contains(exits, row.code) {
			continue
		}
		_, _ = fmt.Fprintf(&s, "  %-3d  %s", row.code, row.means) // a Builder never fails
		for i, c := range row.codes {
			s.WriteString([]string{" (", ", "}[min(i, 1)] + string(c))
		}
		if len(row.codes) > 0 {
			s.WriteString(")")
		}
		s.WriteString("\n")
	}
	return strings.TrimRight(s.String(), "\n")
}

// helpWidth is that of a plain terminal.
const helpWidth = 80

// wrapped lays out the paragraphs of a text.
func wrapped(text string) string {
	var lines []string
	for _, paragraph := range strings.Split(strings.TrimSpace(text), "\n\n") {
		line := ""
		for _, word := range strings.Fields(paragraph) {
			if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > helpWidth {
				lines, line = append(lines, line), ""
			}
			line = strings.TrimSpace(line + " " + word)
		}
		lines = append(lines, line, "")
	}
	return strings.TrimSpace(strings.Join(lines, "\n"))
}

func exitOf(code fault.Code) exitCode {
	for _, row := range exitTable {
		if slices.Contains(row.codes, code) {
			return row.code
		}
	}
	return exitRefused
}

// usageError is a command line that cannot be right.
type usageError struct{ message string }

func (e *usageError) Error() string { return e.message }

func usage(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

// unwell ends a command that worked and found something bad, which it has said already.
var errUnwell = errors.New("not well")

// finish tells people why a command failed, and gives the exit code.
func (a *app) finish(ctx context.Context, err error) int {
	var bad *usageError
	switch {
	case err == nil:
		return int(exitOK)
	case errors.Is(err, errUnwell):
		return int(exitUnwell)
	case ctx.Err() != nil:
		a.say("metalctl: interrupted")
		return int(exitInterrupted)
	case errors.As(err, &bad):
		a.say("metalctl: %s", bad.message)
		return int(exitUsage)
	case !a.started: // what the command line's parser refuses
		a.say("metalctl: %s\nsee `metalctl --help`", err)
		return int(exitUsage)
	}
	var said *told
	if !errors.As(err, &said) {
		a.explainError(err)
	}
	return int(exitOf(fault.CodeOf(err)))
}

// explainError prints the code, what happened, every issue at its path, what to do, and how to find the request.
func (a *app) explainError(err error) {
	var f *fault.Error
	if !errors.As(err, &f) {
		a.say("metalctl: %s", err)
		return
	}
	a.say("metalctl: %s: %s", f.Code, f.Message)
	for _, i := range f.Issues {
		a.say("  %s: %s", i.Path, i.Message)
	}
	if remedy := a.remedy(f); remedy != "" {
		a.say("what to do: %s", remedy)
	}
	var p *client.Problem
	if errors.As(err, &p) && p.RequestID != "" {
		a.say("request: %s", p.RequestID)
	}
}

// remedy is the control plane's, but where this program knows better what is missing.
func (a *app) remedy(f *fault.Error) string {
	if f.Code == fault.Unauthenticated && a.tokenless {
		return "give a token: --token-file or METAL_TOKEN_FILE names a file that holds it, METAL_TOKEN is the token itself, " +
			"and `metalctl context add` remembers it"
	}
	return f.Remedy
}

// flagError makes a bad flag a usage error that says where help is.
func flagError(cmd *cobra.Command, err error) error {
	return usage("%s\nsee `%s --help`", err, cmd.CommandPath())
}
