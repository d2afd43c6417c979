package esdbtest

import (
	"slices"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// Read answers reads of a stream or of $all, and subscriptions to $all.
func (a *streamsService) Read(req *streams.ReadReq, call streams.Streams_ReadServer) error {
	o := req.GetOptions()
	if o.GetSubscription() != nil {
		return a.subscribe(o, call)
	}
	if a.server.take(&a.server.busy) {
		return status.Error(codes.Unavailable, "Server Is Not Ready")
	}
	if a.server.take(&a.server.chatter) {
		if err := call.Send(&streams.ReadResp{Content: &streams.ReadResp_FirstStreamPosition{}}); err != nil {
			return err
		}
	}
	if o.GetStream() != nil {
		return a.readStream(o, call)
	}
	return a.readAll(o, call)
}

func (a *streamsService) readStream(o *streams.ReadReq_Options, call streams.Streams_ReadServer) error {
	name := o.GetStream().GetStreamIdentifier()
	events, exists := a.server.cluster.log.stream(string(name.GetStreamName()))
	if !exists {
		return call.Send(&streams.ReadResp{Content: &streams.ReadResp_StreamNotFound_{
			StreamNotFound: &streams.ReadResp_StreamNotFound{StreamIdentifier: name}}})
	}
	have := uint64(len(events))
	backwards := o.GetReadDirection() == streams.ReadReq_Options_Backwards
	first := uint64(0)
	switch from := o.GetStream().GetRevisionOption().(type) {
	case *streams.ReadReq_Options_StreamOptions_Revision:
		first = from.Revision
	case *streams.ReadReq_Options_StreamOptions_End:
		first = have
	}
	if backwards {
		events = events[:min(have, first+1)]
		slices.Reverse(events)
	} else {
		events = events[min(have, first):]
	}
	return sendAll(call, events[:min(uint64(len(events)), o.GetCount())])
}

func (a *streamsService) readAll(o *streams.ReadReq_Options, call streams.Streams_ReadServer) error {
	const wholeLog = 1 << 62
	log, position := a.server.cluster.log, uint64(0)
	switch from := o.GetAll().GetAllOption().(type) {
	case *streams.ReadReq_Options_AllOptions_Position:
		position = from.Position.GetCommitPosition()
		if !log.boundary(position) {
			call.SetTrailer(metadata.Pairs("exception", "unknown"))
			return status.Error(codes.Unknown, "Unexpected ReadAllResult: Error")
		}
	case *streams.ReadReq_Options_AllOptions_End:
		position = wholeLog
	}
	count := int(min(o.GetCount(), 1<<20))
	if o.GetReadDirection() == streams.ReadReq_Options_Backwards {
		return sendAll(call, log.before(position, count))
	}
	events, _ := log.after(position, count)
	return sendAll(call, events)
}

func sendAll(call streams.Streams_ReadServer, events []record) error {
	for _, e := range events {
		if err := call.Send(e.message()); err != nil {
			return err
		}
	}
	return nil
}

// message is how an event is sent. Its metadata always says when it was created: the client ends the program otherwise.
func (r record) message() *streams.ReadResp {
	return &streams.ReadResp{Content: &streams.ReadResp_Event{Event: &streams.ReadResp_ReadEvent{
		Event: &streams.ReadResp_ReadEvent_RecordedEvent{
			Id: &shared.UUID{Value: &shared.UUID_Structured_{
				Structured: &shared.UUID_Structured{MostSignificantBits: r.most, LeastSignificantBits: r.least},
			}},
			StreamIdentifier: &shared.StreamIdentifier{StreamName: []byte(r.stream)},
			StreamRevision:   r.revision, CommitPosition: r.position, PreparePosition: r.position,
			Metadata: r.metadata, CustomMetadata: r.custom, Data: r.data,
		},
		Position: &streams.ReadResp_ReadEvent_CommitPosition{CommitPosition: r.position},
	}}}
}
