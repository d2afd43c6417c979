// Package label reads label expressions: key, !key, key=value and key!=value, joined by &&.
//
// A profile uses them to say for which machines a step or a configuration unit is meant.
package label

import (
	"fmt"
	"strings"
)

// The bounds of an expression.
const (
	maxExpression = 1024
	maxTerms      = 32
)

// MaxText bounds a key and a value, in bytes.
const MaxText = 63

// Expression is a parsed expression; all of its terms must hold. One without terms never holds.
type Expression struct{ terms []term }

type term struct {
	key, value string
	compares   bool // with value; else only the key's presence counts
	negated    bool
}

// Parse reads an expression. Blank text parses to nothing; anything else that is not an expression is an error that says
// which part is wrong.
func Parse(text string) (Expression, error) {
	var e Expression
	if len(text) > maxExpression {
		return e, fmt.Errorf("is longer than %d bytes", maxExpression)
	}
	if strings.TrimSpace(text) == "" {
		return e, nil
	}
	parts := strings.Split(text, "&&")
	if len(parts) > maxTerms {
		return e, fmt.Errorf("has more than %d terms", maxTerms)
	}
	for _, part := range parts {
		t, ok := parseTerm(strings.TrimSpace(part))
		if !ok {
			return Expression{}, fmt.Errorf("%q is none of key, !key, key=value, key!=value", strings.TrimSpace(part))
		}
		e.terms = append(e.terms, t)
	}
	return e, nil
}

func parseTerm(text string) (t term, ok bool) {
	if key, value, found := strings.Cut(text, "="); found {
		key, t.negated = strings.CutSuffix(key, "!")
		t.key, t.value, t.compares = strings.TrimSpace(key), strings.TrimSpace(value), true
	} else {
		text, t.negated = strings.CutPrefix(text, "!")
		t.key = strings.TrimSpace(text)
	}
	return t, t.key != "" && IsText(t.key) && IsText(t.value)
}

// IsText tells whether a key or a value is made of what it may be: letters, digits and -_./ so that no expression is
// ambiguous. The labels of machines are the same.
func IsText(s string) bool {
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./"
	return len(s) <= MaxText && strings.Trim(s, allowed) == ""
}

// Empty reports whether the text parsed to nothing.
func (e Expression) Empty() bool { return len(e.terms) == 0 }

// Holds decides for one machine's labels. A bare key holds where the label is present and not false.
func (e Expression) Holds(labels map[string]string) bool {
	for _, t := range e.terms {
		value, present := labels[t.key]
		holds := present && value != "false"
		if t.compares {
			holds = present && value == t.value
		}
		if holds == t.negated {
			return false
		}
	}
	return len(e.terms) > 0
}

// String writes the expression in one way.
func (e Expression) String() string {
	terms := make([]string, len(e.terms))
	for i, t := range e.terms {
		switch {
		case t.compares && t.negated:
			terms[i] = t.key + "!=" + t.value
		case t.compares:
			terms[i] = t.key + "=" + t.value
		case t.negated:
			terms[i] = "!" + t.key
		default:
			terms[i] = t.key
		}
	}
	return strings.Join(terms, " && ")
}

// Holds parses and decides. What is not an expression never holds.
func Holds(text string, labels map[string]string) bool {
	e, err := Parse(text)
	return err == nil && e.Holds(labels)
}
