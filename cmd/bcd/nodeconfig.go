package main

import (
	"encoding/json"
	"os"

	"github.com/better-compute/metal/cmd/program"
)

// installed is the file that a deployed machine finds in its user data: where to join, and with what.
type installed struct {
	Gateway  string `json:"gateway"`
	CASHA256 string `json:"caSha256"`
	Token    string `json:"token"`
}

// readInstalled takes what no option gave from the file, and gives its token. What is wrong is noted; no text of the file is
// repeated, for it holds a token.
func (c *config) readInstalled(path string, w *program.Issues) (token string) {
	if path == "" {
		return ""
	}
	text, err := os.ReadFile(path)
	if err != nil {
		w.Option("config", "%v", err)
		return ""
	}
	var in installed
	if json.Unmarshal(text, &in) != nil {
		w.Option("config", "%s is not of the form {\"gateway\": …, \"caSha256\": …, \"token\": …}", path)
		return ""
	}
	if c.gateway == "" {
		c.gateway = in.Gateway
	}
	if c.ca == "" {
		c.ca = in.CASHA256
	}
	return in.Token
}
