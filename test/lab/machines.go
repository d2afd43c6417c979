package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/better-compute/metal/adapters/sim"
	"github.com/better-compute/metal/adapters/sim/bmcsim"
)

// Machines lists the simulated machines.
func (l *Lab) Machines() []sim.Listed {
	l.T.Helper()
	return control[[]sim.Listed](l, "/machines")
}

// Machine is one simulated machine as it is now.
func (l *Lab) Machine(name string) sim.Detail {
	l.T.Helper()
	return control[sim.Detail](l, "/machines/"+name)
}

// Orders lists what the agents of a machine began to carry out.
func (l *Lab) Orders(name string) []sim.Ordered {
	l.T.Helper()
	return control[[]sim.Ordered](l, "/machines/"+name+"/orders")
}

// Disk is every byte of a disk, as if it had been taken out.
func (l *Lab) Disk(name string, number int) []byte {
	l.T.Helper()
	const most = 64 << 10
	size := l.Machine(name).Disks[number].Bytes
	var all []byte
	for int64(len(all)) < size {
		part, err := l.ask(http.MethodGet, fmt.Sprintf("/machines/%s/disks/%d?offset=%d&length=%d", name, number, len(all), most), nil)
		if err != nil {
			l.T.Fatal(err)
		}
		all = append(all, part...)
	}
	return all
}

// Inject makes something go wrong.
func (l *Lab) Inject(f sim.Fault) {
	l.T.Helper()
	if _, err := l.ask(http.MethodPost, "/faults", f); err != nil {
		l.T.Fatal(err)
	}
}

// Press resets a machine by hand, past its controller.
func (l *Lab) Press(name string, reset bmcsim.ResetType) {
	l.T.Helper()
	if _, err := l.ask(http.MethodPost, "/machines/"+name+"/reset", map[string]any{"resetType": reset}); err != nil {
		l.T.Fatal(err)
	}
}

// console is Machine for goroutines that are not the test's.
func (l *Lab) console(name string) (m sim.Detail, err error) {
	text, err := l.ask(http.MethodGet, "/machines/"+name, nil)
	if err != nil {
		return m, err
	}
	return m, json.Unmarshal(text, &m)
}

func control[T any](l *Lab, path string) (v T) {
	l.T.Helper()
	text, err := l.ask(http.MethodGet, path, nil)
	if err == nil {
		err = json.Unmarshal(text, &v)
	}
	if err != nil {
		l.T.Fatal(err)
	}
	return v
}

// ask speaks to metalsim.
func (l *Lab) ask(method, path string, body any) ([]byte, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(context.Background(), method, "http://"+l.control+path, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }() // it was read
	text, err = io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: %s: %s", method, path, answer.Status, text)
	}
	return text, err
}
