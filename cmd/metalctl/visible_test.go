package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/domain/fault"
)

// hostile is what a controller, an agent or another tenant's operator may have said: a title for the window, eight-bit and
// seven-bit sequences, text that is turned around.
const hostile = "\x1b]0;owned\x07\x1b[8mhidden\u009b2Jgone\u202ednalsi\x7f"

// Nothing that is printed is obeyed by a terminal, whoever said it and whatever the form of output.
func TestATerminalObeysNobodyElse(t *testing.T) {
	event := contract.Event{
		Position: 7, Type: "node.error", Subject: "node/" + hostile, Principal: hostile, At: time.Now(),
		Data: json.RawMessage(`{"message":"` + "\u009b2J\x7f\u202e" + `"}`),
	}
	things := map[string]func(*app) error{
		"a list": func(a *app) error { return contextKind.list(a, []shownContext{{Name: hostile, URL: hostile}}) },
		"a card": func(a *app) error { return contextKind.one(a, shownContext{Name: hostile, URL: hostile}) },
		"a node": func(a *app) error { return nodeKind.one(a, contract.Node{Name: hostile, Power: hostile}) },
		"a line": func(a *app) error { return a.eventLine(event) },
		"an error": func(a *app) error {
			a.explainError(fault.Invalid(fault.Issue{Path: hostile, Message: hostile}))
			return nil
		},
	}
	for _, form := range forms {
		for _, color := range []string{"never", "always"} {
			for name, show := range things {
				a, out, err := testApp()
				a.flag.output, a.flag.color = form, color
				if err := show(a); err != nil {
					t.Fatalf("%s as %s: %v", name, form, err)
				}
				text := ownColors.ReplaceAllString(out.String()+err.String(), "")
				if at := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && obeyed(r) }); at >= 0 {
					t.Errorf("%s as %s, colours %s: %q", name, form, color, text[at:])
				}
			}
		}
	}
}

// A program that reads JSON gets what was said.
func TestJSONIsTheSameDocument(t *testing.T) {
	a, out, _ := testApp()
	a.flag.output = "json"
	said := shownContext{Name: hostile, URL: "https://ü.example\n"}
	if err := a.document(said); err != nil {
		t.Fatal(err)
	}
	var read shownContext
	if err := json.Unmarshal(out.Bytes(), &read); err != nil || read != said {
		t.Errorf("%+v, %v", read, err)
	}
}

// The program's own colours stay.
func TestOwnColors(t *testing.T) {
	a, out, _ := testApp()
	a.flag.color = "always"
	if err := nodeKind.list(a, []contract.Node{{ID: "node_x", Provision: "failed"}}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "\x1b["+red+"mfailed\x1b[0m") {
		t.Errorf("%q", out.String())
	}
}
