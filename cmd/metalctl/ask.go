package main

import (
	"bufio"
	"context"
	"fmt"
	"strings"

	"golang.org/x/term"
)

// secret asks for a value without showing it; without a terminal it takes the first line of standard input.
func (a *app) secret(ctx context.Context, prompt string) (string, error) {
	if !a.inTerminal {
		return a.firstLine()
	}
	_, _ = fmt.Fprint(a.err, prompt) // a prompt that cannot be seen is no reason to stop
	fd := int(a.in.Fd())
	before, err := term.GetState(fd)
	if err != nil {
		return "", usage("the terminal could not be read: %s", err)
	}
	value, err := answer(ctx, func() (string, error) {
		value, err := term.ReadPassword(fd)
		return string(value), err
	})
	if ctx.Err() != nil {
		_ = term.Restore(fd, before) // the read that hides what is typed goes on
	}
	_, _ = fmt.Fprintln(a.err)
	return value, err
}

// line asks for a value on the terminal.
func (a *app) line(ctx context.Context, prompt string) (string, error) {
	_, _ = fmt.Fprint(a.err, prompt) // a prompt that cannot be seen is no reason to stop
	return answer(ctx, func() (string, error) {
		text, err := bufio.NewReader(a.in).ReadString('\n')
		return strings.TrimRight(text, "\r\n"), err
	})
}

// answer waits for what a person types, or for an interrupt: a read of a terminal knows no context.
func answer(ctx context.Context, read func() (string, error)) (string, error) {
	type typed struct {
		text string
		err  error
	}
	done := make(chan typed, 1)
	go func() {
		text, err := read()
		done <- typed{text, err}
	}()
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case t := <-done:
		if t.err != nil {
			return "", usage("the terminal could not be read: %s", t.err)
		}
		return t.text, nil
	}
}

// confirm asks before something that cannot be undone. Without a terminal nobody can be asked: then --yes is needed.
func (a *app) confirm(ctx context.Context, what string, yes bool) error {
	if yes {
		return nil
	}
	if !a.inTerminal {
		return usage("%s: --yes is needed where nobody can be asked", what)
	}
	answer, err := a.line(ctx, what+". Go on? [y/N] ")
	if err != nil {
		return err
	}
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
		return usage("nothing was done")
	}
	return nil
}
