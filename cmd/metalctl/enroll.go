package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/better-compute/metal/adapters/httpapi/contract"
)

const enrollLong = `Hands a machine over to the control plane. Its BMC is contacted, the machine is inspected and
commissioned: it boots the
ramdisk, is burnt in, and ITS DISKS ARE WIPED. It ends ready. Enroll no machine whose disks hold anything.

The BMC's credentials are asked for on the terminal, or read from --credentials-file (JSON or YAML: username,
password), or
from METAL_BMC_USERNAME and METAL_BMC_PASSWORD; never from the command line. They are kept sealed and never shown again.

The BMC's address may be a host, host:port or an https URL, and must be free within the pool's site, as each MAC must be
everywhere. By default the BMC's certificate is pinned when it is first seen.`

// enrollFlags are a machine as flags.
type enrollFlags struct {
	in          contract.Enrollment
	labels      []string
	credentials string
	tls         contract.TLSPolicy
	caFile      string
	file        string
	verb        verbFlags
}

func newEnroll(a *app) *cobra.Command {
	var f enrollFlags
	cmd := &cobra.Command{
		Use: "enroll --pool POOL --bmc ADDRESS", Short: "Hand a machine over", GroupID: groupVerbs, Args: cobra.NoArgs,
		Long: withExits(enrollLong, watchExits),
		Example: "  metalctl enroll --pool pool_01k… --bmc 10.0.0.10 --mac b8:ce:f6:00:00:01 --name rack7-u12 --watch\n" +
			"  metalctl enroll --file machine.yaml",
		RunE: func(cmd *cobra.Command, _ []string) error { return a.enroll(cmd, f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.in.Pool, "pool", "", "pool that it joins (needed)")
	flags.StringVar(&f.in.BMC.Address, "bmc", "", "address of its BMC (needed)")
	flags.StringVar(&f.in.BMC.Driver, "driver", "", "driver of its BMC (default redfish)")
	flags.StringVar(&f.in.Name, "name", "", "name for people (default: its id)")
	flags.StringArrayVarP(&f.labels, "label", "l", nil, "label key=value; repeat for more")
	flags.StringSliceVar(&f.in.MACs, "mac", nil, "MAC of a port that may boot from the network; repeat for more")
	flags.StringVar(&f.in.HardwareProfile, "hardware-profile", "", "hardware profile, over the pool's")
	flags.StringVar(&f.credentials, "credentials-file", "", "file with the BMC's username and password")
	bindTrust(cmd, &f.tls, &f.caFile)
	flags.StringVarP(&f.file, "file", "f", "",
		"the whole machine as JSON or YAML, as the API takes it; - is standard input")
	flags.StringVar(&f.verb.key, "idempotency-key", "", "name this request: the same again gives the first outcome")
	flags.BoolVarP(&f.verb.watch, "watch", "w", false,
		"then show what happens, until the machine rests; exit 7 if it fails")
	return cmd
}

func (a *app) enroll(cmd *cobra.Command, f enrollFlags) error {
	c, err := a.connect()
	if err != nil {
		return err
	}
	in, err := a.enrollment(cmd, f)
	if err != nil {
		return err
	}
	n, err := c.Enroll(cmd.Context(), in, f.verb.options()...)
	if err != nil {
		return err
	}
	if err := a.verbDone(verb{name: "enrolled"}, n); err != nil || !f.verb.watch {
		return err
	}
	return a.watchVerb(cmd.Context(), c, n)
}

// enrollment is the machine of the file, or of the flags with the credentials.
func (a *app) enrollment(cmd *cobra.Command, f enrollFlags) (contract.Enrollment, error) {
	if f.file != "" {
		for _, other := range []string{
			"pool", "bmc", "driver", "name", "label", "mac", "hardware-profile", "credentials-file",
			"bmc-tls", "bmc-fingerprint", "bmc-ca-file",
		} {
			if cmd.Flags().Changed(other) {
				return contract.Enrollment{}, usage("--file holds the whole machine: --%s does not go with it", other)
			}
		}
		var in contract.Enrollment
		return in, a.readFile(f.file, &in)
	}
	if f.in.Pool == "" || f.in.BMC.Address == "" {
		return contract.Enrollment{}, usage("--pool and --bmc are needed, or --file")
	}
	var err error
	if f.in.Labels, err = parseLabels(f.labels); err != nil {
		return contract.Enrollment{}, err
	}
	if f.in.BMC.TLS, err = trust(f.tls, f.caFile); err != nil {
		return contract.Enrollment{}, err
	}
	f.in.BMC.Credentials, err = a.credentials(cmd.Context(), f.credentials, f.in.BMC.Address)
	return f.in, err
}

// credentials come from a file, the environment or the terminal.
func (a *app) credentials(ctx context.Context, file, bmc string) (contract.Credentials, error) {
	var in contract.Credentials
	if file != "" {
		if err := a.readFile(file, &in); err != nil {
			return in, err
		}
		if in.Username == "" || in.Password == "" {
			return in, usage("%s holds username and password", file)
		}
		return in, nil
	}
	in.Username, in.Password = os.Getenv("METAL_BMC_USERNAME"), os.Getenv("METAL_BMC_PASSWORD")
	if in.Username != "" && in.Password != "" {
		return in, nil
	}
	if !a.inTerminal {
		return in, usage("the BMC's credentials are needed: --credentials-file, or METAL_BMC_USERNAME and METAL_BMC_PASSWORD")
	}
	var err error
	if in.Username == "" {
		if in.Username, err = a.line(ctx, fmt.Sprintf("Username for the BMC %s: ", bmc)); err != nil {
			return in, err
		}
	}
	in.Password, err = a.secret(ctx, fmt.Sprintf("Password for the BMC %s: ", bmc))
	return in, err
}
