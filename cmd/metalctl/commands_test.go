package main

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/better-compute/metal/domain/fault"
)

func testApp() (*app, *bytes.Buffer, *bytes.Buffer) {
	var out, err bytes.Buffer
	a := &app{}
	a.to(&out, &err)
	return a, &out, &err
}

func everyCommand(c *cobra.Command, visit func(*cobra.Command)) {
	visit(c)
	for _, sub := range c.Commands() {
		if sub.Name() != "completion" && sub.Name() != "help" { // cobra's own
			everyCommand(sub, visit)
		}
	}
}

func TestEveryCommandIsDocumented(t *testing.T) {
	a, _, _ := testApp()
	everyCommand(newRoot(a), func(c *cobra.Command) {
		if c.Short == "" || strings.HasSuffix(c.Short, ".") {
			t.Errorf("%s: Short is %q", c.CommandPath(), c.Short)
		}
		if !strings.Contains(c.Long, "EXIT STATUS\n  0    done\n") || strings.HasPrefix(c.Long, "\n") {
			t.Errorf("%s: Long has no description or no EXIT STATUS:\n%s", c.CommandPath(), c.Long)
		}
		if !c.HasSubCommands() && !strings.HasPrefix(c.Example, "  ") {
			t.Errorf("%s has no example", c.CommandPath())
		}
		for _, line := range strings.Split(c.Long, "\n") {
			if len([]rune(line)) > 120 {
				t.Errorf("%s: a line of %d characters: %s", c.CommandPath(), len([]rune(line)), line)
			}
		}
	})
}

// An example that no longer parses misleads: each of them must get as far as asking the control plane.
func TestExamplesAreCommands(t *testing.T) {
	t.Setenv("METAL_URL", "")
	t.Setenv("METALCTL_CONTEXT", "")
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	a, _, _ := testApp()
	everyCommand(newRoot(a), func(c *cobra.Command) {
		if c.HasSubCommands() {
			return
		}
		for _, line := range strings.Split(c.Example, "\n") {
			line, _, _ = strings.Cut(line, " || ")
			line = strings.TrimSpace(line)
			words := strings.Fields(strings.Trim(strings.TrimPrefix(line, "(umask 077; "), ")"))
			if len(words) < 2 || words[0] != "metalctl" {
				t.Errorf("%s: the example %q does not begin with metalctl", c.CommandPath(), line)
				continue
			}
			words = slices.DeleteFunc(words[1:], func(w string) bool { // the rest of a quoted word
				return strings.HasSuffix(w, "'") && !strings.HasPrefix(w, "'")
			})
			if found, _, err := newRoot(a).Find(words); err != nil || found.CommandPath() != c.CommandPath() {
				t.Errorf("%s: the example %q is another command", c.CommandPath(), line)
			}
			if err := c.ParseFlags(words); err != nil {
				t.Errorf("%s: the example %q: %v", c.CommandPath(), line, err)
			}
		}
	})
}

func TestDestructiveVerbsSaySo(t *testing.T) {
	a, _, _ := testApp()
	root := newRoot(a)
	for _, name := range []string{"undeploy", "retire", "abandon", "manage", "inspect", "provide", "recover"} {
		c, _, err := root.Find([]string{name})
		if err != nil || c.Flags().Lookup("yes") == nil || !strings.Contains(c.Long, "DESTRUCTIVE: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// No flag takes a secret: other users of the machine read command lines.
func TestNoFlagTakesASecret(t *testing.T) {
	a, _, _ := testApp()
	everyCommand(newRoot(a), func(c *cobra.Command) {
		for _, name := range []string{"token", "password", "username", "credentials", "secret"} {
			if c.Flags().Lookup(name) != nil || c.PersistentFlags().Lookup(name) != nil {
				t.Errorf("%s has --%s", c.CommandPath(), name)
			}
		}
	})
}

func TestEveryErrorCodeHasOneExitCode(t *testing.T) {
	seen := map[fault.Code]exitCode{}
	for _, row := range exitTable {
		for _, code := range row.codes {
			if _, twice := seen[code]; twice {
				t.Errorf("%s stands twice", code)
			}
			seen[code] = row.code
		}
	}
	for _, info := range fault.Codes {
		if got, ok := seen[info.Code]; !ok || exitOf(info.Code) != got {
			t.Errorf("%s is not in the table", info.Code)
		}
	}
	if len(seen) != len(fault.Codes) {
		t.Errorf("the table has %d codes of %d", len(seen), len(fault.Codes))
	}
}

func TestErrorsForPeople(t *testing.T) {
	a, _, stderr := testApp()
	a.started = true
	err := fault.Invalid(fault.Issue{Path: "body.name", Message: "needed"}).WithRemedy("name it")
	if code := a.finish(context.Background(), err); code != int(exitUsage) {
		t.Errorf("exit %d", code)
	}
	want := "metalctl: INVALID_INPUT: the request is not valid\n  body.name: needed\nwhat to do: name it\n"
	if stderr.String() != want {
		t.Errorf("said %q", stderr.String())
	}
}

func TestAnInterruptIsNoError(t *testing.T) {
	a, _, stderr := testApp()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if code := a.finish(ctx, ctx.Err()); code != int(exitInterrupted) || stderr.String() != "metalctl: interrupted\n" {
		t.Errorf("exit %d, said %q", code, stderr.String())
	}
}
