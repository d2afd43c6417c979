package esdbtest

import (
	"errors"
	"io"
	"strconv"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// maxAppendSize is the server's default.
const maxAppendSize = 1 << 20

// streamsService reads and appends. The client that is tested makes no other calls of this service: those that are not
// here answer "unimplemented", as an older server does.
type streamsService struct {
	streams.UnimplementedStreamsServer
	server *Server
}

// Append takes the options first, then the events, and writes all of them or none.
func (a *streamsService) Append(call streams.Streams_AppendServer) error {
	s := a.server
	s.count(&s.appends)
	first, err := call.Recv()
	if err != nil {
		return err
	}
	options := first.GetOptions()
	if options == nil {
		return status.Error(codes.InvalidArgument, "options come first")
	}
	proposed, err := a.collect(call)
	if err != nil {
		return err
	}
	name := string(options.GetStreamIdentifier().GetStreamName())
	v := s.cluster.log.append(name, expected(options), proposed)
	if v.repeated && s.is(&s.strict) && v.last+1 < v.next {
		v.wrong = true
	}
	if s.take(&s.lose) {
		return status.Error(codes.Unavailable, "Server Is Not Ready")
	}
	return call.SendAndClose(a.answer(options, v))
}

// collect receives the events.
func (a *streamsService) collect(call streams.Streams_AppendServer) ([]*streams.AppendReq_ProposedMessage, error) {
	var proposed []*streams.AppendReq_ProposedMessage
	size := 0
	for {
		m, err := call.Recv()
		if errors.Is(err, io.EOF) {
			return proposed, nil
		}
		if err != nil {
			return nil, err
		}
		p := m.GetProposedMessage()
		if p == nil || p.GetMetadata()["type"] == "" || p.GetMetadata()["content-type"] == "" {
			return nil, status.Error(codes.InvalidArgument, "an event needs a type and a content type")
		}
		if len(proposed) == 1 && a.server.take(&a.server.refuse) {
			return nil, status.Error(codes.Unknown, "Exception was thrown by handler.")
		}
		proposed = append(proposed, p)
		size += len(p.GetData()) + len(p.GetCustomMetadata()) + 2*len(p.GetMetadata()["type"])
		if size > maxAppendSize {
			call.SetTrailer(metadata.Pairs("exception", "maximum-append-size-exceeded",
				"maximum-append-size", strconv.Itoa(maxAppendSize)))
			return nil, status.Error(codes.InvalidArgument, "Maximum Append Size Exceeded")
		}
	}
}

// expected is how many events the stream must have; nil for any.
func expected(o *streams.AppendReq_Options) *uint64 {
	n := uint64(0)
	switch e := o.GetExpectedStreamRevision().(type) {
	case *streams.AppendReq_Options_NoStream:
	case *streams.AppendReq_Options_Revision:
		n = e.Revision + 1
	default:
		return nil
	}
	return &n
}

func (a *streamsService) answer(o *streams.AppendReq_Options, v verdict) *streams.AppendResp {
	if v.wrong {
		return &streams.AppendResp{Result: &streams.AppendResp_WrongExpectedVersion_{WrongExpectedVersion: wrong(o, v)}}
	}
	success := &streams.AppendResp_Success{
		CurrentRevisionOption: &streams.AppendResp_Success_CurrentRevision{CurrentRevision: v.last},
		PositionOption: &streams.AppendResp_Success_Position{
			Position: &streams.AppendResp_Position{CommitPosition: v.position, PreparePosition: v.position},
		},
	}
	if v.repeated && a.server.is(&a.server.vague) {
		success.PositionOption = &streams.AppendResp_Success_NoPosition{NoPosition: &shared.Empty{}}
	}
	return &streams.AppendResp{Result: &streams.AppendResp_Success_{Success: success}}
}

func wrong(o *streams.AppendReq_Options, v verdict) *streams.AppendResp_WrongExpectedVersion {
	w := &streams.AppendResp_WrongExpectedVersion{}
	if r, ok := o.GetExpectedStreamRevision().(*streams.AppendReq_Options_Revision); ok {
		w.ExpectedRevisionOption = &streams.AppendResp_WrongExpectedVersion_ExpectedRevision{ExpectedRevision: r.Revision}
	} else {
		w.ExpectedRevisionOption = &streams.AppendResp_WrongExpectedVersion_ExpectedNoStream{
			ExpectedNoStream: &shared.Empty{}}
	}
	if v.next == 0 {
		w.CurrentRevisionOption = &streams.AppendResp_WrongExpectedVersion_CurrentNoStream{
			CurrentNoStream: &shared.Empty{}}
	} else {
		w.CurrentRevisionOption = &streams.AppendResp_WrongExpectedVersion_CurrentRevision{CurrentRevision: v.next - 1}
	}
	return w
}
