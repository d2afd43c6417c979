package cache

import (
	"net/url"
	"path"
	"strings"

	"github.com/better-compute/metal/domain/fault"
)

// source is where images may come from: a URL that theirs begin with.
type source struct {
	scheme, host, path string // path ends with a slash
}

func parseSources(texts []string) ([]source, error) {
	out := make([]source, 0, len(texts))
	for _, text := range texts {
		u, err := parseURL(text)
		if err != nil {
			return nil, fault.New(fault.InvalidConfig, "%q is not a URL that images come from: %v", text, err).
				WithRemedy("name it such as https://images.example/debian/")
		}
		out = append(out, source{u.Scheme, u.Host, strings.TrimSuffix(u.Path, "/") + "/"})
	}
	return out, nil
}

// CheckSource tells what is wrong with a URL as one that images' URLs begin with.
func CheckSource(text string) error {
	_, err := parseSources([]string{text})
	return err
}

// parseURL takes a URL that has nothing to hide and no second spelling: credentials and queries are refused, because the
// machine's request to the cache travels in the clear.
func parseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	bad := func(why string) (*url.URL, error) {
		return nil, fault.Invalid(fault.Issue{Path: "from", Message: why})
	}
	switch {
	case err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https"):
		return bad("is not an http URL")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.ForceQuery:
		return bad("has credentials or a query: fetch such an image from its store")
	case u.Path != "" && strings.TrimSuffix(u.Path, "/") != strings.TrimSuffix(path.Clean(u.Path), "/"):
		return bad("has a path that is not in its shortest form")
	case strings.Contains(strings.ToLower(u.EscapedPath()), "%2f"):
		return bad("has a slash that is written as %2F")
	}
	return u, nil
}

// allowed tells whether a source is one of the operator's.
func (c *Cache) allowed(text string) error {
	u, err := parseURL(text)
	if err != nil {
		return err
	}
	for _, s := range c.from {
		if u.Scheme == s.scheme && u.Host == s.host && strings.HasPrefix(u.Path, s.path) {
			return nil
		}
	}
	return fault.New(fault.Forbidden, "images are not fetched from %s here", u.Host).
		WithRemedy("name its URL with --cache-from where the site agent is started")
}
