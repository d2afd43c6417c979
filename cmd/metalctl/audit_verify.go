package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/google/uuid"

	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/domain/event"
)

// verifier takes every hash of a log again. It trusts nothing that the log says of itself but what the hashes are over.
type verifier struct {
	heads    map[string]tip
	events   uint64
	position uint64
	gaps     [][2]uint64 // positions that no event has, from and to
	broken   func(stream string, version uint64, reason string)
	bad      int
}

// tip is the end of a stream so far.
type tip struct {
	version uint64
	hash    event.Hash
}

func newVerifier(broken func(string, uint64, string)) *verifier {
	return &verifier{heads: map[string]tip{}, broken: broken}
}

func (v *verifier) difference(stream string, version uint64, format string, args ...any) {
	v.bad++
	v.broken(stream, version, fmt.Sprintf(format, args...))
}

// add checks one event against the end of its stream, and makes it the end.
func (v *verifier) add(e contract.AuditEvent) {
	id, err := uuid.Parse(e.ID)
	if err != nil {
		v.difference(e.Stream, e.Version, "its id is not a UUID")
	}
	hash := event.Wire{
		ID: id, Stream: event.Stream(e.Stream), Version: event.Version(e.Version), Type: e.Type, Schema: e.Schema,
		Data: e.Data, Meta: e.Meta,
	}.Hash()
	var link struct {
		Prev event.Hash `json:"prev"`
	}
	end := v.heads[e.Stream]
	switch err := json.Unmarshal(e.Meta, &link); {
	case err != nil:
		v.difference(e.Stream, e.Version, "its metadata cannot be read")
	case e.Position <= v.position:
		v.difference(e.Stream, e.Version, "position %d does not follow %d", e.Position, v.position)
	case e.Version != end.version+1:
		v.difference(e.Stream, end.version+1, "missing: the next event is version %d", e.Version)
	case link.Prev != end.hash:
		v.difference(e.Stream, e.Version, "its predecessor was changed or replaced")
	case e.Hash != hash.String():
		v.difference(e.Stream, e.Version, "its hash is %s, not %s", hash, e.Hash)
	}
	if e.Position > v.position+1 && len(v.gaps) < mostGaps {
		v.gaps = append(v.gaps, [2]uint64{v.position + 1, e.Position - 1})
	}
	v.heads[e.Stream] = tip{e.Version, hash}
	v.events++
	v.position = max(v.position, e.Position)
}

// mostGaps bounds what is remembered of missing positions: where the log is not dense, there is one before most events.
const mostGaps = 1000

// dense tells of every position that is missing from a log whose positions rise by one.
func (v *verifier) dense() {
	for _, gap := range v.gaps {
		if gap[0] == gap[1] {
			v.difference("the log", 0, "position %d is missing", gap[0])
		} else {
			v.difference("the log", 0, "positions %d to %d are missing", gap[0], gap[1])
		}
	}
}

// digest is one hash over the end of every stream, as the control plane takes it: SHA-256 over a line with the format's
// name and a line "stream version hash" for each stream, by name.
func (v *verifier) digest() string {
	d := sha256.New()
	_, _ = fmt.Fprintln(d, "metal-heads-1") // a hash never fails
	for _, stream := range slices.Sorted(maps.Keys(v.heads)) {
		end := v.heads[stream]
		_, _ = fmt.Fprintln(d, stream, end.version, end.hash)
	}
	return fmt.Sprintf("%x", d.Sum(nil))
}

// against compares the log so far with a head that covers exactly this much.
func (v *verifier) against(name string, head contract.AuditHead) {
	if got := v.digest(); got != head.Digest {
		v.difference(name, 0, "the digest at position %d is %s, not %s", head.Position, got, head.Digest)
	}
	if len(v.heads) != head.Streams {
		v.difference(name, 0, "there are %d streams at position %d, not %d", len(v.heads), head.Position, head.Streams)
	}
}

func (a *app) verifyLog(ctx context.Context, f verifyFlags) error {
	var kept *contract.AuditHead
	if f.expect != "" {
		head, err := readHead(f.expect)
		if err != nil {
			return err
		}
		if err := signedWell(head); err != nil {
			return usage("%s: %s", f.expect, err)
		}
		kept = &head
	}
	v := newVerifier(a.difference)
	var signed *contract.AuditHead
	var err error
	if f.log != "" {
		signed, err = v.export(f.log, kept)
	} else {
		signed, err = a.verifyLive(ctx, v, kept)
	}
	if err != nil {
		return err
	}
	if kept != nil && signed != nil && !bytes.Equal(kept.PublicKey, signed.PublicKey) {
		v.difference("the signed head", 0, "key %s signed it, and key %s signed the kept head", signed.KeyID, kept.KeyID)
	}
	return a.verified(v)
}

// run goes through the log and compares it with each head where the head ends.
func (v *verifier) run(log iter.Seq2[contract.AuditEvent, error], heads map[string]*contract.AuditHead) error {
	compare := func(before uint64) {
		for _, name := range slices.Sorted(maps.Keys(heads)) {
			if head := heads[name]; head != nil && head.Position < before {
				v.against(name, *head)
				delete(heads, name)
			}
		}
	}
	for e, err := range log {
		if err != nil {
			return err
		}
		compare(e.Position)
		v.add(e)
	}
	for name, head := range heads {
		if head != nil && head.Position > v.position {
			v.difference(name, 0, "it reaches position %d; the log ends at %d", head.Position, v.position)
			delete(heads, name)
		}
	}
	compare(v.position + 1)
	return nil
}

func (a *app) verified(v *verifier) error {
	result := struct {
		Streams     int    `json:"streams"`
		Events      uint64 `json:"events"`
		Position    uint64 `json:"position"`
		Digest      string `json:"digest"`
		Differences int    `json:"differences"`
	}{len(v.heads), v.events, v.position, v.digest(), v.bad}
	var err error
	switch a.flag.output {
	case "json", "yaml":
		err = a.document(result)
	default:
		_, err = fmt.Fprintf(a.out, "streams   %d\nevents    %d\nposition  %d\ndigest    %s\n",
			result.Streams, result.Events, result.Position, result.Digest)
	}
	switch {
	case err != nil:
		return err
	case v.bad > 0:
		a.say("the log is NOT what it was: %d differences", v.bad)
		return errUnwell
	}
	a.say("every hash and every chain holds")
	return nil
}
