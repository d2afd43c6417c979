package main

import (
	"fmt"

	"github.com/better-compute/metal/domain/bootlease"
)

func bootLeaseSentence(e bootlease.Event) string {
	switch e := e.(type) {
	case bootlease.Taken:
		return fmt.Sprintf("agent %s serves the network boot of %s from here, in term %d", e.Agent, e.Site, e.Term)
	case bootlease.Completed:
		s := fmt.Sprintf("the agent that serves network boot has every boot entry of the site, %d of them set again", e.Entries)
		if e.Missing > 0 {
			s += fmt.Sprintf(", but for %d that could not be", e.Missing)
		}
		return s
	case bootlease.Released:
		return fmt.Sprintf("agent %s serves network boot no more", e.Agent) + because(e.Reason)
	}
	return plainWords(e.EventType())
}
