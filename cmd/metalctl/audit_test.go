package main

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/better-compute/metal/adapters/eventstore/memory"
	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/projections/history"
)

// log makes a real log of some events in a few streams.
func log(t *testing.T, count int) []contract.AuditEvent {
	t.Helper()
	registry, err := event.NewRegistry(node.Events)
	if err != nil {
		t.Fatal(err)
	}
	store := memory.New(registry)
	for i := range count {
		stream := event.StreamOf("node", fmt.Sprint(i%3))
		meta := event.Meta{At: time.Unix(int64(i), 0), Tenant: "t"}
		cordoned := node.Cordoned{Reason: fmt.Sprint(i)}
		if _, err := store.Append(t.Context(), stream, event.Version(i/3), meta, cordoned); err != nil {
			t.Fatal(err)
		}
	}
	stored, _, err := store.ReadAll(t.Context(), 0, nil, count)
	if err != nil {
		t.Fatal(err)
	}
	events := make([]contract.AuditEvent, len(stored))
	for i, e := range stored {
		events[i] = contract.AuditEvent{
			Position: uint64(e.Position), Stream: string(e.Stream), Version: uint64(e.Version), ID: e.ID.String(), Type: e.Type,
			Schema: e.Schema, Data: e.Data, Meta: e.RawMeta, Hash: e.Hash.String(),
		}
	}
	audit, err := history.VerifyAll(t.Context(), store, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	v := newVerifier(func(string, uint64, string) { t.Error("a whole log has a difference") })
	if err := v.run(each(events), nil); err != nil || v.digest() != audit.Digest.String() {
		t.Fatalf("%v; the digest is %s, the control plane's %s", err, v.digest(), audit.Digest)
	}
	return events
}

func each(events []contract.AuditEvent) iter.Seq2[contract.AuditEvent, error] {
	return func(yield func(contract.AuditEvent, error) bool) {
		for _, e := range events {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// head is what a control plane would sign of a log.
func head(events []contract.AuditEvent) contract.AuditHead {
	v := newVerifier(func(string, uint64, string) {})
	for _, e := range events {
		v.add(e)
	}
	return contract.AuditHead{Position: v.position, Streams: len(v.heads), Digest: v.digest()}
}

// Whatever is done to a log that was vouched for is found.
func TestEveryChangeIsFound(t *testing.T) {
	whole := log(t, 12)
	kept := head(whole)
	rapid.Check(t, func(t *rapid.T) {
		changed := slices.Clone(whole)
		i := rapid.IntRange(0, len(changed)-1).Draw(t, "event")
		e := &changed[i]
		changes := []string{"data", "meta", "type", "schema", "stream", "remove", "double", "swap", "rewrite"}
		switch rapid.SampledFrom(changes).Draw(t, "what") {
		case "data":
			e.Data = []byte(`{"reason":"another"}`)
		case "meta":
			e.Meta = []byte(strings.Replace(string(e.Meta), `"t"`, `"u"`, 1))
		case "type":
			e.Type = "node.cordon.cleared"
		case "schema":
			e.Schema++
		case "stream":
			e.Stream += "0"
		case "remove":
			changed = slices.Delete(changed, i, i+1)
		case "double":
			changed = slices.Insert(changed, i, *e)
		case "swap":
			j := (i + 1) % len(changed)
			changed[i].Data, changed[j].Data = changed[j].Data, changed[i].Data
		case "rewrite": // with the hash taken again, as an operator would
			e.Data = []byte(`{"reason":"another"}`)
			e.Hash = event.Wire{}.Hash().String()
		}
		v := newVerifier(func(string, uint64, string) {})
		if err := v.run(each(changed), map[string]*contract.AuditHead{"kept": &kept}); err != nil {
			t.Fatal(err)
		}
		if v.bad == 0 {
			t.Fatal("nothing was found")
		}
	})
}

func TestAHeadVouchesForThePast(t *testing.T) {
	whole := log(t, 12)
	for n := range whole {
		kept := head(whole[:n])
		v := newVerifier(func(where string, version uint64, why string) { t.Errorf("%d: %s %d %s", n, where, version, why) })
		if err := v.run(each(whole), map[string]*contract.AuditHead{"kept": &kept}); err != nil {
			t.Fatal(err)
		}
	}
	kept := head(whole)
	v := newVerifier(func(string, uint64, string) {})
	if err := v.run(each(whole[:8]), map[string]*contract.AuditHead{"kept": &kept}); err != nil || v.bad == 0 {
		t.Errorf("a log that was cut off: %v, %d differences", err, v.bad)
	}
}

func TestSignedHeads(t *testing.T) {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	fingerprint := sha256.Sum256(public)
	sign := func(text string) contract.AuditHead {
		return contract.AuditHead{
			Position: 7, Streams: 2, Digest: "d", KeyID: hex.EncodeToString(fingerprint[:]), PublicKey: public,
			Signed: []byte(text), Signature: ed25519.Sign(private, []byte(text)),
		}
	}
	good := sign("metal-head-1\nposition 7\nevents 9\nstreams 2\ndigest d\nat 2026-01-31T12:00:00Z\n")
	if err := signedWell(good); err != nil {
		t.Error(err)
	}
	bad := map[string]func(h *contract.AuditHead){
		"another position": func(h *contract.AuditHead) { h.Position++ },
		"another digest":   func(h *contract.AuditHead) { h.Digest = "e" },
		"more streams":     func(h *contract.AuditHead) { h.Streams++ },
		"another text":     func(h *contract.AuditHead) { h.Signed = append(slices.Clone(h.Signed), 'x') },
		"another key id":   func(h *contract.AuditHead) { h.KeyID = "k" },
		"no key":           func(h *contract.AuditHead) { h.PublicKey = nil },
		"another form":     func(h *contract.AuditHead) { *h = sign("metal-head-2\nposition 7\nstreams 2\ndigest d\n") },
		"nothing":          func(h *contract.AuditHead) { *h = contract.AuditHead{} },
	}
	for name, change := range bad {
		h := good
		change(&h)
		if signedWell(h) == nil {
			t.Errorf("%s is trusted", name)
		}
	}
}

// Positions that are missing are told of as ranges, also at the beginning.
func TestMissingPositions(t *testing.T) {
	whole := log(t, 12)
	var told []string
	v := newVerifier(func(where string, _ uint64, why string) {
		if where == "the log" {
			told = append(told, why)
		}
	})
	left := slices.Delete(slices.Delete(slices.Clone(whole), 5, 8), 0, 1)
	if err := v.run(each(left), nil); err != nil {
		t.Fatal(err)
	}
	v.dense()
	if want := []string{"position 1 is missing", "positions 6 to 8 are missing"}; !slices.Equal(told, want) {
		t.Errorf("%q", told)
	}
}
