package main

import (
	"encoding/base64"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/better-compute/metal/adapters/httpapi/client"
	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/domain/image"
)

var imageKind = kind[contract.Image]{
	id: func(i contract.Image) string { return i.ID },
	columns: []column[contract.Image]{
		{name: "IMAGE", of: func(i contract.Image) string { return i.ID }},
		{name: "NAME", of: func(i contract.Image) string { return i.Name + "@" + i.ImageVersion }},
		{name: "FORMAT", of: func(i contract.Image) string { return i.Format }},
		{name: "BYTES", of: func(i contract.Image) string { return strconv.FormatInt(i.Bytes, 10) }},
		{name: "SIGNER", of: func(i contract.Image) string { return i.Signer }},
		{name: "PUBLIC", of: func(i contract.Image) string { return yes(i.Public) }},
		{name: "WITHDRAWN", of: func(i contract.Image) string { return yes(i.Withdrawn) }},
		{name: "REGISTERED", of: func(i contract.Image) string { return clock(i.RegisteredAt) }},
		{name: "TENANT", wide: true, of: func(i contract.Image) string { return i.Tenant }},
		{name: "DIGEST", wide: true, of: func(i contract.Image) string { return i.Digest }},
		{name: "URL", wide: true, of: func(i contract.Image) string { return i.URL }},
		{name: "REASON", wide: true, of: func(i contract.Image) string { return i.Reason }},
		{name: "VERSION", wide: true, of: func(i contract.Image) string { return strconv.FormatUint(i.Version, 10) }},
	},
}

func newImage(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "image", Short: "See, sign and register images", GroupID: groupReads,
		Long: withExits(`An image is what profiles install: a file that agents fetch by its URL, known by its digest and the signature over it. The
tenant's policy says whose signatures count: metalctl set-policy tenant.`, remoteExits),
	}
	cmd.AddCommand(newRegisterImage(a), newListImages(a), newGetImage(a), newWithdrawImage(a), newSignImage(a), newKeygen(a))
	return cmd
}

// imageFlags are those of a registration, as they were given.
type imageFlags struct {
	file, signature string
	in              contract.NewImage
}

func newRegisterImage(a *app) *cobra.Command {
	var f writeFlags
	var g imageFlags
	cmd := &cobra.Command{
		Use: "register NAME@VERSION", Short: "Add a version of an image to the catalog", Args: cobra.ExactArgs(1),
		Long: withExits(`Adds a version of an image to a tenant's catalog. It never changes: the same again does nothing, other facts are refused.

With --file, the digest and the size are taken from a copy of the image; else --digest and --bytes give them. The signature is
what metalctl image sign prints, in a file; - is standard input. Its key must be in the tenant's policy.`, remoteExits),
		Example: "  metalctl image register ubuntu@24.04.1 --url https://images.example/u.raw.zst --file u.raw.zst --signature u.sig",
		RunE: func(cmd *cobra.Command, args []string) error {
			in, err := g.read(a, args[0])
			if err != nil {
				return err
			}
			return fetch(a, imageKind, func(c *client.Client) (i contract.Image, err error) {
				if in.Tenant, err = ownTenant(cmd.Context(), c, in.Tenant); err != nil {
					return i, err
				}
				return c.RegisterImage(cmd.Context(), in, f.options()...)
			})
		},
	}
	f.create(cmd)
	flags := cmd.Flags()
	flags.StringVar(&g.in.Tenant, "tenant", "", ownTenantUse)
	flags.StringVar(&g.in.URL, "url", "", "where agents fetch it: http or https, without credentials (needed)")
	flags.StringVar(&g.file, "file", "", "a copy of the image, to take its digest and size from")
	flags.StringVar(&g.in.Digest, "digest", "", "sha256:<hex> of the file as served, instead of --file")
	flags.Int64Var(&g.in.Bytes, "bytes", 0, "size of the file as served, with --digest")
	flags.StringVar(&g.in.Format, "format", "", strings.Join(image.Formats, ", ")+" (default: by the end of the URL)")
	flags.StringVar(&g.signature, "signature", "", "file with the signature, base64 (needed)")
	flags.BoolVar(&g.in.Public, "public", false, "every tenant may deploy it; the root tenant's to say")
	_ = cmd.RegisterFlagCompletionFunc("format", words(image.Formats...)) // the flag was made above
	return cmd
}

// read checks the flags and reads the files that they name.
func (g imageFlags) read(a *app, name string) (contract.NewImage, error) {
	in := g.in
	ref, err := image.ParseRef("name", name)
	switch {
	case err != nil:
		return in, usage("an image is named NAME@VERSION, such as ubuntu@24.04.1; not %q", name)
	case in.URL == "":
		return in, usage("--url is needed")
	case g.signature == "":
		return in, usage("--signature is needed; `metalctl image sign` makes it")
	case (g.file == "") == (in.Digest == ""):
		return in, usage("one of --file and --digest is needed")
	case in.Digest != "" && in.Bytes <= 0:
		return in, usage("--bytes is needed with --digest")
	}
	in.Name, in.Version = ref.Name, ref.Version
	if in.Format == "" {
		in.Format = formatOf(in.URL)
	}
	if !slices.Contains(image.Formats, in.Format) {
		return in, usage("--format is one of %s", strings.Join(image.Formats, ", "))
	}
	if in.Signature, err = a.readSignature(g.signature); err != nil {
		return in, err
	}
	if g.file != "" {
		sum, size, err := hashFile(g.file)
		if err != nil {
			return in, err
		}
		in.Digest, in.Bytes = digestText(sum), size
	}
	return in, nil
}

func (a *app) readSignature(name string) ([]byte, error) {
	text, err := a.bytesOf(name)
	if err != nil {
		return nil, err
	}
	signature, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(signature) == 0 {
		return nil, usage("%s holds no signature in base64", name)
	}
	return signature, nil
}

// formatOf tells a format by the end of a URL's path; empty where it does not say.
func formatOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	name, packed := path.Base(u.Path), ""
	for _, end := range []string{".zst", ".gz", ".xz"} {
		if rest, found := strings.CutSuffix(name, end); found {
			name, packed = rest, end
		}
	}
	switch path.Ext(name) {
	case ".qcow2":
		return "qcow2" + packed
	case ".raw", ".img":
		return "raw" + packed
	}
	return ""
}

func newListImages(a *app) *cobra.Command {
	var f listFlags
	var name string
	var withdrawn bool
	cmd := &cobra.Command{
		Use: "list", Short: "List images, newest first", Args: cobra.NoArgs,
		Long:    withExits("Lists images, newest first: the tenants' own and the public ones.", remoteExits),
		Example: "  metalctl image list --name ubuntu",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return fetchAll(a, imageKind, func(c *client.Client) ([]contract.Image, error) {
				return client.Collect(c.Images(cmd.Context(), f.tenant, name, withdrawn), f.limit)
			})
		},
	}
	f.add(cmd, "tenant")
	cmd.Flags().StringVar(&name, "name", "", "every version of this one")
	cmd.Flags().BoolVar(&withdrawn, "withdrawn", false, "the withdrawn ones too")
	return cmd
}

func newGetImage(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "get IMAGE", Short: "Show one image", Args: cobra.ExactArgs(1),
		Long: withExits("Shows one image, by its id.", remoteExits), Example: "  metalctl image get img_01k…",
		RunE: func(cmd *cobra.Command, args []string) error {
			return fetch(a, imageKind, func(c *client.Client) (contract.Image, error) { return c.GetImage(cmd.Context(), args[0]) })
		},
	}
}

func newWithdrawImage(a *app) *cobra.Command {
	var f writeFlags
	var in contract.Reason
	cmd := &cobra.Command{
		Use: "withdraw IMAGE", Short: "Take an image out of use, for good", Args: cobra.ExactArgs(1),
		Long: withExits(`Takes an image out of use, for good: no machine is deployed with it any more, and its name and version stay taken. Machines
that run it stay as they are.`, remoteExits),
		Example: "  metalctl image withdraw img_01k… --reason CVE-2026-1234",
		RunE: func(cmd *cobra.Command, args []string) error {
			return fetch(a, imageKind, func(c *client.Client) (contract.Image, error) {
				return c.WithdrawImage(cmd.Context(), args[0], in, f.options()...)
			})
		},
	}
	f.change(cmd)
	cmd.Flags().StringVar(&in.Reason, "reason", "", "why, in up to 512 bytes")
	return cmd
}
