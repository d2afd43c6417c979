package esdbtest

import (
	"context"
	"net"
	"strconv"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/gossip"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/serverfeatures"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// gossipService tells who is in the cluster.
type gossipService struct {
	gossip.UnimplementedGossipServer
	cluster *cluster
}

// Read lists the nodes and which of them leads.
func (g *gossipService) Read(context.Context, *shared.Empty) (*gossip.ClusterInfo, error) {
	g.cluster.mu.Lock()
	defer g.cluster.mu.Unlock()
	info := &gossip.ClusterInfo{}
	for i, n := range g.cluster.nodes {
		state := gossip.MemberInfo_Follower
		if n == g.cluster.leader {
			state = gossip.MemberInfo_Leader
		}
		host, port := n.endpoint()
		info.Members = append(info.Members, &gossip.MemberInfo{
			InstanceId: &shared.UUID{Value: &shared.UUID_Structured_{
				Structured: &shared.UUID_Structured{MostSignificantBits: 1, LeastSignificantBits: int64(i)},
			}},
			TimeStamp: time.Now().UnixNano() / 100, State: state, IsAlive: n.alive(),
			HttpEndPoint: &gossip.EndPoint{Address: host, Port: port},
		})
	}
	return info, nil
}

func (s *Server) endpoint() (host string, port uint32) {
	host, text, _ := net.SplitHostPort(s.address)
	n, _ := strconv.ParseUint(text, 10, 16)
	return host, uint32(n)
}

func (s *Server) alive() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running != nil
}

// featuresService tells what the server can do.
type featuresService struct {
	serverfeatures.UnimplementedServerFeaturesServer
}

// GetSupportedMethods names the methods that this server has.
func (featuresService) GetSupportedMethods(context.Context, *shared.Empty) (*serverfeatures.SupportedMethods, error) {
	method := func(service, name string) *serverfeatures.SupportedMethod {
		return &serverfeatures.SupportedMethod{ServiceName: service, MethodName: name}
	}
	methods := []*serverfeatures.SupportedMethod{
		method("event_store.client.streams.streams", "read"),
		method("event_store.client.streams.streams", "append"),
		method("event_store.client.gossip.gossip", "read"),
		method("event_store.client.server_features.serverfeatures", "getsupportedmethods"),
	}
	return &serverfeatures.SupportedMethods{EventStoreServerVersion: "22.10.0", Methods: methods}, nil
}

// notLeader refuses a call and says where the leader is.
func notLeader(stream grpc.ServerStream, leader *Server) error {
	host, port := leader.endpoint()
	stream.SetTrailer(metadata.Pairs("exception", "not-leader",
		"leader-endpoint-host", host, "leader-endpoint-port", strconv.FormatUint(uint64(port), 10)))
	return status.Error(codes.NotFound, "Leader info available")
}

// ticks is t as servers write it: units of 100 ns since 1970.
func ticks(t time.Time) string { return strconv.FormatInt(t.UnixNano()/100, 10) }
