package esdbtest

import (
	"regexp"
	"strings"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// batchSize is how many records a subscription looks at before it sees whether it shall end.
const batchSize = 32

// subscription is one that runs.
type subscription struct {
	server  *Server
	call    streams.Streams_ReadServer
	matches func(record) bool
	filter  *streams.ReadReq_Options_FilterOptions
	next    uint64 // the first position not looked at
	passed  uint32 // how many records since the last checkpoint
	caught  bool   // whether it said that it has caught up
}

// subscribe sends what is in the log behind a position and then what comes, until the client goes or a fault ends it.
func (a *streamsService) subscribe(o *streams.ReadReq_Options, call streams.Streams_ReadServer) error {
	if o.GetAll() == nil {
		return status.Error(codes.Unimplemented, "only $all")
	}
	matches, err := filter(o.GetFilter())
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	dropped := a.server.dropped()
	s := &subscription{server: a.server, call: call, matches: matches, filter: o.GetFilter(), next: 1}
	switch from := o.GetAll().GetAllOption().(type) {
	case *streams.ReadReq_Options_AllOptions_Position:
		s.next = from.Position.GetCommitPosition() + 1 // unlike a read, it begins behind the position
	case *streams.ReadReq_Options_AllOptions_End:
		s.next = a.server.cluster.log.size()
	}
	if err := call.Send(&streams.ReadResp{Content: &streams.ReadResp_Confirmation{
		Confirmation: &streams.ReadResp_SubscriptionConfirmation{SubscriptionId: uuid.NewString()},
	}}); err != nil {
		return err
	}
	a.server.set(func() {
		a.server.tailings++
		a.server.from = s.next - 1
	})
	return s.run(dropped)
}

func (s *subscription) run(dropped <-chan struct{}) error {
	for {
		found, grown := s.server.cluster.log.after(s.next, batchSize)
		if s.server.is(&s.server.silent) {
			found = nil
		}
		if err := s.tell(found); err != nil {
			return err
		}
		if len(found) > 0 {
			continue
		}
		select {
		case <-grown:
		case <-dropped:
			return status.Error(codes.Aborted, "Subscription dropped")
		case <-s.call.Context().Done():
			return status.FromContextError(s.call.Context().Err()).Err()
		}
	}
}

// tell sends the records that match, checkpoints between those that don't, and that it has caught up.
func (s *subscription) tell(found []record) error {
	for _, r := range found {
		s.next = r.position + 1
		s.passed++
		if s.matches(r) {
			if err := s.call.Send(r.message()); err != nil {
				return err
			}
		}
		if err := s.checkpoint(r); err != nil {
			return err
		}
	}
	if len(found) == 0 && !s.caught && !s.server.is(&s.server.silent) {
		s.caught = true
		caughtUp := &streams.ReadResp_CaughtUp_{CaughtUp: &streams.ReadResp_CaughtUp{}}
		return s.call.Send(&streams.ReadResp{Content: caughtUp})
	}
	return nil
}

// checkpoint tells how far a filtered subscription has looked, each time it has looked at enough records.
func (s *subscription) checkpoint(r record) error {
	if s.filter == nil || s.passed < s.filter.GetMax()*s.filter.GetCheckpointIntervalMultiplier() {
		return nil
	}
	s.passed = 0
	return s.call.Send(&streams.ReadResp{Content: &streams.ReadResp_Checkpoint_{
		Checkpoint: &streams.ReadResp_Checkpoint{CommitPosition: r.position, PreparePosition: r.position},
	}})
}

func filter(o *streams.ReadReq_Options_FilterOptions) (func(record) bool, error) {
	if o == nil {
		return func(record) bool { return true }, nil
	}
	subject, expression := func(r record) string { return r.metadata["type"] }, o.GetEventType()
	if expression == nil {
		subject, expression = func(r record) string { return r.stream }, o.GetStreamIdentifier()
	}
	if prefixes := expression.GetPrefix(); len(prefixes) > 0 {
		return func(r record) bool {
			for _, p := range prefixes {
				if strings.HasPrefix(subject(r), p) {
					return true
				}
			}
			return false
		}, nil
	}
	pattern, err := regexp.Compile(expression.GetRegex())
	if err != nil {
		return nil, err
	}
	return func(r record) bool { return pattern.MatchString(subject(r)) }, nil
}
