package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/projections/agents"
)

// What connectivity says once an agent has joined; before, it stays unknown.
const (
	isConnected    = "connected"
	isDisconnected = "disconnected"
)

// presenceAsked tells whether an answer with these fields tells of agents.
func presenceAsked(fields []string) bool {
	return len(fields) == 0 || slices.Contains(fields, "connectivity") || slices.Contains(fields, "agent")
}

// withPresence puts into views of machines, in one query for all of them, what is known of their agents now. The views
// themselves are of the log alone.
func (a *API) withPresence(ctx context.Context, views []json.RawMessage) error {
	var spots []spot
	var nodes []string
	for i := range views {
		at, err := spotOf(&views[i])
		if err != nil {
			return err
		}
		spots, nodes = append(spots, at), append(nodes, at.node)
	}
	if len(nodes) == 0 {
		return nil
	}
	known, err := agents.Connectivity(ctx, a.db, nodes...)
	if err != nil {
		return readFault(err)
	}
	for _, at := range spots {
		if of, joined := known[at.node]; joined {
			if err := at.fill(of); err != nil {
				return err
			}
		}
	}
	return nil
}

// spot is where the connectivity stands in a view that is JSON, and of which machine it is.
type spot struct {
	view       *json.RawMessage
	node       string
	begin, end int64
}

var errNoSpot = errors.New("a machine's view has no connectivity")

// spotOf walks over the fields of a view up to its connectivity, without decoding them.
func spotOf(view *json.RawMessage) (spot, error) {
	at := spot{view: view}
	d := jsontext.NewDecoder(bytes.NewReader(*view))
	if _, err := d.ReadToken(); err != nil { // the object's beginning
		return at, fmt.Errorf("a machine's view: %w", err)
	}
	for d.PeekKind() == '"' {
		name, err := d.ReadToken()
		if err != nil {
			return at, fmt.Errorf("a machine's view: %w", err)
		}
		field := name.String() // before the next read makes the token void
		value, err := d.ReadValue()
		if err != nil {
			return at, fmt.Errorf("a machine's view: %w", err)
		}
		switch field {
		case "nodeId":
			at.node = string(bytes.Trim(value, `"`))
		case "connectivity":
			at.end = d.InputOffset()
			at.begin = at.end - int64(len(value))
			return at, nil
		}
	}
	return at, errNoSpot
}

// fill writes what is known of the agent over the connectivity.
func (s spot) fill(of agents.OfNode) error {
	shown := contract.NodeAgent{ID: of.AgentID, Role: string(of.Role)}
	if of.LastContact != nil {
		shown.LastContact = moment(*of.LastContact)
	}
	agent, err := json.Marshal(shown)
	if err != nil {
		return err
	}
	view, connectivity := *s.view, isDisconnected
	off := bytes.HasPrefix(view[s.end:], []byte(`,"power":"off"`)) // whoever was heard of a moment ago ran before that
	if !off && of.Connected {
		connectivity = isConnected
	}
	*s.view = slices.Concat(view[:s.begin], []byte(`"`+connectivity+`","agent":`), agent, view[s.end:])
	return nil
}
