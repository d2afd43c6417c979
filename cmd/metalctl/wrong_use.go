package main

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"
)

// refuseUnknown makes every wrong use of a command a usage error that says what is wrong, and a command of commands refuse
// what it does not know.
func (a *app) refuseUnknown(c *cobra.Command) {
	for _, sub := range c.Commands() {
		a.refuseUnknown(sub)
	}
	if c.HasParent() && c.HasSubCommands() && c.RunE == nil {
		c.Args, c.RunE = cobra.ArbitraryArgs, commandNeeded
	}
	if check := c.Args; check != nil {
		c.Args = func(cmd *cobra.Command, given []string) error {
			if check(cmd, given) == nil {
				return nil
			}
			return wrongArguments(cmd, given)
		}
	}
	if run := c.RunE; run != nil {
		c.RunE = func(cmd *cobra.Command, given []string) error {
			a.started = true
			return run(cmd, given)
		}
	}
}

// commandNeeded is what a command of commands does by itself.
func commandNeeded(cmd *cobra.Command, given []string) error {
	if len(given) > 0 {
		return noCommand(cmd, given[0])
	}
	return errors.Join(cmd.Help(), usage("a command is needed: %s COMMAND", cmd.CommandPath()))
}

// mostEdits bounds how far a command is from what was typed to be suggested.
const mostEdits = 2

// noCommand tells of a command that is not there, and of those that may have been meant.
func noCommand(cmd *cobra.Command, typed string) error {
	cmd.SuggestionsMinimumDistance = mostEdits
	meant := ""
	for _, name := range cmd.SuggestionsFor(typed) {
		meant += "\nis it `" + cmd.CommandPath() + " " + name + "`?"
	}
	return usage("there is no command %q%s\nsee `%s --help`", cmd.CommandPath()+" "+typed, meant, cmd.CommandPath())
}

// wrongArguments says which arguments are missing, or that there are too many.
func wrongArguments(cmd *cobra.Command, given []string) error {
	if cmd.HasSubCommands() {
		return noCommand(cmd, given[0])
	}
	names := positionals(cmd.Use)
	if len(given) < len(names) {
		return usage("%s is missing: %s\nsee `%s --help`",
			strings.Join(names[len(given):], " and "), cmd.UseLine(), cmd.CommandPath())
	}
	return usage("there are too many arguments: %s\nsee `%s --help`", cmd.UseLine(), cmd.CommandPath())
}

// positionals are the names of the arguments that a command needs, as its line of usage begins: "unbind PRINCIPAL BINDING".
func positionals(use string) []string {
	var names []string
	for _, word := range strings.Fields(use)[1:] {
		if strings.HasPrefix(word, "-") || strings.HasPrefix(word, "[") {
			break
		}
		names = append(names, strings.TrimSuffix(word, "..."))
	}
	return names
}
