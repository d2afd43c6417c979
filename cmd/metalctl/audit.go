package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/better-compute/metal/adapters/httpapi/contract"
)

const auditLong = `Proves that the log holds what it held: nothing was changed and nothing removed.

Every event holds the hash of the event before it in its stream. A head commits to the end of every stream and is
signed by
the control plane. A head that is kept elsewhere proves the log against the control plane's own operators too.`

func newAudit(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "audit", Short: "Prove that the log was not changed",
		Long: withExits(auditLong, watchExits)}
	cmd.AddCommand(newAuditVerify(a), newAuditHead(a), newAuditExport(a))
	return cmd
}

const verifyLong = `Copies the whole log and takes every hash again itself, checks every stream's chain and that no
position is missing (where positions rise by one), and compares the result with the head that the control plane signs.
With --expect it must also still hold what a head kept earlier vouches for, signed by the same key: only that shows that
the newest events were cut off or changed, by whoever can have a new head signed. With --log an export is checked
against the head at its end, and no control plane is asked.

It prints the streams, the events and the digest, and every difference with its stream and version; exit status 7
says that
there is one. Needs compute:audit:read on the root tenant.`

// verifyFlags say what is checked against what.
type verifyFlags struct{ expect, log string }

func newAuditVerify(a *app) *cobra.Command {
	var f verifyFlags
	cmd := &cobra.Command{
		Use: "verify", Short: "Take every hash of the log again", Long: withExits(verifyLong, watchExits), Args: cobra.NoArgs,
		Example: "  metalctl audit verify --expect head.json",
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.verifyLog(cmd.Context(), f) },
	}
	cmd.Flags().StringVar(&f.expect, "expect", "", "a head that was kept: the log must still hold what it vouches for")
	cmd.Flags().StringVar(&f.log, "log", "", "check this export instead of a control plane's log")
	return cmd
}

func newAuditHead(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "head [FILE]", Short: "Get the signed head of the log, to be kept elsewhere", Args: cobra.MaximumNArgs(1),
		Long: withExits(`Asks the control plane to check its log and to sign a head of it, checks the signature, and
writes it to FILE or to
standard output, as JSON. Keep it where nobody who runs the control plane can change it.`, remoteExits),
		Example: "  metalctl audit head head.json",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			head, err := c.AuditHead(cmd.Context())
			if err != nil {
				return err
			}
			if err := signedWell(head); err != nil {
				return err
			}
			text, err := json.MarshalIndent(head, "", "  ")
			if err != nil {
				return err
			}
			text = append(text, '\n')
			if len(args) == 0 {
				_, err = a.out.Write(text)
				return err
			}
			return writeWhole(args[0], func(w io.Writer) error {
				_, err := w.Write(text)
				return err
			})
		},
	}
}

func newAuditExport(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "export FILE", Short: "Copy the whole log to a file", Args: cobra.ExactArgs(1),
		Long: withExits(`Copies the whole log to a file that only you can read, byte for byte, one event on each line
(NDJSON), and on the last line the signed head over all of them. It holds no secrets.
Check it with audit verify --log. The file appears when it is whole. Where the log does not hold together, no head is
signed: it is written without, with exit status 7. Needs compute:audit:read on the root tenant.`,
			watchExits),
		Example: "  metalctl audit export log.ndjson",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.exportLog(cmd.Context(), args[0])
		},
	}
}

// readHead reads a head that was kept.
func readHead(file string) (contract.AuditHead, error) {
	var head contract.AuditHead
	raw, err := os.ReadFile(file)
	if err != nil {
		return head, usage("the kept head cannot be read: %s", err)
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return head, usage("%s is not a head as audit head writes it", file)
	}
	return head, nil
}

// finding prints one difference.
func (a *app) difference(stream string, version uint64, reason string) {
	at := stream
	if version > 0 {
		at = fmt.Sprintf("%s version %d", stream, version)
	}
	a.say("DIFFERENCE: %s: %s", at, reason)
}
