package client

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
)

// sseEvent is one event of a text/event-stream (HTML standard, §9.2). An id alone moves the place to resume from.
type sseEvent struct {
	id, kind string
	data     []byte
}

// maxSSELine bounds one line: an event of 256 KiB with what is around it.
const maxSSELine = 1 << 20

var errLongLine = errors.New("a line of the stream of events is too long")

// readSSE gives every event to take until the stream ends or take says stop. alive is called for whatever arrives,
// comments among it.
func readSSE(from io.Reader, alive func(), take func(sseEvent) error) error {
	r := bufio.NewReaderSize(from, 64<<10)
	var e sseEvent
	for {
		line, err := readLine(r)
		if err != nil {
			return err
		}
		alive()
		if len(line) > 0 {
			e.field(line)
			continue
		}
		if e.id != "" || len(e.data) > 0 {
			if err := take(e); err != nil {
				return err
			}
		}
		e = sseEvent{}
	}
}

func (e *sseEvent) field(line []byte) {
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(name) {
	case "id":
		if !bytes.ContainsRune(value, 0) {
			e.id = string(value)
		}
	case "event":
		e.kind = string(value)
	case "data":
		if len(e.data) > 0 {
			e.data = append(e.data, '\n')
		}
		e.data = append(e.data, value...)
	}
}

func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > maxSSELine:
			return nil, errLongLine
		case err == nil:
			return []byte(strings.TrimRight(string(line), "\r\n")), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, fmt.Errorf("the stream of events ended: %w", err)
		}
	}
}
