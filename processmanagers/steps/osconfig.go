package steps

import (
	"encoding/base64"
	"encoding/json"
	"net/url"

	"github.com/goccy/go-yaml"

	"github.com/better-compute/metal/domain/fault"
)

// What both kinds leave on the installed OS.
const (
	agentConfigPath = "/etc/bcd/agent.json"
	agentPath       = "/usr/local/bin/bcd"
	unitName        = "bcd.service"
	unitPath        = "/etc/systemd/system/" + unitName
	installerPath   = "/usr/local/sbin/bcd-install"
)

// agentConfig is what the installed agent reads: where to join, and with what. Its token is good once.
type agentConfig struct {
	Gateway  string `json:"gateway"`
	CASHA256 string `json:"caSha256"`
	Token    string `json:"token"`
	NodeID   string `json:"nodeId"`
}

func (v Variables) agentConfig() ([]byte, error) {
	if v.CASHA256 == "" {
		return nil, fault.New(fault.InvalidConfig, "the installed agent can't know its control plane without its CA's fingerprint").
			WithDetail("path", "ports.config.caSha256")
	}
	return json.Marshal(agentConfig{Gateway: v.GatewayURL, CASHA256: v.CASHA256, Token: v.JoinToken, NodeID: v.NodeID})
}

const unit = `[Unit]
Description=Agent of the bare-metal control plane
Wants=network-online.target
After=network-online.target

[Service]
ExecStart=` + agentPath + ` node --config ` + agentConfigPath + `
Restart=always
RestartSec=5

[Install]
WantedBy=multi-user.target
`

// installer reads where the agent comes from instead of having it spliced in, so that no value is ever shell.
const installer = `#!/bin/sh
set -eu
umask 077
target=` + agentPath + `
curl --fail --silent --show-error --location --retry 10 --retry-connrefused --output "$target.new" "$(cat /etc/bcd/agent.url)"
echo "$(cat /etc/bcd/agent.sha256)  $target.new" | sha256sum --check --strict
chmod 0755 "$target.new"
mv "$target.new" "$target"
systemctl daemon-reload
systemctl enable --now ` + unitName + `
`

// cloudInit is the built-in template of that kind.
type cloudInit struct{}

type cloudConfig struct {
	Hostname         string      `yaml:"hostname"`
	PreserveHostname bool        `yaml:"preserve_hostname"`
	WriteFiles       []cloudFile `yaml:"write_files"`
	RunCommands      [][]string  `yaml:"runcmd,omitempty"`
}

type cloudFile struct {
	Path        string `yaml:"path"`
	Owner       string `yaml:"owner"`
	Permissions string `yaml:"permissions"`
	Content     string `yaml:"content"`
}

// Render makes the document as data; its first line is what cloud-init knows it by.
func (cloudInit) Render(v Variables) ([]byte, error) {
	config, err := v.agentConfig()
	if err != nil {
		return nil, err
	}
	file := func(path, permissions, content string) cloudFile {
		return cloudFile{Path: path, Owner: "root:root", Permissions: permissions, Content: content}
	}
	doc := cloudConfig{Hostname: v.Hostname, WriteFiles: []cloudFile{file(agentConfigPath, "0600", string(config))}}
	if v.AgentURL != "" {
		doc.WriteFiles = append(doc.WriteFiles,
			file("/etc/bcd/agent.url", "0644", v.AgentURL), file("/etc/bcd/agent.sha256", "0644", v.AgentSHA256),
			file(unitPath, "0644", unit), file(installerPath, "0755", installer))
		doc.RunCommands = [][]string{{installerPath}}
	}
	text, err := yaml.MarshalWithOptions(doc, yaml.UseLiteralStyleIfMultiline(true))
	return append([]byte("#cloud-config\n"), text...), err
}

// ignition is the built-in template of that kind, version 3.4.0.
type ignition struct{}

type ignitionConfig struct {
	Ignition struct {
		Version string `json:"version"`
	} `json:"ignition"`
	Storage struct {
		Files []ignitionFile `json:"files"`
	} `json:"storage"`
	Systemd *ignitionUnits `json:"systemd,omitempty"`
}

type ignitionFile struct {
	Path      string         `json:"path"`
	Mode      int            `json:"mode"`
	Overwrite bool           `json:"overwrite"`
	Contents  ignitionSource `json:"contents"`
}

type ignitionSource struct {
	Source       string                `json:"source"`
	Verification *ignitionVerification `json:"verification,omitempty"`
}

type ignitionVerification struct {
	Hash string `json:"hash"`
}

type ignitionUnits struct {
	Units []ignitionUnit `json:"units"`
}

type ignitionUnit struct {
	Name     string `json:"name"`
	Enabled  bool   `json:"enabled"`
	Contents string `json:"contents"`
}

// Render makes the document as data.
func (ignition) Render(v Variables) ([]byte, error) {
	config, err := v.agentConfig()
	if err != nil {
		return nil, err
	}
	var doc ignitionConfig
	doc.Ignition.Version = "3.4.0"
	doc.Storage.Files = []ignitionFile{
		{Path: "/etc/hostname", Mode: 0o644, Overwrite: true, Contents: ignitionSource{Source: "data:," + url.PathEscape(v.Hostname)}},
		{Path: agentConfigPath, Mode: 0o600, Overwrite: true, Contents: ignitionSource{
			Source: "data:;base64," + base64.StdEncoding.EncodeToString(config),
		}},
	}
	if v.AgentURL != "" {
		binary := ignitionSource{Source: v.AgentURL}
		if v.AgentSHA256 != "" {
			binary.Verification = &ignitionVerification{Hash: "sha256-" + v.AgentSHA256}
		}
		doc.Storage.Files = append(doc.Storage.Files, ignitionFile{Path: agentPath, Mode: 0o755, Overwrite: true, Contents: binary})
		doc.Systemd = &ignitionUnits{Units: []ignitionUnit{{Name: unitName, Enabled: true, Contents: unit}}}
	}
	return json.Marshal(doc)
}
