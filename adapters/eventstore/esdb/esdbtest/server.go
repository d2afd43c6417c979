// Package esdbtest is a server of EventStoreDB's gRPC protocol over an in-memory log, so that the real client can be
// tested on a real wire: append, read and subscribe, gossip and server features. It is made from the protocol files
// that the client's module carries and from what the client relies on beyond them:
//
//   - pings each five seconds are permitted, also without a call;
//   - every event's metadata holds "created", in ticks of 100 ns;
//   - a subscription begins with its confirmation, and tells that it has caught up also where there is nothing to tell;
//   - positions of streams are not sent unless asked for;
//   - what an error means stands in trailers beside its status code;
//   - $all holds the server's own events among the others;
//   - a read of $all begins at a record, and anything else is an error.
//
// Tests break it on purpose: see Faults.
package esdbtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/gossip"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/serverfeatures"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/stats"
)

// Server is one node. The zero value is not usable: see Start.
type Server struct {
	Faults
	t       testing.TB
	cluster *cluster
	address string

	mu          sync.Mutex
	running     *grpc.Server
	served      chan struct{} // closed when running has ended
	connections atomic.Int64
}

// cluster is what nodes share.
type cluster struct {
	log    *log
	mu     sync.Mutex
	leader *Server
	nodes  []*Server
}

// Start begins a cluster of one node on a free local port. It ends with the test.
func Start(t testing.TB) *Server {
	t.Helper()
	c := &cluster{log: newLog()}
	s := c.join(t)
	s.Lead()
	return s
}

// Peer adds a node with the same log. It is no leader until Lead is called.
func (s *Server) Peer() *Server { return s.cluster.join(s.t) }

func (c *cluster) join(t testing.TB) *Server {
	t.Helper()
	s := &Server{t: t, cluster: c, address: "127.0.0.1:0"}
	s.Faults.init()
	c.mu.Lock()
	c.nodes = append(c.nodes, s)
	c.mu.Unlock()
	s.Restart()
	t.Cleanup(s.Stop)
	return s
}

// Lead makes s the leader. The other nodes then refuse requests that need one, and say where it is.
func (s *Server) Lead() {
	s.cluster.mu.Lock()
	defer s.cluster.mu.Unlock()
	s.cluster.leader = s
}

func (c *cluster) leads() *Server {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leader
}

// Address is host:port of the node.
func (s *Server) Address() string { return s.address }

// URL is a connection string for the node alone.
func (s *Server) URL() string { return "esdb://" + s.address + "?tls=false&gossipTimeout=1" }

// ClusterURL is a connection string by which a client asks all nodes for the leader.
func (s *Server) ClusterURL() string {
	s.cluster.mu.Lock()
	defer s.cluster.mu.Unlock()
	hosts := ""
	for i, n := range s.cluster.nodes {
		if i > 0 {
			hosts += ","
		}
		hosts += n.address
	}
	return "esdb://" + hosts + "?tls=false&gossipTimeout=1"
}

// Stop closes every connection and refuses new ones. The log is kept.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == nil {
		return
	}
	s.Faults.release()
	s.running.Stop()
	<-s.served
	s.running = nil
}

// Restart listens again, at the same address after the first time.
func (s *Server) Restart() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	listener, err := listen(s.address)
	if err != nil {
		s.t.Fatalf("esdbtest: %v", err)
	}
	s.address = listener.Addr().String()
	s.running, s.served = s.build(), make(chan struct{})
	go func(server *grpc.Server, served chan struct{}) {
		defer close(served)
		if err := server.Serve(listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			s.t.Errorf("esdbtest: %v", err)
		}
	}(s.running, s.served)
}

// listen waits for an address that connections of before may still hold.
func listen(address string) (net.Listener, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
		if err == nil {
			return listener, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("listen on %s: %w", address, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (s *Server) build() *grpc.Server {
	server := grpc.NewServer(
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.UnaryInterceptor(s.interceptUnary), grpc.StreamInterceptor(s.interceptStream),
		grpc.StatsHandler(connectionCount{s}), grpc.MaxRecvMsgSize(17<<20),
	)
	streams.RegisterStreamsServer(server, &streamsService{server: s})
	gossip.RegisterGossipServer(server, &gossipService{cluster: s.cluster})
	serverfeatures.RegisterServerFeaturesServer(server, featuresService{})
	return server
}

// Connections is how many clients are connected now.
func (s *Server) Connections() int { return int(s.connections.Load()) }

// SystemEvent puts an event of the server's own at the end of the log.
func (s *Server) SystemEvent() { s.cluster.log.system("$stats-127.0.0.1:2113", "$statsCollected") }

// Stored gives the bytes of a stream's events as they came: the data of each, and its user metadata.
func (s *Server) Stored(stream string) (data, metadata [][]byte) {
	events, _ := s.cluster.log.stream(stream)
	for _, e := range events {
		data, metadata = append(data, e.data), append(metadata, e.custom)
	}
	return data, metadata
}

// connectionCount counts connections.
type connectionCount struct{ server *Server }

func (connectionCount) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (connectionCount) HandleRPC(context.Context, stats.RPCStats)                         {}
func (connectionCount) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn counts the beginning and the end of a connection.
func (c connectionCount) HandleConn(_ context.Context, s stats.ConnStats) {
	switch s.(type) {
	case *stats.ConnBegin:
		c.server.connections.Add(1)
	case *stats.ConnEnd:
		c.server.connections.Add(-1)
	}
}
