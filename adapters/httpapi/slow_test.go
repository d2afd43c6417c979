package httpapi

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"slices"
	"testing"
	"time"
)

// A request whose body never comes is answered all the same, and its connection is not kept for it: nobody needs a token to send
// headers.
func TestABodyThatNeverComes(t *testing.T) {
	w := start(t)
	w.api.sending = 50 * time.Millisecond
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := Server("", w.api)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	for name, head := range map[string]string{
		"no token":   "POST /v1/nodes HTTP/1.1\r\nContent-Length: 1000\r\n",
		"no path":    "POST /nowhere HTTP/1.1\r\nContent-Length: 1000\r\n",
		"a read":     "GET /healthz HTTP/1.1\r\nContent-Length: 1000\r\n",
		"chunks":     "GET /healthz HTTP/1.1\r\nTransfer-Encoding: chunked\r\n",
		"with token": "POST /v1/nodes HTTP/1.1\r\nContent-Length: 1000\r\nAuthorization: Bearer " + adminToken + "\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(conn, head+"Host: x\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			in := bufio.NewReader(conn)
			got, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatalf("no answer: %v", err)
			}
			_, err = io.Copy(io.Discard, got.Body)
			_ = got.Body.Close()
			if err != nil {
				t.Fatal(err)
			}
			if n, err := io.Copy(io.Discard, in); err != nil || n > 0 {
				t.Errorf("the connection is kept: %d more bytes, %v", n, err)
			}
		})
	}
}

// A caller that takes nothing of an answer is cut off, and needs no token to be: what it asked for ends.
func TestAnAnswerThatNobodyTakes(t *testing.T) {
	w := start(t)
	w.api.writing = 50 * time.Millisecond
	here, there := net.Pipe() // it holds nothing
	conns := make(chan net.Conn, 1)
	conns <- there
	server := Server("", w.api)
	go func() { _ = server.Serve(pipes{conns}) }()
	t.Cleanup(func() { _ = server.Close() })
	if _, err := io.WriteString(here, "GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	w.eventually("the answer ends", func() bool {
		w.seen.mu.Lock()
		defer w.seen.mu.Unlock()
		return slices.Contains(w.seen.served, "GET /openapi.json 200")
	})
	if _, err := io.Copy(io.Discard, here); err != nil {
		t.Errorf("the connection stays: %v", err)
	}
}
