package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/better-compute/metal/adapters/httpapi/contract"
)

var attestationKind = kind[contract.Attestation]{
	id: func(w contract.Attestation) string { return w.AgentCommand },
	columns: []column[contract.Attestation]{
		{name: "NODE", of: func(w contract.Attestation) string { return w.Node }},
		{name: "VERDICT", of: verdictOf, shade: verdictShade},
		{name: "METHOD", of: func(w contract.Attestation) string { return w.Method }},
		{name: "WIPED", of: func(w contract.Attestation) string { return clock(w.RecordedAt) }},
		{name: "STANDS", of: func(w contract.Attestation) string { return stands(w) }},
		{name: "WORKFLOW", of: func(w contract.Attestation) string { return w.Workflow }},
		{name: "AGENT-COMMAND", of: func(w contract.Attestation) string { return w.AgentCommand }},
		{name: "AGENT", of: func(w contract.Attestation) string { return w.Agent }},
		{name: "BOOT", of: func(w contract.Attestation) string { return w.BootID }},
		{name: "SIGNED-AT", of: func(w contract.Attestation) string { return clock(w.SignedAt) }},
		{name: "CERTIFICATE", of: func(w contract.Attestation) string { return "sha256:" + w.Certificate }},
		{name: "PUBLIC-KEY", of: func(w contract.Attestation) string { return base64.StdEncoding.EncodeToString(w.PublicKey) }},
		{name: "SIGNATURE", of: func(w contract.Attestation) string { return base64.StdEncoding.EncodeToString(w.Signature) }},
		{name: "SIGNED-DIGEST", of: func(w contract.Attestation) string { return "sha256:" + w.SignedDigest }},
		{name: "RESULT-DIGEST", of: func(w contract.Attestation) string { return "sha256:" + w.ResultDigest }},
		{name: "POSITION", of: func(w contract.Attestation) string { return strconv.FormatUint(w.Position, 10) }},
	},
}

var attestedDiskKind = kind[contract.AttestedDisk]{
	id: func(d contract.AttestedDisk) string { return d.Serial },
	columns: []column[contract.AttestedDisk]{
		{name: "DISK", of: func(d contract.AttestedDisk) string { return d.Path }},
		{name: "MODEL", of: func(d contract.AttestedDisk) string { return d.Model }},
		{name: "SERIAL", of: func(d contract.AttestedDisk) string { return d.Serial }},
		{name: "BYTES", of: func(d contract.AttestedDisk) string { return strconv.FormatInt(d.Bytes, 10) }},
		{name: "METHOD", of: func(d contract.AttestedDisk) string { return d.Method }},
		{name: "BY", wide: true, of: func(d contract.AttestedDisk) string { return d.By }},
		{name: "READ-BACK", of: func(d contract.AttestedDisk) string { return readBack(d) }, shade: readBackShade},
		{name: "REASON", of: func(d contract.AttestedDisk) string { return d.Reason }},
		{name: "WWN", wide: true, of: func(d contract.AttestedDisk) string { return d.WWN }},
	},
}

const (
	verdictHolds = "the signature holds, checked now"
	backEmpty    = "empty"
)

func verdictOf(w contract.Attestation) string {
	if w.Verified {
		return verdictHolds
	}
	return "NOT PROVEN: " + w.Problem
}

func verdictShade(v string) string {
	if v == verdictHolds {
		return green
	}
	return red
}

func stands(w contract.Attestation) string {
	switch {
	case w.Complete:
		return "yes, for every disk of the latest inventory"
	case w.Stands:
		return "yes, but not for every disk of the latest inventory"
	}
	return "no: the disks were handed out since"
}

func readBack(d contract.AttestedDisk) string {
	if d.ReadBack {
		return backEmpty
	}
	return "not proven"
}

func readBackShade(v string) string {
	if v == backEmpty {
		return green
	}
	return red
}

func newAttestation(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "attestation NODE", Short: "Show the proof that a machine's disks were wiped", Args: cobra.ExactArgs(1),
		ValidArgsFunction: a.completeNodes,
		Long: withExits(`Shows the newest wipe of a machine that its own agent attested: every disk with what was done to it and whether it was read
back empty, who signed that and when. The control plane checks the signature again for this answer; with -o json everything
is there to check it without it. Exits with 7 where the proof does not hold.`, watchExits),
		Example: "  metalctl attestation node_01k…\n  metalctl attestation node_01k… -o json",
		RunE:    func(cmd *cobra.Command, args []string) error { return a.showAttestation(cmd.Context(), args[0]) },
	}
}

func (a *app) showAttestation(ctx context.Context, node string) error {
	c, err := a.connect()
	if err != nil {
		return err
	}
	w, err := c.Attestation(ctx, node)
	if err != nil {
		return err
	}
	if err := attestationKind.one(a, w); err != nil {
		return err
	}
	if a.flag.output == "table" || a.flag.output == "wide" {
		if _, err := fmt.Fprintln(a.out); err != nil {
			return err
		}
		if err := attestedDiskKind.table(a, w.Disks, true); err != nil {
			return err
		}
	}
	if !w.Verified {
		return errUnwell
	}
	return nil
}
