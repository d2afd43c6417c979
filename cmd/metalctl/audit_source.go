package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"os"

	"github.com/better-compute/metal/adapters/httpapi/client"
	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/domain/fault"
)

// exportLine is one line of an export: an event, or on the last line the signed head over all of them.
type exportLine struct {
	contract.AuditEvent
	Head *contract.AuditHead `json:"head"`
}

// headLine is the last line of an export as it is written.
type headLine struct {
	Head contract.AuditHead `json:"head"`
}

// verifyLive checks the log of a control plane. A head that it will not sign is one more difference: what is wrong is
// found here, by stream and version. The head is asked for first, so that the log reaches as far.
func (a *app) verifyLive(ctx context.Context, v *verifier, kept *contract.AuditHead) (*contract.AuditHead, error) {
	c, err := a.connect()
	if err != nil {
		return nil, err
	}
	head, refused := signedHead(ctx, c)
	if refused != nil && ctx.Err() != nil {
		return nil, refused
	}
	var end client.LogEnd
	heads := map[string]*contract.AuditHead{"the kept head": kept, "the signed head": head}
	if err := v.run(c.AuditLogUntil(ctx, 0, &end), heads); err != nil {
		return nil, err
	}
	if end.Dense {
		v.dense()
		if v.position < end.Position {
			v.difference("the log", 0, "positions %d to %d are missing: the control plane says that it ends there",
				v.position+1, end.Position)
		}
	}
	if refused != nil {
		if fault.CodeOf(refused) != fault.InvalidState && v.bad == 0 {
			return nil, refused
		}
		v.difference("the signed head", 0, "there is none: %s", refused)
	}
	return head, nil
}

// signedHead asks for a head, and trusts it only if its signature holds.
func signedHead(ctx context.Context, c *client.Client) (*contract.AuditHead, error) {
	head, err := c.AuditHead(ctx)
	if err == nil {
		err = signedWell(head)
	}
	if err != nil {
		return nil, err
	}
	return &head, nil
}

// export checks what audit export wrote, and gives the head at its end. Without one its end may have been cut off.
func (v *verifier) export(file string, kept *contract.AuditHead) (*contract.AuditHead, error) {
	var head *contract.AuditHead
	if err := v.run(exported(file, &head), map[string]*contract.AuditHead{"the kept head": kept}); err != nil {
		return nil, err
	}
	const name = "the signed head"
	if head == nil {
		v.difference(name, 0, "the export does not end with one: its end is missing, or none was signed")
		return nil, nil //nolint:nilnil // there is no head, and that was told
	}
	if err := signedWell(*head); err != nil {
		v.difference(name, 0, "%s", err)
		return nil, nil //nolint:nilnil // what it says counts for nothing
	}
	if head.Dense {
		v.dense()
	}
	if head.Position != v.position {
		v.difference(name, 0, "it reaches position %d; the export ends at %d", head.Position, v.position)
		return head, nil
	}
	v.against(name, *head)
	return head, nil
}

// exported reads what audit export wrote: the events, and the head at the end into head.
func exported(file string, head **contract.AuditHead) iter.Seq2[contract.AuditEvent, error] {
	return func(yield func(contract.AuditEvent, error) bool) {
		in, err := os.Open(file)
		if err != nil {
			yield(contract.AuditEvent{}, usage("the export cannot be read: %s", err))
			return
		}
		defer func() { _ = in.Close() }() // it was only read
		lines := json.NewDecoder(bufio.NewReaderSize(in, 256<<10))
		for {
			var line exportLine
			err := lines.Decode(&line)
			switch {
			case errors.Is(err, io.EOF):
				return
			case err == nil && *head != nil:
				err = errors.New("something follows its head")
			case err == nil && line.Head == nil && (line.ID == "" || line.Stream == ""):
				err = errors.New("a line is no event")
			}
			if err != nil {
				yield(line.AuditEvent, usage("%s is not an export: %s", file, err))
				return
			}
			if *head = line.Head; *head == nil && !yield(line.AuditEvent, nil) {
				return
			}
		}
	}
}

// exportLog writes the events up to a signed head, and the head. Of a log that does not hold together no head is signed:
// it is written all the same, for whoever looks into it.
func (a *app) exportLog(ctx context.Context, file string) error {
	c, err := a.connect()
	if err != nil {
		return err
	}
	head, refused := signedHead(ctx, c)
	if refused != nil && fault.CodeOf(refused) != fault.InvalidState {
		return refused
	}
	events := 0
	err = writeWhole(file, func(w io.Writer) error {
		lines := json.NewEncoder(w)
		for e, err := range c.AuditLog(ctx, 0) {
			if err != nil {
				return err
			}
			if head != nil && e.Position > head.Position {
				break
			}
			if err := lines.Encode(e); err != nil {
				return err
			}
			events++
		}
		if head == nil {
			return nil
		}
		return lines.Encode(headLine{*head})
	})
	if err != nil {
		return err
	}
	a.say("%d events written to %s", events, file)
	if refused != nil {
		a.say("without a signed head: %s", refused)
		return errUnwell
	}
	return nil
}
