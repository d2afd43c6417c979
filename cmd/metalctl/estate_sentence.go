package main

import (
	"github.com/better-compute/metal/domain/claim"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/pool"
	"github.com/better-compute/metal/domain/site"
	"github.com/better-compute/metal/domain/tenant"
)

func estateSentence(e event.Event) string {
	switch e := e.(type) {
	case tenant.Created:
		return "tenant " + e.Name + " was made"
	case site.Created:
		return "site " + e.Name + " was made"
	case pool.Created:
		return "pool " + e.Name + " was made"
	case tenant.PolicyChanged, site.PolicyChanged, pool.PolicyChanged:
		return "its policy was changed"
	case claim.Claimed:
		return e.Key.String() + " belongs to " + e.Holder.String()
	case claim.Released:
		return e.Key.String() + " belongs to nobody any more" + because(e.Reason)
	}
	return plainWords(e.EventType())
}
