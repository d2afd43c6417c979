package nbd

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
)

// client speaks the protocol from the other side.
type client struct {
	t *testing.T
	net.Conn
}

func (c client) send(values ...any) {
	c.t.Helper()
	var out bytes.Buffer
	for _, v := range values {
		if err := binary.Write(&out, order, v); err != nil {
			c.t.Fatal(err)
		}
	}
	if _, err := c.Write(out.Bytes()); err != nil {
		c.t.Fatal(err)
	}
}

func (c client) receive(n int) []byte {
	c.t.Helper()
	p := make([]byte, n)
	if _, err := io.ReadFull(c, p); err != nil {
		c.t.Fatal(err)
	}
	return p
}

// do makes one request and gives what was read.
func (c client) do(kind uint16, offset uint64, length uint32, data []byte) (code uint32, read []byte) {
	c.t.Helper()
	c.send(request{magicRequest, 0, kind, 77, offset, length}, data)
	reply := c.receive(16)
	if order.Uint32(reply) != magicReply || order.Uint64(reply[8:]) != 77 {
		c.t.Fatalf("the reply is %x", reply)
	}
	if code = order.Uint32(reply[4:]); code == 0 && kind == doRead {
		read = c.receive(int(length))
	}
	return code, read
}

func serve(t *testing.T) (*Disk, client) {
	t.Helper()
	dir, err := os.MkdirTemp("", "nbd-") //nolint:usetesting // the name of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	name, socket := filepath.Join(dir, "disk"), filepath.Join(dir, "socket")
	if err := os.WriteFile(name, bytes.Repeat([]byte("x"), 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := Serve(socket, name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	c := client{t, conn}
	if hello := c.receive(18); order.Uint64(hello) != magicHello {
		t.Fatalf("it says %x", hello)
	}
	c.send(uint32(handshakeFixed|handshakeNoZeroes), option{magicOption, 8, 0}) // structured replies
	if said := c.receive(20); order.Uint32(said[12:]) != answerUnsupported {
		t.Errorf("to what it does not know it says %x", said)
	}
	c.send(option{magicOption, optionGo, 6}, make([]byte, 6))
	if said := c.receive(20 + 12); order.Uint32(said[12:]) != answerInfo || order.Uint64(said[22:]) != 1<<20 {
		t.Errorf("of the disk it says %x", said)
	}
	if said := c.receive(20); order.Uint32(said[12:]) != answerDone {
		t.Errorf("it ends with %x", said)
	}
	return d, c
}

// A disk holds what was written; what it says of an erase is true until it lies.
func TestADiskThatLies(t *testing.T) {
	d, c := serve(t)
	read := func(offset uint64) string {
		code, got := c.do(doRead, offset, 4, nil)
		if code != 0 {
			t.Errorf("reading at %d: %d", offset, code)
		}
		return string(got)
	}
	for kind, want := range map[uint16]uint32{doWrite: 0, doFlush: 0, 99: failedInput} {
		data := []byte(nil)
		if kind == doWrite {
			data = []byte("mark")
		}
		if code, _ := c.do(kind, 4096, uint32(len(data)), data); code != want {
			t.Errorf("request %d: %d", kind, code)
		}
	}
	if got := read(4096); got != "mark" {
		t.Errorf("it holds %q", got)
	}
	d.Lie(true)
	for _, kind := range []uint16{doZero, doTrim} {
		if code, _ := c.do(kind, 4096, 4096, nil); code != 0 || read(4096) != "mark" {
			t.Errorf("a lie: %d, %q", code, read(4096))
		}
	}
	if d.Lies() != 2 {
		t.Errorf("it lied %d times", d.Lies())
	}
	d.Lie(false)
	if code, _ := c.do(doZero, 4096, 4096, nil); code != 0 || read(4096) != "\x00\x00\x00\x00" || read(8192) != "xxxx" {
		t.Errorf("the truth: %d, %q, then %q", code, read(4096), read(8192))
	}
	if code, _ := c.do(doRead, 1<<20-2, 4, nil); code != failedInput {
		t.Errorf("beyond the end: %d", code)
	}
}
