package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"

	"github.com/better-compute/metal/adapters/httpapi/client"
	"github.com/better-compute/metal/adapters/httpapi/contract"
)

var profileKind = kind[contract.ProfileDocument]{
	id: profileName,
	columns: []column[contract.ProfileDocument]{
		{name: "PROFILE", of: profileName},
		{name: "TARGET", of: func(p contract.ProfileDocument) string { return p.Target }},
		{name: "OWNER", of: func(p contract.ProfileDocument) string { return p.Tenant }},
		{name: "PUBLIC", of: func(p contract.ProfileDocument) string { return yes(p.Public) }},
		{name: "FROZEN", of: func(p contract.ProfileDocument) string { return yes(p.Used) }},
		{name: "DESCRIPTION", of: func(p contract.ProfileDocument) string { return p.Description }},
		{name: "DIGEST", wide: true, of: func(p contract.ProfileDocument) string { return p.Digest }},
		{name: "CREATED", wide: true, of: func(p contract.ProfileDocument) string { return optionalClock(p.CreatedAt) }},
		{name: "UPDATED", wide: true, of: func(p contract.ProfileDocument) string { return optionalClock(p.UpdatedAt) }},
	},
}

// issueKind is what is wrong with a profile.
var issueKind = kind[contract.Issue]{
	id: func(i contract.Issue) string { return i.Path },
	columns: []column[contract.Issue]{
		{name: "PATH", of: func(i contract.Issue) string { return orElse(i.Path, "the document") }},
		{name: "PROBLEM", of: func(i contract.Issue) string { return i.Message }},
	},
}

var renderedKind = kind[contract.RenderedStep]{
	id: func(s contract.RenderedStep) string { return s.ID },
	columns: []column[contract.RenderedStep]{
		{name: "STEP", of: func(s contract.RenderedStep) string { return s.ID }},
		{name: "PHASE", of: func(s contract.RenderedStep) string { return s.Phase }},
		{name: "ACTION", of: func(s contract.RenderedStep) string { return s.Action }},
		{name: "ON", of: func(s contract.RenderedStep) string { return s.RunsOn }},
		{name: "TIMEOUT", of: func(s contract.RenderedStep) string { return s.Timeout }},
		{name: "RETRIES", of: func(s contract.RenderedStep) string { return strconv.Itoa(s.Retries) }},
		{name: "ON-FAILURE", of: func(s contract.RenderedStep) string { return orElse(s.OnFailureStep, s.OnFailure) }},
		{name: "WHEN", of: func(s contract.RenderedStep) string { return s.When }},
		{name: "DRIVER", wide: true, of: func(s contract.RenderedStep) string { return s.Driver }},
		{name: "SENDS", wide: true, of: func(s contract.RenderedStep) string {
			return strings.TrimPrefix(s.Command+","+strings.Join(s.Sends, ","), ",")
		}},
		{name: "WITH", wide: true, of: func(s contract.RenderedStep) string { return string(s.With) }},
	},
}

func profileName(p contract.ProfileDocument) string {
	return p.ID + "@" + strconv.Itoa(p.ProfileVersion)
}

func newProfile(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "profile", Short: "See, check and store profiles", GroupID: groupReads,
		Long: withExits(`A profile is the versioned document that a workflow runs: what to do with a machine, step by step. A version never changes
once a workflow has used it.`, remoteExits),
	}
	cmd.AddCommand(newCreateProfile(a), newListProfiles(a), newGetProfile(a), newValidateProfile(a), newRenderProfile(a))
	return cmd
}

const profileFileLong = ` The file is JSON or YAML; - is standard input.`

func newCreateProfile(a *app) *cobra.Command {
	var f writeFlags
	var tenant string
	cmd := &cobra.Command{
		Use: "create FILE", Short: "Store a version of a profile", Args: cobra.ExactArgs(1),
		Long: withExits(`Stores a version of a profile. A version that no workflow has used yet is replaced; one in use never changes.`+
			profileFileLong, remoteExits),
		Example: "  metalctl profile create web.yaml\n  metalctl profile create - --tenant tenant_01k…",
		RunE: func(cmd *cobra.Command, args []string) error {
			doc, err := a.profileDocument(args[0])
			if err != nil {
				return err
			}
			return fetch(a, profileKind, func(c *client.Client) (p contract.ProfileDocument, err error) {
				if tenant, err = ownTenant(cmd.Context(), c, tenant); err != nil {
					return p, err
				}
				return c.CreateProfile(cmd.Context(), tenant, doc, f.options()...)
			})
		},
	}
	f.create(cmd)
	cmd.Flags().StringVar(&tenant, "tenant", "", ownTenantUse)
	return cmd
}

// profileDocument reads a profile as it is: what is wrong with it is the control plane's to say.
func (a *app) profileDocument(name string) (json.RawMessage, error) {
	raw, err := a.bytesOf(name)
	if err != nil {
		return nil, err
	}
	if json.Valid(raw) {
		return raw, nil
	}
	asJSON, err := yaml.YAMLToJSON(raw)
	if err != nil {
		return nil, usage("%s is neither JSON nor YAML: %s", name, yaml.FormatError(err, false, false))
	}
	return asJSON, nil
}

func newListProfiles(a *app) *cobra.Command {
	var f listFlags
	var profile string
	cmd := &cobra.Command{
		Use: "list", Short: "List profiles", Args: cobra.NoArgs,
		Long: withExits(`Lists profiles: the tenants' own and the public ones, newest first, then those that came with the program (owner builtin).`,
			remoteExits),
		Example: "  metalctl profile list\n  metalctl profile list --id web",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return fetchAll(a, profileKind, func(c *client.Client) ([]contract.ProfileDocument, error) {
				return client.Collect(c.Profiles(cmd.Context(), f.tenant, profile), f.limit)
			})
		},
	}
	f.add(cmd, "tenant")
	cmd.Flags().StringVar(&profile, "id", "", "every version of this one")
	return cmd
}

func newGetProfile(a *app) *cobra.Command {
	var tenant string
	cmd := &cobra.Command{
		Use: "get ID[@VERSION]", Short: "Show a profile", Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeProfiles(everyProfile),
		Long: withExits(`Shows a profile as a tenant finds it: its own, else the public one, else the one that came with the program. Without a version,
the newest.`, remoteExits),
		Example: "  metalctl profile get image-host\n  metalctl profile get web@3 -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			id, version, err := profileArgument(args[0])
			if err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			p, err := c.GetProfile(cmd.Context(), id, version, tenant)
			if err != nil {
				return err
			}
			return a.profileCard(p)
		},
	}
	cmd.Flags().StringVar(&tenant, "tenant", "",
		"as this tenant finds it (default: that of your credential); builtin: as it came with the program")
	return cmd
}

// profileArgument reads ID or ID@VERSION.
func profileArgument(text string) (id string, version int, err error) {
	id, number, versioned := strings.Cut(text, "@")
	if versioned {
		version, err = strconv.Atoi(number)
	}
	if id == "" || err != nil || versioned && version < 1 {
		return "", 0, usage("a profile is named ID or ID@VERSION, such as web@3; not %q", text)
	}
	return id, version, nil
}

// profileCard prints a profile and, for people, its document.
func (a *app) profileCard(p contract.ProfileDocument) error {
	if err := profileKind.one(a, p); err != nil || a.flag.output != "table" && a.flag.output != "wide" {
		return err
	}
	text, err := yaml.JSONToYAML(p.Document)
	if err != nil {
		return fmt.Errorf("write YAML: %w", err)
	}
	_, err = fmt.Fprintf(a.out, "\n%s", text)
	return err
}

func newValidateProfile(a *app) *cobra.Command {
	var in contract.TryProfile
	cmd := &cobra.Command{
		Use: "validate FILE", Short: "List everything that is wrong with a profile", Args: cobra.ExactArgs(1),
		Long: withExits(`Lists everything that is wrong with a profile, each with its path: what is malformed, steps that do not exist, inputs that
steps refuse. Nothing is stored. Exits with 7 where anything is wrong.`+profileFileLong, watchExits),
		Example: "  metalctl profile validate web.yaml",
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if in.Profile, err = a.profileDocument(args[0]); err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			found, err := c.ValidateProfile(cmd.Context(), in)
			if err != nil {
				return err
			}
			return a.verdict(args[0], found)
		},
	}
	hardwareFlag(cmd, &in)
	return cmd
}

func hardwareFlag(cmd *cobra.Command, in *contract.TryProfile) {
	cmd.Flags().StringVar(&in.HardwareProfile, "hardware-profile", "", "with the drivers of this one (default: the default driver for all)")
}

// verdict prints what is wrong.
func (a *app) verdict(name string, found contract.Verdict) error {
	var err error
	switch {
	case a.flag.output == "json" || a.flag.output == "yaml":
		err = a.document(found)
	case found.Valid:
		a.say("%s is valid", name)
	default:
		err = issueKind.list(a, found.Issues)
	}
	if err == nil && !found.Valid {
		return errUnwell
	}
	return err
}

func newRenderProfile(a *app) *cobra.Command {
	var in contract.TryProfile
	cmd := &cobra.Command{
		Use: "render FILE|ID@VERSION", Short: "Show a profile's steps as a workflow would run them", Args: cobra.ExactArgs(1),
		Long: withExits(`Shows a profile's steps as a workflow would run them: everything that was left out is filled in, cleanup and what follows a
failure included. Nothing is stored.`+profileFileLong, remoteExits),
		Example: "  metalctl profile render web.yaml -o wide\n  metalctl profile render metal-release@1",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			if in.Profile, err = a.fileOrStored(cmd.Context(), c, args[0]); err != nil {
				return err
			}
			out, err := c.RenderProfile(cmd.Context(), in)
			if err != nil {
				return err
			}
			if a.flag.output == "json" || a.flag.output == "yaml" {
				return a.document(out)
			}
			return renderedKind.list(a, out.Steps)
		},
	}
	hardwareFlag(cmd, &in)
	return cmd
}

var storedForm = regexp.MustCompile(`^[a-z0-9._-]+@[0-9]+$`)

// fileOrStored is the document in a file; where there is no such file, the one that the control plane has.
func (a *app) fileOrStored(ctx context.Context, c *client.Client, name string) (json.RawMessage, error) {
	if _, err := os.Stat(name); !errors.Is(err, os.ErrNotExist) || !storedForm.MatchString(name) {
		return a.profileDocument(name)
	}
	id, version, err := profileArgument(name)
	if err != nil {
		return nil, err
	}
	p, err := c.GetProfile(ctx, id, version, "")
	return p.Document, err
}

func everyProfile(contract.ProfileDocument) bool { return true }

// deployable tells whether an operator deploys it: the control plane itself runs the rest in the states of a machine's life.
func deployable(p contract.ProfileDocument) bool {
	return p.Target == "metal" && (p.Tenant != contract.Builtin || !strings.HasPrefix(p.ID, "metal-"))
}

// completeProfiles offers profiles, with what they are.
func (a *app) completeProfiles(offered func(contract.ProfileDocument) bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		c, err := a.connect()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionPatience)
		defer cancel()
		found, err := client.Collect(c.Profiles(ctx, "", ""), mostCompletions)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var offers []cobra.Completion
		for _, p := range found {
			if offered(p) {
				offers = append(offers, cobra.CompletionWithDesc(profileName(p), p.Description))
			}
		}
		return offers, cobra.ShellCompDirectiveNoFileComp
	}
}
