package agentapi_test

import (
	"bufio"
	"crypto/tls"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/metal/adapters/agentapi"
	"github.com/better-compute/metal/adapters/agentapi/protocol"
)

// A request whose body never comes is answered all the same, and its connection is not kept for it: anybody may send headers.
func TestABodyThatNeverComes(t *testing.T) {
	g := newWorld(t).gateway(func(c *agentapi.Config) { c.Sending = 50 * time.Millisecond })
	for name, head := range map[string]string{
		"a join":     "POST " + protocol.PathJoin + " HTTP/1.1\r\nContent-Length: 1000\r\n",
		"a stranger": "POST " + protocol.PathPoll + " HTTP/1.1\r\nContent-Length: 1000\r\n",
		"no path":    "POST /nowhere HTTP/1.1\r\nTransfer-Encoding: chunked\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			dialer := tls.Dialer{Config: &tls.Config{
				InsecureSkipVerify: true, // who answers is not the question
				MinVersion:         tls.VersionTLS13, NextProtos: []string{"http/1.1"},
			}}
			conn, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(g.url, "https://"))
			fatal(t, err)
			defer func() { _ = conn.Close() }()
			fatal(t, conn.SetDeadline(time.Now().Add(patience)))
			_, err = io.WriteString(conn, head+"Host: x\r\n\r\n")
			fatal(t, err)
			in := bufio.NewReader(conn)
			got, err := http.ReadResponse(in, nil)
			fatal(t, err)
			_, err = io.Copy(io.Discard, got.Body)
			fatal(t, err)
			fatal(t, got.Body.Close())
			if n, err := io.Copy(io.Discard, in); err != nil || n > 0 {
				t.Errorf("the connection is kept: %d more bytes, %v", n, err)
			}
		})
	}
}
