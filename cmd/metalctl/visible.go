package main

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode"
)

// visible writes what a terminal shows, and nothing that it obeys: what machines, their controllers and other people have said is
// among what is printed, and an escape sequence in it could hide lines, retitle the window or type for whoever reads it.
type visible struct {
	to      io.Writer
	colored func() bool
}

// Write writes p with U+FFFD for each character that is none to see.
func (v visible) Write(p []byte) (int, error) {
	if _, err := io.WriteString(v.to, shown(string(p), v.colored())); err != nil {
		return 0, err
	}
	return len(p), nil
}

// ownColors are the sequences that shaded writes.
var ownColors = regexp.MustCompile(`\x1b\[(?:` + strings.Join([]string{plain, red, green, yellow, "0"}, "|") + `)m`)

func shown(text string, colored bool) string {
	if !colored {
		return strings.Map(harmless, text)
	}
	var out strings.Builder
	from := 0
	for _, at := range ownColors.FindAllStringIndex(text, -1) {
		out.WriteString(strings.Map(harmless, text[from:at[0]]))
		out.WriteString(text[at[0]:at[1]])
		from = at[1]
	}
	out.WriteString(strings.Map(harmless, text[from:]))
	return out.String()
}

// harmless lets lines and columns through. What turns the direction of text around shows other words than there are.
func harmless(r rune) rune {
	if r == '\n' || r == '\t' {
		return r
	}
	if obeyed(r) {
		return unicode.ReplacementChar
	}
	return r
}

func obeyed(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) }

// escapedJSON writes as escapes what JSON lets stand and a terminal obeys: to a program it is the same document.
func escapedJSON(text string) string {
	if !strings.ContainsFunc(text, func(r rune) bool { return r > unicode.MaxASCII && obeyed(r) || r == 0x7f }) {
		return text
	}
	var out strings.Builder
	for _, r := range text {
		if r != '\n' && obeyed(r) { // all of them are of one unit of UTF-16
			_, _ = fmt.Fprintf(&out, `\u%04x`, r) // a Builder never fails
			continue
		}
		out.WriteRune(r)
	}
	return out.String()
}
