package projections

import (
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/better-compute/metal/domain/fault"
)

// MaxPage is the most items of one page, and how many a page has where the caller does not say.
const MaxPage = 100

// Page asks for one page of a list, newest first. Cursor is what the page before gave as its next; empty: from the
// start.
type Page struct {
	Limit  int // 1 to MaxPage; 0 is MaxPage
	Cursor string
}

// cursorForm begins every cursor and changes with what it holds.
const cursorForm = "1"

// Size is the number of items to give, or INVALID_INPUT at query.limit.
func (p Page) Size() (int, error) {
	switch {
	case p.Limit == 0:
		return MaxPage, nil
	case p.Limit < 0 || p.Limit > MaxPage:
		return 0, fault.Invalid(fault.Issue{Path: "query.limit", Message: fmt.Sprintf("from 1 to %d", MaxPage)})
	}
	return p.Limit, nil
}

// Cursor makes the opaque cursor of a list after the item with this key. Items that appear later do not move it.
func Cursor(list, key string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(cursorForm + ":" + list + ":" + key))
}

// After is the key in the page's cursor, which must be of this list and valid by the given check; empty for the first
// page. Anything else is INVALID_INPUT at query.cursor.
func (p Page) After(list string, valid func(key string) bool) (string, error) {
	if p.Cursor == "" {
		return "", nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(p.Cursor)
	key, ok := strings.CutPrefix(string(raw), cursorForm+":"+list+":")
	if err != nil || !ok || !valid(key) {
		return "", fault.Invalid(fault.Issue{
			Path: "query.cursor", Message: "the next of an earlier page of the same list, unchanged",
		})
	}
	return key, nil
}
