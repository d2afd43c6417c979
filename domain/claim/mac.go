package claim

import (
	"encoding/hex"
	"errors"
	"strings"
)

// MAC normalises a 48-bit MAC address (EUI-48) to lower-case hexadecimal with colons. It accepts colons, hyphens, the
// dotted form of three groups and twelve bare digits, in either case. An address that no network port can own (all zeros,
// broadcast, multicast) is refused.
func MAC(s string) (string, error) {
	digits, ok := macDigits(strings.ToLower(strings.TrimSpace(s)))
	if !ok {
		return "", errors.New("not a MAC address; write it as b8:ce:f6:00:00:01")
	}
	raw, err := hex.DecodeString(digits)
	switch {
	case err != nil:
		return "", errors.New("not a MAC address; write it as b8:ce:f6:00:00:01")
	case raw[0]&1 == 1:
		return "", errors.New("a broadcast or multicast MAC address belongs to no network port")
	case digits == "000000000000":
		return "", errors.New("the zero MAC address belongs to no network port")
	}
	parts := make([]string, len(raw))
	for i := range raw {
		parts[i] = digits[2*i : 2*i+2]
	}
	return strings.Join(parts, ":"), nil
}

// macDigits strips one consistent kind of separator.
func macDigits(s string) (string, bool) {
	for _, form := range []struct {
		separator string
		groups    int
	}{{":", 6}, {"-", 6}, {".", 3}} {
		if !strings.Contains(s, form.separator) {
			continue
		}
		parts := strings.Split(s, form.separator)
		if len(parts) != form.groups {
			return "", false
		}
		for _, p := range parts {
			if len(p) != 12/form.groups {
				return "", false
			}
		}
		return strings.Join(parts, ""), true
	}
	return s, len(s) == 12
}
