package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/goccy/go-yaml"

	"github.com/better-compute/metal/adapters/httpapi/contract"
)

var forms = []string{"table", "wide", "json", "yaml", "name"}

// column is one column of a table of T.
type column[T any] struct {
	name  string
	of    func(T) string
	wide  bool                // only with -o wide, and when one thing is shown
	shade func(string) string // the colour of a value; nil: none
}

// kind is how things of type T are shown.
type kind[T any] struct {
	id      func(T) string // what -o name prints
	columns []column[T]
	more    func(T) []line // what a card says beside the columns; nil: nothing
}

// list prints several things.
func (k kind[T]) list(a *app, items []T) error {
	switch a.flag.output {
	case "json", "yaml":
		if items == nil {
			items = []T{}
		}
		return a.document(contract.List[T]{Items: items})
	case "name":
		return k.names(a, items)
	}
	return k.table(a, items, !a.flag.noHeaders)
}

// one prints a single thing: as a card of all that is known where people read it.
func (k kind[T]) one(a *app, item T) error {
	switch a.flag.output {
	case "json", "yaml":
		return a.document(item)
	case "name":
		return k.names(a, []T{item})
	}
	return k.card(a, item)
}

func (k kind[T]) names(a *app, items []T) error {
	for _, item := range items {
		if _, err := fmt.Fprintln(a.out, k.id(item)); err != nil {
			return err
		}
	}
	return nil
}

func (k kind[T]) table(a *app, items []T, header bool) error {
	w := tabwriter.NewWriter(a.out, 0, 8, 2, ' ', 0)
	row := func(cell func(column[T]) string) {
		var cells []string
		for _, c := range k.columns {
			if !c.wide || a.flag.output == "wide" {
				cells = append(cells, cell(c))
			}
		}
		_, _ = fmt.Fprintln(w, strings.TrimRight(strings.Join(cells, "\t"), "\t ")) // Flush tells
	}
	if header {
		row(func(c column[T]) string { return a.shaded(c.shade != nil, "", c.name) })
	}
	for _, item := range items {
		row(func(c column[T]) string {
			value := cell(c.of(item))
			return a.shaded(c.shade != nil, value, value, c.shade)
		})
	}
	return w.Flush()
}

func (k kind[T]) card(a *app, item T) error {
	w := tabwriter.NewWriter(a.out, 0, 8, 2, ' ', 0)
	for _, c := range k.columns {
		value := c.of(item)
		if value == "" {
			continue
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\n", c.name, a.shaded(c.shade != nil, value, value, c.shade)) // Flush tells
	}
	if k.more != nil {
		for _, l := range k.more(item) {
			if l.value != "" {
				_, _ = fmt.Fprintf(w, "%s\t%s\n", l.name, cell(l.value)) // Flush tells
			}
		}
	}
	return w.Flush()
}

// cell keeps a value on its line and in its column, and shows that there is none.
func cell(s string) string {
	if s == "" {
		return "-"
	}
	return strings.NewReplacer("\t", " ", "\n", " ", "\r", " ").Replace(s)
}

// document prints JSON or YAML. Both have the names and the order of the API's fields.
func (a *app) document(v any) error {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return err
	}
	if a.flag.output != "yaml" {
		_, err := io.WriteString(a.out, escapedJSON(text.String()))
		return err
	}
	converted, err := yaml.JSONToYAML(text.Bytes())
	if err != nil {
		return fmt.Errorf("write YAML: %w", err)
	}
	_, err = a.out.Write(converted)
	return err
}

// The colours; each escape has the same length, so that a table's columns stay straight.
const (
	plain  = "39"
	red    = "31"
	green  = "32"
	yellow = "33"
)

func (a *app) colored() bool {
	switch a.flag.color {
	case "always":
		return true
	case "never":
		return false
	}
	return a.outTerminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// shaded puts the colour of value around text; every cell of a column that has colours gets one.
func (a *app) shaded(on bool, value, text string, shade ...func(string) string) string {
	if !on || !a.colored() {
		return text
	}
	color := plain
	for _, s := range shade {
		color = s(value)
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}
