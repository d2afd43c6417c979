package main

import (
	"fmt"

	"github.com/better-compute/metal/domain/agent"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/image"
	"github.com/better-compute/metal/domain/jointoken"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/profile"
)

func agentSentence(e agent.Event) string {
	switch e := e.(type) {
	case agent.Joined:
		return fmt.Sprintf("an agent joined as %s, with join token %s", e.Role, e.JoinToken)
	case agent.Issued:
		return "the agent's certificate was renewed, until " + clock(e.Certificate.NotAfter)
	case agent.Used:
		return "the agent uses its renewed certificate"
	case agent.SessionOpened:
		return fmt.Sprintf("the %s agent is there, boot %s", e.Role, e.BootID)
	case agent.Revoked:
		return "the agent's certificates were taken away" + because(e.Reason)
	}
	return plainWords(e.EventType())
}

func joinTokenSentence(e jointoken.Event) string {
	switch e := e.(type) {
	case jointoken.Minted:
		s := fmt.Sprintf("join token %s for role %s was made, good until %s", e.Token, e.Role, clock(e.ExpiresAt))
		if e.MaxUses > 1 {
			s += fmt.Sprintf(", for %d agents", e.MaxUses)
		}
		return s
	case jointoken.Used:
		return "agent " + e.Agent.String() + " joined with the token"
	case jointoken.Revoked:
		return "the join token was ended" + because(e.Reason)
	}
	return plainWords(e.EventType())
}

func imageSentence(e event.Event) string {
	switch e := e.(type) {
	case image.Registered:
		return fmt.Sprintf("image %s was registered, signed by %s", e.Ref(), e.Signer)
	case image.Withdrawn:
		return "the image was withdrawn" + because(e.Reason)
	case image.Published:
		return fmt.Sprintf("every tenant finds image %s", image.Ref{Name: e.Name, Version: e.Version})
	case image.Unpublished:
		return "the public name of image " + e.Image.String() + " is free again"
	}
	return plainWords(e.EventType())
}

func profileSentence(e profile.Event) string {
	switch e := e.(type) {
	case profile.Created:
		return "profile " + profile.Name(e.Document.ID, e.Document.Version) + " was stored"
	case profile.Replaced:
		return "profile " + profile.Name(e.Document.ID, e.Document.Version) + " was stored anew"
	case profile.Used:
		return "profile " + profile.Name(e.Profile, e.Version) + " is in use by " + e.Workflow.String() + ": it never changes from here"
	case profile.Published:
		return "every tenant finds profile " + profile.Name(e.Profile, e.Version)
	case profile.Withdrawn:
		return "profile " + profile.Name(e.Profile, e.Version) + " is its tenant's own again"
	}
	return plainWords(e.EventType())
}

// wipeSentence counts the disks that were emptied and read back.
func wipeSentence(w node.Wipe) string {
	proven := 0
	for _, d := range w.Disks {
		if d.ReadBack && d.Method != node.WipeNone {
			proven++
		}
	}
	s := fmt.Sprintf("a %s wipe of %d of %d disks was attested", w.Method, proven, len(w.Disks))
	if !w.Signed {
		s += ", without a signature that counts"
	}
	if !id.IsZero(w.AgentCommand) {
		s += ", by agent command " + w.AgentCommand.String()
	}
	return s
}
