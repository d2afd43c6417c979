package authz

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
	cedarschema "github.com/cedar-policy/cedar-go/x/exp/schema"
	"github.com/cedar-policy/cedar-go/x/exp/schema/validate"

	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/schema"
)

// File is a document of Cedar policies.
type File struct {
	Name string // shown in errors
	Text []byte
}

// ReadDir reads every *.cedar file of a folder, in the order of their names. Errors: INVALID_CONFIG.
func ReadDir(dir string) ([]File, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.cedar"))
	if err == nil {
		_, err = os.Stat(dir)
	}
	if err != nil {
		return nil, fault.Wrap(err, fault.InvalidConfig, "the folder of policies cannot be read: %s", err)
	}
	files := make([]File, 0, len(names))
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, fault.Wrap(err, fault.InvalidConfig, "a policy cannot be read: %s", err)
		}
		files = append(files, File{Name: name, Text: text})
	}
	return files, nil
}

// policySets are the shipped policies alone, which decide on reading, and with the operator's, which decide on the
// rest.
type policySets struct{ shipped, all cedar.PolicyMap }

func compile(own []File) (policySets, error) {
	sets := policySets{shipped: cedar.PolicyMap{}, all: cedar.PolicyMap{}}
	files, err := shipped()
	if err != nil {
		return sets, err
	}
	var issues []fault.Issue
	for _, f := range files {
		issues = append(issues, f.add(sets.shipped)...)
		issues = append(issues, f.add(sets.all)...)
	}
	check, err := checker()
	if err != nil {
		return sets, err
	}
	for _, f := range own {
		issues = append(issues, f.add(sets.all, onlyForbids, check)...)
	}
	if len(issues) > 0 {
		return sets, &fault.Error{
			Code: fault.InvalidConfig, Message: "the authorization policies are not valid", Issues: issues,
			Remedy: "correct the listed lines; schema/policies/metal.cedarschema lists what a policy may speak of",
		}
	}
	return sets, nil
}

func shipped() ([]File, error) {
	names, err := fs.Glob(schema.Policies, "policies/*.cedar")
	if err != nil {
		return nil, fmt.Errorf("list shipped policies: %w", err)
	}
	files := make([]File, 0, len(names))
	for _, name := range names {
		text, err := schema.Policies.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("read shipped policy: %w", err)
		}
		files = append(files, File{Name: "schema/" + name, Text: text})
	}
	return files, nil
}

// rule says what is wrong with a policy; nil: nothing.
type rule func(*cedar.Policy) error

// add parses the file into the set under <file>:<line>, and lists what is wrong.
func (f File) add(into cedar.PolicyMap, rules ...rule) []fault.Issue {
	list, err := cedar.NewPolicyListFromBytes(f.Name, f.Text)
	if err != nil {
		return []fault.Issue{f.parseIssue(err)}
	}
	var issues []fault.Issue
	for i, p := range list {
		at := fmt.Sprintf("%s:%d", f.Name, p.Position().Line)
		for _, broken := range rules {
			if err := broken(p); err != nil {
				issues = append(issues, fault.Issue{Path: at, Message: oneLine(err)})
			}
		}
		into[cedar.PolicyID(fmt.Sprintf("%s#%d", at, i))] = p
	}
	return issues
}

var position = regexp.MustCompile(`<input>:(\d+):(\d+)`)

// parseIssue takes the line out of the parser's message.
func (f File) parseIssue(err error) fault.Issue {
	path, message := f.Name, oneLine(err)
	if m := position.FindStringSubmatch(message); m != nil {
		path += ":" + m[1]
	}
	return fault.Issue{Path: path, Message: strings.TrimPrefix(message, "parser error: ")}
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

func onlyForbids(p *cedar.Policy) error {
	if p.Effect() == cedar.Permit {
		return errors.New("an operator's policy can only forbid; bindings permit")
	}
	return nil
}

// checker refuses a policy that speaks of what is not in the schema: a forbid with a misspelt action would forbid
// nothing.
func checker() (rule, error) {
	const name = "policies/metal.cedarschema"
	text, err := schema.Policies.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("read policy schema: %w", err)
	}
	var s cedarschema.Schema
	s.SetFilename(name)
	if err := s.UnmarshalCedar(text); err != nil {
		return nil, fmt.Errorf("parse policy schema: %w", err)
	}
	resolved, err := s.Resolve()
	if err != nil {
		return nil, fmt.Errorf("resolve policy schema: %w", err)
	}
	v := validate.New(resolved)
	return func(p *cedar.Policy) error { return v.Policy("", (*ast.Policy)(p.AST())) }, nil
}
