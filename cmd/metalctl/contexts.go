package main

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/goccy/go-yaml"
)

// target is how to reach one control plane, as the file of contexts keeps it.
type target struct {
	URL       string `yaml:"url"`
	TokenFile string `yaml:"tokenFile,omitempty"`
	Token     string `yaml:"token,omitempty"`
	CAFile    string `yaml:"caFile,omitempty"`
	CertFile  string `yaml:"certFile,omitempty"`
	KeyFile   string `yaml:"keyFile,omitempty"`
}

// contexts is the file of contexts.
type contexts struct {
	Current  string            `yaml:"current,omitempty"`
	Contexts map[string]target `yaml:"contexts,omitempty"`
}

// contextsPath is in the folder for configuration of the XDG Base Directory Specification.
func contextsPath() (string, error) {
	dir := os.Getenv("XDG_CONFIG_HOME")
	if !filepath.IsAbs(dir) { // as the specification wants it
		home, err := os.UserHomeDir()
		if err != nil {
			return "", usage("there is no home directory for the contexts: set XDG_CONFIG_HOME")
		}
		dir = filepath.Join(home, ".config")
	}
	return filepath.Join(dir, "metalctl", "contexts.yaml"), nil
}

// readContexts gives none where there is no file yet, or no place for one.
func readContexts() (contexts, error) {
	path, err := contextsPath()
	if err != nil {
		return contexts{}, nil //nolint:nilerr // without a home there are no contexts, and flags still work
	}
	raw, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return contexts{}, nil
	}
	if err != nil {
		return contexts{}, usage("the contexts cannot be read: %s", err)
	}
	var all contexts
	if err := yaml.UnmarshalWithOptions(raw, &all, yaml.Strict()); err != nil {
		return contexts{}, usage("%s is not valid; it was not changed", path) // the parser's text would repeat a token
	}
	return all, nil
}

// readableByOthers is the file of contexts where its owner is not the only one who may read it; empty: nobody else may. A file that a
// backup gave back or that was copied has other permissions than write gives it.
func readableByOthers() string {
	path, err := contextsPath()
	if err != nil {
		return ""
	}
	if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o077 != 0 {
		return path
	}
	return ""
}

// write replaces the file as a whole, readable by its owner alone.
func (c contexts) write() error {
	path, err := contextsPath()
	if err != nil {
		return err
	}
	raw, err := yaml.Marshal(c)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return usage("the contexts cannot be written: %s", err)
	}
	fresh, err := os.CreateTemp(filepath.Dir(path), "contexts-*") // made with mode 0600
	if err != nil {
		return usage("the contexts cannot be written: %s", err)
	}
	_, err = fresh.Write(raw)
	err = errors.Join(err, fresh.Close())
	if err == nil {
		err = os.Rename(fresh.Name(), path)
	}
	if err != nil {
		_ = os.Remove(fresh.Name()) // what is left of a failed write
		return usage("the contexts cannot be written: %s", err)
	}
	return nil
}
