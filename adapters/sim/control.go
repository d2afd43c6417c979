package sim

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"

	"github.com/better-compute/metal/adapters/disk"
	"github.com/better-compute/metal/adapters/sim/bmcsim"
	"github.com/better-compute/metal/domain/fault"
)

// mostDiskBytes bounds what one look at a disk gives.
const mostDiskBytes = 64 << 10

// Control is an HTTP service for demonstrations: it lists the machines, shows consoles and disks, presses buttons and injects
// faults. It has no login, so it answers only where it is reached by a loopback address, and takes only JSON.
//
//	GET  /machines
//	GET  /machines/{name}                    with its console and disks
//	GET  /machines/{name}/orders             what its agents began to carry out
//	GET  /machines/{name}/disks/{number}     ?offset=0&length=512: the bytes
//	POST /machines/{name}/reset              {"resetType": "ForceOff"}
//	POST /faults                             a Fault
func (s *Site) Control() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /machines", func(w http.ResponseWriter, _ *http.Request) { send(w, s.List()) })
	mux.HandleFunc("GET /machines/{name}", s.controlMachine(func(w http.ResponseWriter, _ *http.Request, m *Machine) error {
		send(w, m.detail())
		return nil
	}))
	mux.HandleFunc("GET /machines/{name}/orders", s.controlMachine(func(w http.ResponseWriter, _ *http.Request, m *Machine) error {
		send(w, m.Orders())
		return nil
	}))
	mux.HandleFunc("GET /machines/{name}/disks/{number}", s.controlMachine(showDisk))
	mux.HandleFunc("POST /machines/{name}/reset", s.controlMachine(pressReset))
	mux.HandleFunc("POST /faults", func(w http.ResponseWriter, r *http.Request) {
		f, err := DecodeFault(http.MaxBytesReader(w, r.Body, mostDiskBytes))
		if err == nil {
			err = s.Inject(f)
		}
		if err != nil {
			complain(w, err)
			return
		}
		send(w, struct{}{})
	})
	return loopbackOnly(mux)
}

// Detail is one machine in full.
type Detail struct {
	Listed
	Console []Entry      `json:"console"`
	Disks   []ListedDisk `json:"disks"`
}

// ListedDisk is one disk.
type ListedDisk struct {
	disk.Info
	Allocated int64  `json:"allocated"` // bytes that are not zero, about
	OS        string `json:"os,omitempty"`
}

func (m *Machine) detail() Detail {
	d := Detail{Listed: m.listed(), Console: m.Console()}
	for i, drive := range m.drives {
		name, _ := osName(m.Disk(i))
		d.Disks = append(d.Disks, ListedDisk{Info: drive.Info(), Allocated: drive.Allocated(), OS: name})
	}
	return d
}

// DecodeFault reads a Fault from JSON, refusing what it does not know.
func DecodeFault(r io.Reader) (f Fault, err error) {
	d := json.NewDecoder(r)
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return f, fault.Invalid(fault.Issue{Path: "fault", Message: err.Error()})
	}
	return f, nil
}

func (s *Site) controlMachine(do func(http.ResponseWriter, *http.Request, *Machine) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		m, ok := s.Machine(r.PathValue("name"))
		if !ok {
			complain(w, fault.New(fault.NotFound, "there is no machine %q", r.PathValue("name")).WithRemedy("list the machines"))
			return
		}
		if err := do(w, r, m); err != nil {
			complain(w, err)
		}
	}
}

func showDisk(w http.ResponseWriter, r *http.Request, m *Machine) error {
	number, err := strconv.Atoi(r.PathValue("number"))
	if err != nil {
		return fault.Invalid(fault.Issue{Path: "number", Message: "is not a number"})
	}
	offset, length := int64(0), int64(512)
	for name, to := range map[string]*int64{"offset": &offset, "length": &length} {
		if v := r.URL.Query().Get(name); v != "" {
			if *to, err = strconv.ParseInt(v, 0, 64); err != nil || *to < 0 || *to > mostDiskBytes && name == "length" {
				return fault.Invalid(fault.Issue{Path: name, Message: "is not a number in its range"})
			}
		}
	}
	b, err := m.ReadDisk(number, offset, length)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	_, _ = w.Write(b) // a client that is gone gets nothing
	return nil
}

func pressReset(w http.ResponseWriter, r *http.Request, m *Machine) error {
	var body struct {
		ResetType bmcsim.ResetType `json:"resetType"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, mostDiskBytes)).Decode(&body); err != nil {
		return fault.Invalid(fault.Issue{Path: "body", Message: err.Error()})
	}
	if err := m.Reset(body.ResetType); err != nil {
		return err
	}
	send(w, m.View())
	return nil
}

// loopbackOnly keeps other machines out, and web pages that a browser on this one shows.
func loopbackOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			complain(w, fault.New(fault.Forbidden, "this is for the machine itself").WithRemedy("call it by its loopback address"))
			return
		}
		if r.Method == http.MethodPost && r.Header.Get("Content-Type") != "application/json" {
			complain(w, fault.Invalid(fault.Issue{Path: "header.Content-Type", Message: "is not application/json"}))
			return
		}
		next.ServeHTTP(w, r)
	})
}

func send(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // a client that is gone gets nothing
}

// complain answers with a problem document (RFC 9457).
func complain(w http.ResponseWriter, err error) {
	var f *fault.Error
	if !errors.As(err, &f) {
		f = fault.New(fault.InvalidState, "%v", err)
	}
	info := fault.Info(f.Code)
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(info.HTTP)
	_ = json.NewEncoder(w).Encode(map[string]any{
		"code": f.Code, "title": f.Message, "status": info.HTTP, "issues": f.Issues, "remedy": f.Remedy,
	})
}
