package sim

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/better-compute/metal/adapters/disk"
	"github.com/better-compute/metal/domain/fault"
)

// AgentFile is where user data puts what the agent of an installed OS needs.
const AgentFile = "/etc/bcd/agent.json"

// AgentConfig is the content of AgentFile.
type AgentConfig struct {
	Gateway string `json:"gateway"`
	CA      string `json:"caSha256"`
	Token   string `json:"token"`
}

// cloudConfig is as much of cloud-init's user data as the simulated OS understands.
type cloudConfig struct {
	Hostname   string `yaml:"hostname"`
	WriteFiles []struct {
		Path     string `yaml:"path"`
		Content  string `yaml:"content"`
		Encoding string `yaml:"encoding"`
	} `yaml:"write_files"`
}

// ignition is as much of an Ignition config as the simulated OS understands.
type ignition struct {
	Storage struct {
		Files []struct {
			Path     string `json:"path"`
			Contents struct {
				Source string `json:"source"`
			} `json:"contents"`
		} `json:"files"`
	} `json:"storage"`
}

// ReadAgentConfig gives what the user data on a disk lets the OS's agent join with.
func ReadAgentConfig(d disk.Device) (AgentConfig, error) {
	_, config, err := readUserData(d)
	return config, err
}

// readUserData does what cloud-init or Ignition does at the first boot.
func readUserData(d disk.Device) (hostname string, config AgentConfig, err error) {
	files, err := disk.ReadConfigDrive(d)
	if err != nil {
		return "", AgentConfig{}, err
	}
	var content []byte
	if ign, ok := files["config.ign"]; ok {
		content, err = fromIgnition(ign)
	} else {
		hostname, content, err = fromCloudInit(files["user-data"])
	}
	if err != nil {
		return "", AgentConfig{}, err
	}
	if err := json.Unmarshal(content, &config); err != nil || config.Gateway == "" {
		return "", AgentConfig{}, fault.New(fault.InvalidInput, "%s names no gateway", AgentFile)
	}
	var meta struct {
		Hostname string `yaml:"local-hostname"`
	}
	_ = yaml.Unmarshal(files["meta-data"], &meta) // a host without a name goes by the machine's
	return cmp.Or(hostname, meta.Hostname), config, nil
}

func fromCloudInit(userData []byte) (hostname string, agentFile []byte, err error) {
	var c cloudConfig
	if !strings.HasPrefix(string(userData), "#cloud-config") || yaml.Unmarshal(userData, &c) != nil {
		return "", nil, fault.New(fault.InvalidInput, "the user data is no cloud-config")
	}
	for _, f := range c.WriteFiles {
		if f.Path != AgentFile {
			continue
		}
		switch f.Encoding {
		case "", "text/plain":
			return c.Hostname, []byte(f.Content), nil
		case "b64", "base64":
			agentFile, err = base64.StdEncoding.DecodeString(f.Content)
			return c.Hostname, agentFile, err
		}
	}
	return "", nil, fault.New(fault.NotFound, "the user data has no %s", AgentFile)
}

func fromIgnition(config []byte) ([]byte, error) {
	var c ignition
	if err := json.Unmarshal(config, &c); err != nil {
		return nil, fault.New(fault.InvalidInput, "the Ignition config is not JSON")
	}
	for _, f := range c.Storage.Files {
		head, data, ok := strings.Cut(f.Contents.Source, ",")
		if f.Path != AgentFile || !ok || !strings.HasPrefix(head, "data:") {
			continue
		}
		if strings.HasSuffix(head, ";base64") {
			return base64.StdEncoding.DecodeString(data)
		}
		text, err := url.PathUnescape(data)
		return []byte(text), err
	}
	return nil, fault.New(fault.NotFound, "the Ignition config has no %s", AgentFile)
}
