package esdb

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	client "github.com/EventStore/EventStore-Client-Go/v4/esdb"

	"github.com/better-compute/metal/domain/event"
)

// envelope is an event's user metadata on the server. Meta is kept as it is: the hash chain is taken over its bytes.
type envelope struct {
	Schema int             `json:"metal"`
	Meta   json.RawMessage `json:"meta"`
}

// wrap makes the user metadata of w by hand: a JSON encoder would be free to write the inner bytes another way.
func wrap(w event.Wire) []byte {
	b := append([]byte(`{"metal":`), strconv.Itoa(w.Schema)...)
	b = append(b, `,"meta":`...)
	b = append(b, w.Meta...)
	return append(b, '}')
}

func unwrap(metadata []byte) (envelope, error) {
	var e envelope
	if err := json.Unmarshal(metadata, &e); err != nil {
		return envelope{}, err
	}
	if e.Schema < 1 || len(e.Meta) == 0 {
		return envelope{}, errors.New("its metadata is not that of this program")
	}
	return e, nil
}

// propose makes what is sent of w.
func propose(w event.Wire) client.EventData {
	return client.EventData{
		EventID: w.ID, EventType: w.Type, ContentType: client.ContentTypeJson, Data: w.Data, Metadata: wrap(w),
	}
}

// size is how the server counts w against its MaxAppendSize: it stores type names in UTF-16.
func size(d client.EventData) int { return len(d.Data) + len(d.Metadata) + 2*len(d.EventType) }

// wire gives back what propose was given. An error says that the event is not ours.
func (s *Store) wire(r *client.RecordedEvent) (event.Wire, error) {
	name, ours := strings.CutPrefix(r.StreamID, s.options.StreamPrefix)
	if !ours || strings.HasPrefix(r.StreamID, "$") || strings.HasPrefix(r.EventType, "$") {
		return event.Wire{}, errors.New("it is of another stream")
	}
	e, err := unwrap(r.UserMetadata)
	if err != nil {
		return event.Wire{}, err
	}
	return event.Wire{
		ID: r.EventID, Stream: event.Stream(name), Version: event.Version(r.EventNumber) + 1, Type: r.EventType,
		Schema: e.Schema, Data: r.Data, Meta: e.Meta,
	}, nil
}

// position is the event's place in $all.
func position(r *client.RecordedEvent) (event.Position, error) {
	if r.Position.Commit > math.MaxInt64 {
		return 0, fmt.Errorf("the server gives no position for %s revision %d: it must be 22.10 or newer",
			r.StreamID, r.EventNumber)
	}
	return event.Position(r.Position.Commit), nil
}

// open decodes an event of ours.
func (s *Store) open(r *client.RecordedEvent, w event.Wire) (event.Recorded, error) {
	p, err := position(r)
	if err != nil {
		return event.Recorded{}, err
	}
	recorded, err := s.registry.Open(w, p, r.CreatedDate)
	if err != nil {
		return event.Recorded{}, err
	}
	s.hashes.put(recorded.Stream, recorded.Version, recorded.Hash)
	return recorded, nil
}
