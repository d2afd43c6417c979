package agentcommand

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/better-compute/metal/domain/id"
)

// SigningInput is what an agent signs with its Ed25519 key: the facts that bind a result to the order it answers. Each field
// is written after its length, so that no two sets of facts give the same bytes. schema/agent-protocol.md has it too.
func SigningInput(c id.AgentCommand, kind KindName, n id.Node, attempt int, bootID string, payload, result []byte, at time.Time,
) []byte {
	payloadDigest, resultDigest := sha256.Sum256(payload), sha256.Sum256(result)
	out := []byte("better-compute/metal agent result v1\n")
	for _, field := range [][]byte{
		[]byte(c.String()), []byte(kind), []byte(n.String()), binary.BigEndian.AppendUint32(nil, uint32(attempt)),
		[]byte(bootID), payloadDigest[:], resultDigest[:], []byte(at.UTC().Format(time.RFC3339Nano)),
	} {
		out = binary.BigEndian.AppendUint32(out, uint32(len(field)))
		out = append(out, field...)
	}
	return out
}
