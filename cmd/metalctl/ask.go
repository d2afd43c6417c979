package main

import (
	"bufio"
	"fmt"
	"strings"

	"golang.org/x/term"
)

// secret asks for a value without showing it; without a terminal it takes the first line of standard input.
func (a *app) secret(prompt string) (string, error) {
	if !a.inTerminal {
		return a.firstLine()
	}
	_, _ = fmt.Fprint(a.err, prompt) // a prompt that cannot be seen is no reason to stop
	value, err := term.ReadPassword(int(a.in.Fd()))
	_, _ = fmt.Fprintln(a.err)
	if err != nil {
		return "", usage("the terminal could not be read: %s", err)
	}
	return string(value), nil
}

// line asks for a value on the terminal.
func (a *app) line(prompt string) (string, error) {
	_, _ = fmt.Fprint(a.err, prompt) // a prompt that cannot be seen is no reason to stop
	text, err := bufio.NewReader(a.in).ReadString('\n')
	if err != nil {
		return "", usage("the terminal could not be read: %s", err)
	}
	return strings.TrimRight(text, "\r\n"), nil
}

// confirm asks before something that cannot be undone. Without a terminal nobody can be asked: then --yes is needed.
func (a *app) confirm(what string, yes bool) error {
	if yes {
		return nil
	}
	if !a.inTerminal {
		return usage("%s: --yes is needed where nobody can be asked", what)
	}
	answer, err := a.line(what + ". Go on? [y/N] ")
	if err != nil {
		return err
	}
	if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
		return usage("nothing was done")
	}
	return nil
}
