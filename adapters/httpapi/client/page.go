package client

import (
	"context"
	"iter"
	"maps"
	"net/url"

	"github.com/better-compute/metal/adapters/httpapi/contract"
)

// pages goes through a list, asking for the next page only when it is needed. It ends after the first error.
func pages[T any](ctx context.Context, c *Client, op operation, parameters []string, query url.Values, options []Option,
) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		q := maps.Clone(query)
		if q == nil {
			q = url.Values{}
		}
		for {
			page, err := call[contract.List[T]](ctx, c, op, parameters, q, nil, options)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, item := range page.Items {
				if !yield(item, nil) {
					return
				}
			}
			if page.Next == "" {
				return
			}
			q.Set("cursor", page.Next)
		}
	}
}

// Collect takes everything of a list, at most limit items (zero: all), up to the first error.
func Collect[T any](items iter.Seq2[T, error], limit int) ([]T, error) {
	var all []T
	for item, err := range items {
		if err != nil {
			return all, err
		}
		all = append(all, item)
		if limit > 0 && len(all) == limit {
			break
		}
	}
	return all, nil
}
