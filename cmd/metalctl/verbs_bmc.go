package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"github.com/better-compute/metal/adapters/httpapi/client"
	"github.com/better-compute/metal/adapters/httpapi/contract"
)

const setBMCLong = `Changes how a machine's BMC is reached: with a new password, at another address, or trusted in another way. What is
not given stays.

New credentials are asked for on the terminal with --new-credentials, or taken from METAL_BMC_USERNAME and METAL_BMC_PASSWORD,
or from --credentials-file (JSON or YAML: username, password); never from the command line. They may change at any time; a
workflow that failed for want of them goes on with "metalctl workflow retry".

The address changes only while nothing is under way on the machine. What answers there must be the same machine: the
certificate that is pinned stays pinned, and the machine is found by its serial number or UUID.`

// setBMCFlags are a change as flags.
type setBMCFlags struct {
	in     contract.BMCChange
	tls    contract.TLSPolicy
	caFile string
	asks   bool
	file   string
}

func newSetBMC(a *app) *cobra.Command {
	var f setBMCFlags
	v := verb{
		name: "set-bmc", short: "Change how the machine's BMC is reached", long: setBMCLong,
		example: "  metalctl set-bmc node_01k… --new-credentials\n" +
			"  metalctl set-bmc node_01k… --bmc 10.0.0.11 --credentials-file bmc.yaml",
	}
	v.flags = func(cmd *cobra.Command) {
		flags := cmd.Flags()
		flags.StringVar(&f.in.Address, "bmc", "", "its address from now on")
		flags.BoolVar(&f.asks, "new-credentials", false, "take new credentials from the environment or the terminal")
		flags.StringVar(&f.file, "credentials-file", "", "file with the new username and password")
		bindTrust(cmd, &f.tls, &f.caFile)
	}
	v.check = func() error {
		if f == (setBMCFlags{}) {
			return usage("give what changes: --bmc, --new-credentials, --credentials-file or --bmc-tls")
		}
		return nil
	}
	v.apply = func(ctx context.Context, c *client.Client, id string, o ...client.Option) (contract.Node, error) {
		in, err := a.bmcChange(ctx, f, id)
		if err != nil {
			return contract.Node{}, err
		}
		return c.SetBMC(ctx, id, in, o...)
	}
	return v.command(a)
}

func (a *app) bmcChange(ctx context.Context, f setBMCFlags, node string) (contract.BMCChange, error) {
	var err error
	if f.in.TLS, err = trust(f.tls, f.caFile); err != nil {
		return f.in, err
	}
	if f.asks || f.file != "" {
		given, err := a.credentials(ctx, f.file, "of "+node)
		if err != nil {
			return f.in, err
		}
		f.in.Credentials = &given
	}
	return f.in, nil
}

// bindTrust makes the flags that say how a BMC's certificate is trusted.
func bindTrust(cmd *cobra.Command, to *contract.TLSPolicy, caFile *string) {
	flags := cmd.Flags()
	flags.StringVar(&to.Mode, "bmc-tls", "", "trust: pin-on-first-use, pinned, system-ca, ca or insecure")
	flags.StringVar(&to.Fingerprint, "bmc-fingerprint", "", "SHA-256 of the BMC's certificate, with --bmc-tls pinned")
	flags.StringVar(caFile, "bmc-ca-file", "", "PEM certificate to trust the BMC by, with --bmc-tls ca")
	_ = cmd.RegisterFlagCompletionFunc("bmc-tls", // the flag was made above
		words("pin-on-first-use", "pinned", "system-ca", "ca", "insecure"))
}

// trust is what those flags say; nil: nothing.
func trust(policy contract.TLSPolicy, caFile string) (*contract.TLSPolicy, error) {
	if caFile != "" {
		pem, err := os.ReadFile(caFile)
		if err != nil {
			return nil, usage("the BMC's certificate cannot be read: %s", err)
		}
		policy.CA = string(pem)
	}
	if policy == (contract.TLSPolicy{}) {
		return nil, nil //nolint:nilnil // no policy is what was asked for
	}
	return &policy, nil
}
