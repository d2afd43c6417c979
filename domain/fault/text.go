package fault

import "unicode/utf8"

const cutMark = " … [cut]"

// Bounded cuts a text that somebody else wrote to most bytes at a character, and marks that it did. Bytes that are not UTF-8
// become the replacement character.
func Bounded(text string, most int) string {
	text = string([]rune(text))
	if len(text) <= most {
		return text
	}
	end := most - len(cutMark)
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + cutMark
}
