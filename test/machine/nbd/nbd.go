// Package nbd serves a file as a disk over the Network Block Device protocol, to a QEMU on the same computer. It can be told
// to lie as disks do whose firmware is broken: to say that blocks were erased, and leave them as they are.
package nbd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
)

// Disk is a file that is served.
type Disk struct {
	file     *os.File
	size     int64
	listener net.Listener
	work     sync.WaitGroup

	lying atomic.Bool
	lies  atomic.Int64

	mu     sync.Mutex
	closed bool
	open   map[net.Conn]bool
}

// Serve serves a file at a socket, one connection after another or several at once.
func Serve(socket, name string) (*Disk, error) {
	file, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	d := &Disk{file: file, size: info.Size(), listener: listener, open: map[net.Conn]bool{}}
	d.work.Go(d.accept)
	return d, nil
}

// Drive is what QEMU's -drive needs to have it.
func Drive(socket string) string { return "file=nbd:unix:" + socket }

// Lie has the disk say from now on that it erased, and not do it; or be honest again.
func (d *Disk) Lie(lying bool) { d.lying.Store(lying) }

// Lies is how often it lied.
func (d *Disk) Lies() int64 { return d.lies.Load() }

// Close ends every connection.
func (d *Disk) Close() error {
	d.mu.Lock()
	d.closed = true
	for c := range d.open {
		_ = c.Close() // whoever reads it finds out
	}
	d.mu.Unlock()
	err := d.listener.Close()
	d.work.Wait()
	return errors.Join(err, d.file.Close())
}

func (d *Disk) accept() {
	for {
		conn, err := d.listener.Accept()
		if err != nil {
			return // it was closed
		}
		if !d.keep(conn) {
			return
		}
		d.work.Go(func() {
			defer d.drop(conn)
			if err := d.shake(conn); err == nil {
				_ = d.serve(conn) // it ends with the machine's power
			}
		})
	}
}

func (d *Disk) keep(c net.Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		_ = c.Close() // nobody is there any more
		return false
	}
	d.open[c] = true
	return true
}

func (d *Disk) drop(c net.Conn) {
	_ = c.Close() // it may be closed
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.open, c)
}

// The numbers of the protocol, by its own names.
const (
	magicHello   = 0x4e42444d41474943
	magicOption  = 0x49484156454f5054
	magicAnswer  = 0x0003e889045565a9
	magicRequest = 0x25609513
	magicReply   = 0x67446698

	handshakeFixed, handshakeNoZeroes = 1, 2

	optionName, optionAbort, optionInfo, optionGo = 1, 2, 6, 7
	answerDone, answerInfo, answerUnsupported     = 1, 3, 1<<31 + 1

	can = 1 | 1<<2 | 1<<3 | 1<<5 | 1<<6 // flags, flush, forced unit access, trim, write zeroes

	doRead, doWrite, doDisconnect, doFlush, doTrim, doZero = 0, 1, 2, 3, 4, 6

	failedIO, failedInput = 5, 22
)

var order = binary.BigEndian

// option is what a client asks for before it reads and writes.
type option struct {
	Magic        uint64
	Kind, Length uint32
}

// shake agrees on the one disk that there is.
func (d *Disk) shake(conn io.ReadWriter) error {
	hello := order.AppendUint64(order.AppendUint64(nil, magicHello), magicOption)
	if _, err := conn.Write(order.AppendUint16(hello, handshakeFixed|handshakeNoZeroes)); err != nil {
		return err
	}
	var flags uint32
	if err := binary.Read(conn, order, &flags); err != nil {
		return err
	}
	export := order.AppendUint16(order.AppendUint64(nil, uint64(d.size)), can)
	for {
		var asked option
		if err := binary.Read(conn, order, &asked); err != nil {
			return err
		}
		if asked.Magic != magicOption || asked.Length > 64<<10 {
			return errors.New("that is no option")
		}
		if _, err := io.CopyN(io.Discard, conn, int64(asked.Length)); err != nil {
			return err
		}
		var err error
		switch asked.Kind {
		case optionName:
			if flags&handshakeNoZeroes == 0 {
				export = append(export, make([]byte, 124)...)
			}
			_, err := conn.Write(export)
			return err
		case optionInfo, optionGo:
			err = errors.Join(answer(conn, asked, answerInfo, append([]byte{0, 0}, export...)), answer(conn, asked, answerDone, nil))
			if asked.Kind == optionGo || err != nil {
				return err
			}
		case optionAbort:
			return errors.Join(answer(conn, asked, answerDone, nil), io.EOF)
		default:
			err = answer(conn, asked, answerUnsupported, nil)
		}
		if err != nil {
			return err
		}
	}
}

func answer(conn io.Writer, to option, kind uint32, data []byte) error {
	out := order.AppendUint64(nil, magicAnswer)
	for _, n := range []uint32{to.Kind, kind, uint32(len(data))} {
		out = order.AppendUint32(out, n)
	}
	_, err := conn.Write(append(out, data...))
	return err
}

// request is one thing to do with the disk.
type request struct {
	Magic          uint32
	Flags, Kind    uint16
	Cookie, Offset uint64
	Length         uint32
}

// serve does what is asked, in its order.
func (d *Disk) serve(conn io.ReadWriter) error {
	for {
		var r request
		if err := binary.Read(conn, order, &r); err != nil {
			return err
		}
		if r.Magic != magicRequest || r.Kind == doDisconnect {
			return fmt.Errorf("request %d of magic %#x", r.Kind, r.Magic)
		}
		var data []byte
		if r.Kind == doWrite || r.Kind == doRead {
			if r.Length > 64<<20 {
				return fmt.Errorf("%d bytes at once", r.Length)
			}
			data = make([]byte, r.Length)
		}
		if r.Kind == doWrite {
			if _, err := io.ReadFull(conn, data); err != nil {
				return err
			}
		}
		code := d.do(r, data)
		out := order.AppendUint64(order.AppendUint32(order.AppendUint32(nil, magicReply), code), r.Cookie)
		if r.Kind == doRead && code == 0 {
			out = append(out, data...)
		}
		if _, err := conn.Write(out); err != nil {
			return err
		}
	}
}

// do gives the error's number; 0: it was done, or so it says.
func (d *Disk) do(r request, data []byte) uint32 {
	if r.Offset+uint64(r.Length) > uint64(d.size) {
		return failedInput
	}
	var err error
	switch r.Kind {
	case doRead:
		_, err = d.file.ReadAt(data, int64(r.Offset))
	case doWrite:
		_, err = d.file.WriteAt(data, int64(r.Offset))
	case doFlush: // what another process reads is there already
	case doTrim, doZero:
		if d.lying.Load() {
			d.lies.Add(1)
			return 0
		}
		_, err = d.file.WriteAt(make([]byte, r.Length), int64(r.Offset))
	default:
		return failedInput
	}
	if err != nil {
		return failedIO
	}
	return 0
}
