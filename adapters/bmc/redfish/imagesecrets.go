package redfish

import (
	"net/url"
	"strings"
)

// shortest is the length from which on a value of a query is taken for a secret: shorter ones are words of any message.
const shortest = 8

// secretParts are what no message may repeat of an image's address, as it is written and as a controller reads it.
func secretParts(image string, u *url.URL) []string {
	parts := []string{u.RawQuery}
	if u.User != nil {
		_, rest, _ := strings.Cut(image, "://")
		authority, _, _ := strings.Cut(rest, "/")
		written := authority[:max(strings.LastIndexByte(authority, '@'), 0)]
		_, encoded, _ := strings.Cut(written, ":")
		password, _ := u.User.Password()
		parts = append(parts, u.User.String(), written, encoded, password)
	}
	for pair := range strings.SplitSeq(u.RawQuery, "&") {
		_, value, _ := strings.Cut(pair, "=")
		if len(value) < shortest {
			continue
		}
		parts = append(parts, value)
		if decoded, err := url.QueryUnescape(value); err == nil {
			parts = append(parts, decoded)
		}
	}
	return parts
}
