package esdbtest

import (
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
)

// record is one event as the transaction file holds it.
type record struct {
	most, least int64 // the id
	stream      string
	revision    uint64
	position    uint64
	metadata    map[string]string
	custom      []byte
	data        []byte
}

// log is the transaction file, shared by the nodes of a cluster. It takes whatever bytes it is given.
type log struct {
	mu      sync.Mutex
	records []record
	streams map[string][]int // indices into records
	end     uint64           // the position after the last record
	grown   chan struct{}    // closed when records are added
}

// firstPosition leaves room for what a real file begins with.
const firstPosition = 1111

func newLog() *log {
	l := &log{streams: map[string][]int{}, end: firstPosition, grown: make(chan struct{})}
	l.system("$settings", "$UserCreated")
	return l
}

// verdict is what an append came to.
type verdict struct {
	wrong    bool   // the stream is not at the expected revision
	repeated bool   // the same ids were there already
	next     uint64 // the number of events of the stream
	last     uint64 // the revision of the append's last event
	position uint64 // and its position
}

// append adds proposed to stream if it has exactly expected events (anything if nil). The same ids at the same place
// are taken as done before.
func (l *log) append(stream string, expected *uint64, proposed []*streams.AppendReq_ProposedMessage) verdict {
	l.mu.Lock()
	defer l.mu.Unlock()
	have := uint64(len(l.streams[stream]))
	if expected != nil && *expected != have {
		return l.compare(stream, *expected, proposed)
	}
	v := verdict{last: have - 1}
	for _, p := range proposed {
		id := p.GetId().GetStructured()
		v.last, v.position = l.add(record{
			most: id.GetMostSignificantBits(), least: id.GetLeastSignificantBits(), stream: stream,
			metadata: p.GetMetadata(), custom: p.GetCustomMetadata(), data: p.GetData(),
		})
	}
	v.next = uint64(len(l.streams[stream]))
	if v.next%3 == 0 { // as a server's own statistics come in between
		l.add(record{stream: "$stats-127.0.0.1:2113", metadata: map[string]string{"type": "$statsCollected"}})
	}
	close(l.grown)
	l.grown = make(chan struct{})
	return v
}

// compare judges an append at another revision than the stream's.
func (l *log) compare(stream string, expected uint64, proposed []*streams.AppendReq_ProposedMessage) verdict {
	there := l.streams[stream]
	v := verdict{wrong: true, next: uint64(len(there))}
	if expected+uint64(len(proposed)) > v.next || len(proposed) == 0 {
		return v
	}
	for i, p := range proposed {
		r := l.records[there[expected+uint64(i)]]
		id := p.GetId().GetStructured()
		if r.most != id.GetMostSignificantBits() || r.least != id.GetLeastSignificantBits() {
			return v
		}
		v.last, v.position = r.revision, r.position
	}
	v.wrong, v.repeated = false, true
	return v
}

// add puts r at the end. Every record has a place of its own; larger ones take more of it.
func (l *log) add(r record) (revision, position uint64) {
	r.revision, r.position = uint64(len(l.streams[r.stream])), l.end
	r.metadata["created"] = ticks(time.Now())
	if r.metadata["content-type"] == "" {
		r.metadata["content-type"] = "application/json"
	}
	l.streams[r.stream] = append(l.streams[r.stream], len(l.records))
	l.records = append(l.records, r)
	l.end += 100 + uint64(len(r.data)+len(r.custom))
	return r.revision, r.position
}

// system adds an event of the server's own.
func (l *log) system(stream, kind string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.add(record{stream: stream, metadata: map[string]string{"type": kind}, data: []byte("{}")})
	close(l.grown)
	l.grown = make(chan struct{})
}

// after gives up to count records at or behind a position, and a channel that is closed when there is more.
func (l *log) after(position uint64, count int) ([]record, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := l.find(position)
	return slices.Clone(l.records[i:min(len(l.records), i+count)]), l.grown
}

// before gives up to count records before a position, the last first.
func (l *log) before(position uint64, count int) []record {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := l.find(position)
	found := slices.Clone(l.records[max(0, i-count):i])
	slices.Reverse(found)
	return found
}

// boundary says whether a record begins at position.
func (l *log) boundary(position uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := l.find(position)
	return position == 0 || i < len(l.records) && l.records[i].position == position
}

func (l *log) find(position uint64) int {
	return sort.Search(len(l.records), func(i int) bool { return l.records[i].position >= position })
}

// stream gives the events of a stream in order, and whether it exists.
func (l *log) stream(name string) ([]record, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	indices, exists := l.streams[name]
	events := make([]record, len(indices))
	for i, n := range indices {
		events[i] = l.records[n]
	}
	return events, exists
}

// size is the position at which the next record will be.
func (l *log) size() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.end
}
