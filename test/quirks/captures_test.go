package quirks

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/better-compute/metal/adapters/bmc"
	"github.com/better-compute/metal/adapters/bmc/bmctest"
	"github.com/better-compute/metal/adapters/bmc/redfish"
	"github.com/better-compute/metal/domain/claim"
	"github.com/better-compute/metal/domain/node"
)

// captured is one real machine: where its parts are, and what its firmware does beyond what a tree can show. What its
// inventory should hold is read from the tree itself, in another way than the driver's.
type captured struct {
	system, chassis string
	vendor          string
	disks, cores    int
	memoryGiB       int64
	weak            bool
	told            told
	kinds           map[string]int         // of disks
	links           map[node.LinkState]int // of network ports
	cycle           []string               // the reset types that a cycle may send
	boot            string                 // where the boot override is set
	drive           string                 // that holds the image; empty: the machine has none
	firmware        func(s *Server, c captured)
}

var machines = map[string]captured{
	"dell-r750-idrac": {
		system: "/redfish/v1/Systems/System.Embedded.1", chassis: "/redfish/v1/Chassis/System.Embedded.1", vendor: "dell",
		disks: 3, cores: 36, memoryGiB: 512, cycle: []string{"PowerCycle", "ForceOff", "On"},
		boot:  "/redfish/v1/Systems/System.Embedded.1",
		drive: "any", firmware: func(*Server, captured) {},
		told: told{
			Firmware: node.Firmware{Version: "1.8.2", Date: "09/14/2022", BootMode: node.BootUEFI}, Secure: "off", TPM: "2.0 7.2.2.0",
			CPU: node.CPU{Model: "Intel(R) Xeon(R) Gold 6354 CPU @ 3.00GHz", Sockets: 2, Threads: 72},
		},
		kinds: map[string]int{"nvme off": 3}, links: map[node.LinkState]int{node.LinkUp: 2, node.LinkDown: 4, "": 1},
	},
	"hpe-dl385-ilo5": {
		system: "/redfish/v1/Systems/1", chassis: "/redfish/v1/Chassis/1", vendor: "hpe",
		disks: 18, memoryGiB: 1024, cycle: []string{"ForceOff", "On"}, boot: "/redfish/v1/Systems/1",
		drive: "/redfish/v1/Managers/1/VirtualMedia/2", firmware: func(*Server, captured) {},
		told: told{
			Firmware: node.Firmware{Version: "A42 v2.60 (08/11/2022)", Date: "08/11/2022", BootMode: node.BootUEFI}, Secure: "off", TPM: "2.0 73.64",
			CPU: node.CPU{Model: "AMD EPYC 7763 64-Core Processor", Sockets: 2},
		},
		kinds: map[string]int{"nvme off": 16, "sata off": 2}, links: map[node.LinkState]int{node.LinkUp: 3, node.LinkDown: 2, "": 4},
	},
	"nvidia-dgx-h100": {
		system: "/redfish/v1/Systems/DGX", chassis: "/redfish/v1/Chassis/DGX", vendor: "ami",
		disks: 15, memoryGiB: 2048, cycle: []string{"ForceOff", "On"}, boot: "/redfish/v1/Systems/DGX/SD",
		told:  told{Firmware: node.Firmware{Version: "1.1.3"}, Secure: "off", TPM: "2.0 15.21", CPU: node.CPU{Sockets: 2}},
		kinds: map[string]int{"": 15}, links: map[node.LinkState]int{node.LinkUp: 1, node.LinkDown: 4},
		firmware: func(s *Server, c captured) {
			s.On(http.MethodPatch, c.system, Always(futureState))
			s.On(http.MethodGet, "/redfish/v1/Systems/HGX_Baseboard_0", func(x *Exchange) *Answer {
				if s.Power(c.system) == "Off" {
					return Problem(503, "Base.1.8.ServiceTemporarilyUnavailable", "The service is temporarily unavailable.", "300")
				}
				return x.Next()
			})
		},
	},
	"supermicro-sys821ge": {
		system: "/redfish/v1/Systems/1", chassis: "/redfish/v1/Chassis/1", vendor: "supermicro",
		disks: 8, memoryGiB: 2048, weak: true, cycle: []string{"PowerCycle", "ForceOff", "On"}, boot: "/redfish/v1/Systems/1",
		drive: "any", firmware: supermicro,
		told: told{
			Firmware: node.Firmware{Version: "1.4", BootMode: node.BootUEFI}, Secure: "off", TPM: "-",
			CPU: node.CPU{Model: "Intel(R) Xeon(R) processor", Sockets: 2},
		},
		kinds: map[string]int{"nvme": 8}, links: map[node.LinkState]int{node.LinkDown: 11},
	},
}

// supermicro resets what a change of the boot override leaves out, and shows how to eject once there is something.
func supermicro(s *Server, c captured) {
	resetsWhatIsLeftOut(s, c.system)
	s.On(http.MethodGet, "/redfish/v1/Managers/1/VirtualMedia/*", func(x *Exchange) *Answer {
		a := x.Next()
		if d, ok := a.Body.(Doc); ok && d["Inserted"] == true {
			merge(d, Doc{"Actions": Doc{"#VirtualMedia.EjectMedia": Doc{"target": x.Path + "/Actions/VirtualMedia.EjectMedia"}}})
		}
		return a
	})
}

// TestCaptures runs over real machines' trees; see the comment of the package.
func TestCaptures(t *testing.T) {
	directory := os.Getenv("METAL_TEST_CAPTURES")
	if directory == "" {
		return
	}
	if !filepath.IsAbs(directory) {
		directory = filepath.Join("..", "..", directory)
	}
	for name, c := range machines {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			archive := filepath.Join(directory, name+".tar.gz")
			fresh := func(t *testing.T) *rig {
				s := New(t)
				s.load(archive)
				c.firmware(s, c)
				s.Run()
				return attach(t, s, redfish.Options{})
			}
			t.Run("identity", func(t *testing.T) { c.identity(t, fresh(t)) })
			t.Run("inventory", func(t *testing.T) { c.inventory(t, fresh(t)) })
			t.Run("power", func(t *testing.T) { c.power(t, fresh(t)) })
			t.Run("boot", func(t *testing.T) { c.bootOverride(t, fresh(t)) })
			t.Run("media", func(t *testing.T) { c.media(t, fresh(t)) })
			t.Run("suite", func(t *testing.T) {
				bmctest.Run(t, func(t *testing.T) bmctest.Subject {
					r := fresh(t)
					r.Edit(c.boot, Doc{"Boot": Doc{"HttpBootUri": nil}}) // which not every tree shows
					return bmctest.Subject{Driver: r.driver, Target: r.target, Image: map[bool]string{true: image}[c.drive != ""]}
				})
			})
			t.Run("session", func(t *testing.T) {
				r := fresh(t)
				r.inspect()
				same(t, "sessions", r.Counts().PeakSessions, 1)
				r.close()
				same(t, "sessions left", r.Counts().Sessions, 0)
			})
		})
	}
}

func (c captured) identity(t *testing.T, r *rig) {
	who, tree := r.identify(), r.Get(c.system)
	text := func(name string) string { s, _ := tree[name].(string); return s }
	same(t, "claims", []string{who.SystemID, strings.ToLower(who.UUID), who.Serial, who.SKU, who.Model, who.BIOSVersion},
		[]string{text("Id"), strings.ToLower(text("UUID")), text("SerialNumber"), text("SKU"), text("Model"), text("BiosVersion")})
	same(t, "weak", len(who.Weak) > 0, c.weak)
	same(t, "power", who.Power, node.PowerOn)
	if !strings.Contains(strings.ToLower(who.Vendor), c.vendor) {
		t.Errorf("vendor %q; want %s", who.Vendor, c.vendor)
	}
	if who.ManagerFirmware == "" || who.ManagerModel == "" {
		t.Errorf("the manager is not told: %+v", who)
	}
}

func (c captured) inventory(t *testing.T, r *rig) {
	found := r.inspect()
	same(t, "MAC addresses", macs(found), r.treeMACs(c))
	same(t, "disks", len(found.Hardware.Disks), len(r.treeDrives(c)))
	same(t, "disks, as counted by hand", len(found.Hardware.Disks), c.disks)
	same(t, "memory", found.Hardware.MemoryBytes>>30, c.memoryGiB)
	same(t, "cores", found.Hardware.Cores, c.cores)
	keys := map[string]bool{}
	for _, d := range found.Hardware.Disks {
		keys[d.Key()] = true
	}
	same(t, "different disks", len(keys), len(found.Hardware.Disks))
	c.details(t, r, found.Hardware)
}

// details are what a person finds in the tree of firmware, TPM, processors, disks and links.
func (c captured) details(t *testing.T, r *rig, h node.Hardware) {
	same(t, "firmware, TPM, processors", tellings(h), c.told)
	kinds := map[string]int{}
	for _, d := range h.Disks {
		kinds[strings.TrimSpace(d.Transport+" "+onOff(d.Rotational))]++
	}
	same(t, "how disks are attached, and whether they spin", kinds, c.kinds)
	links := map[node.LinkState]int{}
	for _, n := range h.NICs {
		links[n.Link]++
		if n.Link != node.LinkUp && n.SpeedMbps != 0 {
			t.Errorf("a speed without a link: %+v", n)
		}
	}
	same(t, "links", links, c.links)
	for _, path := range []string{c.system + "/SecureBoot", c.system + "/Bios"} {
		atMost(t, "requests for "+path, len(r.Requests("GET", path)), 1)
	}
}

func (c captured) power(t *testing.T, r *rig) {
	got, err := r.power(node.ActionOn, bmc.PowerOptions{})
	must(t, err)
	same(t, "on when on", got, bmc.PowerResult{Power: node.PowerOn})
	got, err = r.power(node.ActionOff, bmc.PowerOptions{})
	must(t, err)
	same(t, "off", []string{string(got.Power), r.Power(c.system)}, []string{"off", "Off"})
	got, err = r.power(node.ActionOn, bmc.PowerOptions{})
	must(t, err)
	same(t, "on", []string{string(got.Power), r.Power(c.system)}, []string{"on", "On"})
	r.Lag = 2
	got, err = r.power(node.ActionCycle, bmc.PowerOptions{})
	must(t, err)
	same(t, "cycle", []string{string(got.Power), r.Power(c.system)}, []string{"on", "On"})
	same(t, "times the power was lost", r.Counts().LostPower, 2)
	for _, kind := range got.Sent {
		if !slices.Contains(c.cycle, kind) {
			t.Errorf("%s was sent; want one of %v", kind, c.cycle)
		}
	}
	got, err = r.power(node.ActionGraceful, bmc.PowerOptions{})
	must(t, err)
	same(t, "graceful", got.Sent, []string{"GracefulShutdown"})
	same(t, "requests that were refused", r.refused("POST"), 0)
}

func (c captured) bootOverride(t *testing.T, r *rig) {
	for _, o := range []struct {
		wanted          bmc.BootOverride
		target, enabled string
	}{
		{bmc.BootOverride{Device: bmc.BootNetwork}, "Pxe", "Once"},
		{bmc.BootOverride{Device: bmc.BootDisk, Persistent: true}, "Hdd", "Continuous"},
	} {
		got, err := r.boot(o.wanted)
		must(t, err)
		same(t, "target", got.Target, o.target)
		held := r.Get(c.boot)["Boot"].(Doc)
		wantBoot(t, held, o.target, o.enabled, "")
		if held["BootSourceOverrideMode"] == "Legacy" {
			t.Error("the mode became Legacy")
		}
	}
	atMost(t, "changes that were refused", r.refused("PATCH"), 1)
}

// refused is how many requests of a method were answered with an error.
func (r *rig) refused(method string) (n int) {
	for _, q := range r.Requests(method, "") {
		if q.Status >= 400 {
			n++
		}
	}
	return n
}

func (c captured) media(t *testing.T, r *rig) {
	got, err := r.insert(image)
	if c.drive == "" {
		wantReason(t, err, bmc.Unsupported)
		must(t, ignoreUnsupported(r.eject()))
		return
	}
	must(t, err)
	same(t, "media", []any{got.Image, got.Inserted}, []any{image, true})
	held := r.holding(image)
	if len(held) != 1 || (c.drive != "any" && held[0] != c.drive) {
		t.Fatalf("the image is in %v; want one, %s", held, c.drive)
	}
	must(t, r.eject())
	same(t, "drives that still hold it", r.holding(image), nil)
}

// ignoreUnsupported lets a machine without drives say that it has none, or that nothing is to be ejected.
func ignoreUnsupported(err error) error {
	if detail(err, "reason") == string(bmc.Unsupported) {
		return nil
	}
	return err
}

// holding lists the documents whose Image is the one that is named.
func (s *Server) holding(image string) (list []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.docs {
		if e.doc["Image"] == image {
			list = append(list, e.path)
		}
	}
	return list
}

// treeDrives are the drives that a tree links to from the system's storage and its chassis, each once.
func (s *Server) treeDrives(c captured) map[string]bool {
	found := map[string]bool{}
	s.below(c.system+"/Storage/*", func(d Doc) {
		for _, link := range linksOf(d["Drives"]) {
			found[key(link)] = true
		}
	})
	links, _ := s.Get(c.chassis)["Links"].(Doc)
	for _, link := range linksOf(links["Drives"]) {
		found[key(link)] = true
	}
	return found
}

// treeMACs are the addresses of network ports that a tree shows anywhere below the system or its chassis.
func (s *Server) treeMACs(c captured) (list []string) {
	add := func(raw any) {
		text, _ := raw.(string)
		mac, err := claim.MAC(text)
		if err == nil && !strings.ContainsRune("2367abef", rune(mac[1])) { // the locally administered ones
			list = append(list, mac)
		}
	}
	addAll := func(raw any) {
		items, _ := raw.([]any)
		for _, item := range items {
			add(item)
		}
	}
	s.below(c.system+"/EthernetInterfaces/*", func(d Doc) { add(d["MACAddress"]); add(d["PermanentMACAddress"]) })
	s.below(c.chassis+"/NetworkAdapters/*", func(d Doc) {
		addAll(d["AssociatedNetworkAddresses"])
		if ethernet, ok := d["Ethernet"].(Doc); ok {
			add(ethernet["MACAddress"])
			add(ethernet["PermanentMACAddress"])
			addAll(ethernet["AssociatedMACAddresses"])
		}
	})
	slices.Sort(list)
	return slices.Compact(list)
}

// below calls look with every document whose path begins so.
func (s *Server) below(start string, look func(d Doc)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.docs {
		if matches("", start, &Request{Path: e.path}) {
			look(e.doc)
		}
	}
}

func linksOf(v any) (paths []string) {
	items, _ := v.([]any)
	for _, item := range items {
		if d, ok := item.(Doc); ok {
			paths = append(paths, linkIn(d))
		}
	}
	return paths
}

// load puts every document of an archive.
func (s *Server) load(archive string) {
	s.t.Helper()
	file, err := os.Open(archive)
	if err != nil {
		s.t.Fatalf("METAL_TEST_CAPTURES is set and a captured tree is missing: %v; it is a pruned mock-up of NVIDIA/libredfish"+
			" (tests/mockups) in an archive of <path>/index.json; without the variable these tests are not run", err)
	}
	defer func() { _ = file.Close() }()
	unzipped, err := gzip.NewReader(file)
	must(s.t, err)
	in := tar.NewReader(unzipped)
	for {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must(s.t, err)
		raw, err := io.ReadAll(in)
		must(s.t, err)
		s.loadFile(header.Name, raw)
	}
	if len(s.docs) < 50 {
		s.t.Fatalf("%s holds %d documents only", archive, len(s.docs))
	}
}

// loadFile puts one file of an archive: a document, how a resource answers otherwise, or headers of its answer.
func (s *Server) loadFile(name string, raw []byte) {
	at := path.Dir(path.Clean("/" + name))
	read := func(into any) {
		if err := json.Unmarshal(raw, into); err != nil {
			s.t.Fatalf("%s: %v", name, err)
		}
	}
	switch path.Base(name) {
	case "index.json":
		var d Doc
		read(&d)
		s.Put(at, d)
	case "custom.json":
		var custom struct {
			Status int
			Body   Doc
		}
		read(&custom)
		s.On("", at, Always(Say(custom.Status, custom.Body)))
	case "headers.json":
		var headers struct{ GET map[string]string }
		read(&headers)
		s.On(http.MethodGet, at, func(x *Exchange) *Answer {
			a := x.Next()
			for name, value := range headers.GET {
				a.With(name, value)
			}
			return a
		})
	}
}
