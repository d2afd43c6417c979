package httpapi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"reflect"

	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/domain/agent"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/projections/agents"
	"github.com/better-compute/metal/projections/metalview"
)

func (a *API) getAttestation(ctx context.Context, in *one) (*answer, error) {
	n, err := pathID[id.Node](in.ID)
	if err != nil {
		return nil, err
	}
	if err := a.await(ctx, metalview.Name, in.Fresh); err != nil {
		return nil, err
	}
	if _, err := a.nodeRow(ctx, n); err != nil {
		return nil, err
	}
	wiped, err := a.newestWipe(ctx, n)
	if err != nil {
		return nil, err
	}
	out, err := a.attestation(ctx, wiped)
	if err != nil {
		return nil, err
	}
	body, err := encode(out)
	return &answer{Position: wiped.head.String(), Body: body}, err
}

// wipeRecord is a wipe as the log has it.
type wipeRecord struct {
	node.Wipe
	event event.Recorded
	now   node.State     // of the machine
	head  event.Position // of the machine's newest event
}

// newestWipe finds it in the machine's stream. Errors: NOT_FOUND.
func (a *API) newestWipe(ctx context.Context, n id.Node) (wipeRecord, error) {
	var found wipeRecord
	stream, err := a.store.Read(ctx, node.StreamOf(n), 0)
	if err != nil {
		return found, logFault(err)
	}
	for _, e := range stream {
		known, ok := e.Event.(node.Event)
		if !ok {
			continue
		}
		found.now, found.head = node.Evolve(found.now, known), e.Position
		if attested, ok := known.(node.WipeAttested); ok {
			found.Wipe, found.event = attested.Wipe, e
		}
	}
	if found.event.Event == nil {
		return found, fault.New(fault.NotFound, "no wipe of node %s was ever attested", n).
			WithRemedy("commission or release it: both wipe, and the machine's own agent signs the result")
	}
	return found, nil
}

// attestation gathers all that is needed to check a wipe, and checks it.
func (a *API) attestation(ctx context.Context, w wipeRecord) (contract.Attestation, error) {
	out := contract.Attestation{
		Node: w.now.ID.String(), Method: string(w.Method), Disks: []contract.AttestedDisk{}, RecordedAt: w.event.Meta.At.UTC(),
		Position: uint64(w.event.Position), Workflow: w.Workflow.String(), AgentCommand: w.AgentCommand.String(), BootID: w.BootID,
		Certificate: w.Certificate,
	}
	out.Stands = w.now.Wipe != nil && w.now.Wipe.AgentCommand == w.AgentCommand
	out.Complete = out.Stands && w.now.WipeVerified()
	for _, d := range w.Disks {
		out.Disks = append(out.Disks, contract.AttestedDisk{
			Path: d.Disk.Path, WWN: d.Disk.WWN, Model: d.Disk.Model, Serial: d.Disk.Serial, Bytes: d.Disk.Bytes,
			Method: string(d.Method), By: d.By, ReadBack: d.ReadBack, Reason: d.Reason,
		})
	}
	order, _, err := a.service.AgentCommand(ctx, w.AgentCommand)
	if err != nil {
		return out, logFault(err)
	}
	certificates, err := agents.Certificates(ctx, a.db, order.Agent)
	if err != nil {
		return out, readFault(err)
	}
	out.Agent = order.Agent.String()
	if with, known := agent.Find(certificates, w.Certificate); known {
		out.PublicKey, out.NotBefore, out.NotAfter = with.PublicKey, moment(with.NotBefore), moment(with.NotAfter)
	}
	signedParts(&out, order, w)
	out.Problem = a.disproof(order, w, certificates)
	out.Verified = out.Problem == ""
	return out, nil
}

// signedParts rebuilds what was signed.
func signedParts(out *contract.Attestation, order agentcommand.State, w wipeRecord) {
	result := sha256.Sum256(order.Result)
	out.ResultDigest = hex.EncodeToString(result[:])
	if order.Attestation == nil {
		return
	}
	out.SignedAt, out.Signature = order.Attestation.At.UTC(), order.Attestation.Signature
	out.Signed = agentcommand.SigningInput(order.AgentCommand, order.Kind, order.Node, order.Attempt, w.BootID, order.Payload,
		order.Result, order.Attestation.At)
	signed := sha256.Sum256(out.Signed)
	out.SignedDigest = hex.EncodeToString(signed[:])
}

// disproof says why a wipe is not proven; empty where it is.
func (a *API) disproof(order agentcommand.State, w wipeRecord, certificates []agent.Certificate) string {
	var result struct {
		Disks []node.WipedDisk `json:"disks"`
	}
	switch {
	case order.Node != w.now.ID:
		return "the agent command was for another machine"
	case order.Attestation != nil && order.Attestation.Certificate != w.Certificate:
		return "the result was signed with another certificate"
	case json.Unmarshal(order.Result, &result) != nil || !reflect.DeepEqual(result.Disks, w.Disks):
		return "the disks on record are not those of the signed result"
	}
	err := a.service.VerifyResult(order, w.BootID, certificates)
	var f *fault.Error
	switch {
	case err == nil:
		return ""
	case errors.As(err, &f) && len(f.Issues) > 0:
		return f.Issues[0].Message
	}
	return "the signature was not accepted"
}
