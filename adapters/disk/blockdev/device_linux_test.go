package blockdev_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/better-compute/metal/adapters/disk"
	"github.com/better-compute/metal/adapters/disk/blockdev"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/node"
)

// file is a disk whose bytes are in a file. Its size is no multiple of a page.
func file(t *testing.T, size int64) *blockdev.Device {
	t.Helper()
	name := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(name, bytes.Repeat([]byte{0xa5}, int(size)), 0o600); err != nil {
		t.Fatal(err)
	}
	d := blockdev.Open(nil, disk.Info{Disk: node.Disk{Path: name, Bytes: size}})
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func TestReadAndWrite(t *testing.T) {
	const size = 3<<20 + 512
	d := file(t, size)
	for _, at := range []int64{0, 1, 511, 4095, 1<<20 - 3, size - 7} {
		want := []byte("written")
		if n, err := d.WriteAt(want, at); n != len(want) || err != nil {
			t.Fatal(at, n, err)
		}
		got := make([]byte, len(want))
		if n, err := d.ReadAt(got, at); n != len(want) || err != nil || !bytes.Equal(got, want) {
			t.Errorf("at %d: %q, %d, %v", at, got, n, err)
		}
	}
	if err := d.Sync(t.Context()); err != nil {
		t.Error(err)
	}
	whole := make([]byte, size+100)
	if n, err := d.ReadAt(whole, 0); n != size || !errors.Is(err, io.EOF) || whole[size-8] != 0xa5 {
		t.Errorf("all of it: %d, %v", n, err)
	}
	if n, err := d.ReadAt(whole[:1], size); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("behind the end: %d, %v", n, err)
	}
	if n, err := d.WriteAt(make([]byte, 10), size-4); n != 4 || !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("over the end: %d, %v", n, err)
	}
	if info, err := os.Stat(d.Info().Path); err != nil || info.Size() != size {
		t.Errorf("it has grown: %v, %v", info, err)
	}
}

// A disk that can do nothing by itself is wiped all the same, but never more weakly than asked.
func TestWipeOfWhatCanOnlyReadAndWrite(t *testing.T) {
	quiet := func(float64, string) {}
	for method, done := range map[node.WipeMethod]bool{node.WipeQuick: true, node.WipeSecureErase: true, node.WipeCryptoErase: false} {
		d := file(t, 20<<20)
		got, err := disk.Wipe(t.Context(), []disk.Device{d}, disk.Wiping{Method: method, Seed: 1}, quiet)
		if err != nil || got[0].ReadBack != done || (got[0].Reason == "") != done {
			t.Errorf("%s: %+v, %v", method, got, err)
		}
		content, err := os.ReadFile(d.Info().Path)
		if err != nil {
			t.Fatal(err)
		}
		if method == node.WipeSecureErase && !bytes.Equal(content, make([]byte, len(content))) {
			t.Error("the overwrite has left something")
		}
	}
}

func TestBurnADisk(t *testing.T) {
	parts, err := disk.Burn(t.Context(), []disk.Device{file(t, 2<<20)}, agentcommand.Burnin{}, 7, func(float64, string) {})
	if err != nil || len(parts) != 1 || parts[0].Errors != 0 || parts[0].Bytes != 2<<20 {
		t.Errorf("got %+v, %v", parts, err)
	}
}

func TestADiskThatIsNotThere(t *testing.T) {
	d := blockdev.Open(nil, disk.Info{Disk: node.Disk{Path: filepath.Join(t.TempDir(), "gone"), Bytes: 4096}, Transport: "sata", ATA: true})
	if _, err := d.ReadAt(make([]byte, 1), 0); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("read: %v", err)
	}
	if err := d.SecureErase(t.Context(), nil); err == nil || errors.Is(err, disk.ErrUnsupported) {
		t.Errorf("erase: %v", err)
	}
	if err := d.Resume(t.Context()); err == nil {
		t.Error("resume says nothing")
	}
}

// The kernel calls a disk removable whose bay can be opened while the machine runs. It is the machine's, and full of data.
func TestADiskInABayIsTheMachines(t *testing.T) {
	root := fstest.MapFS{}
	put := func(name, text string) { root[name] = &fstest.MapFile{Data: []byte(text)} }
	disk := func(name, place, kind string) {
		root["sys/block/"+name] = &fstest.MapFile{Data: []byte("../devices/" + place + "/block/" + name), Mode: os.ModeSymlink}
		put("sys/devices/"+place+"/block/"+name+"/removable", "1\n")
		put("sys/devices/"+place+"/block/"+name+"/device/type", kind)
	}
	disk("sda", "pci0000:00/0000:00:1f.2/ata1/host0/target0:0:0/0:0:0:0", "0\n")
	disk("sdb", "pci0000:00/0000:04:00.0/host1/port-1:0/end_device-1:0/target1:0:0/1:0:0:0", "0\n")
	disk("sdc", "pci0000:00/0000:00:14.0/usb1/1-1/1-1:1.0/host2/target2:0:0/2:0:0:0", "0\n")
	disk("sdd", "pci0000:00/0000:05:00.0/host3/target3:0:0/3:0:0:0", "0\n")
	disk("nvme0n1", "pci0000:00/0000:07:00.0/nvme/nvme0", "")
	disk("sr0", "pci0000:00/0000:00:1f.2/ata2/host4/target4:0:0/4:0:0:0", "5\n")
	disks, err := blockdev.Scan(root)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, i := range disks {
		got[i.Path] = i.Reported() == ""
	}
	if diff := cmp.Diff(map[string]bool{
		"/dev/sda": true, "/dev/sdb": true, "/dev/nvme0n1": true, "/dev/sdc": false, "/dev/sdd": false, "/dev/sr0": false,
	}, got); diff != "" {
		t.Error(diff)
	}
}

// What has the name of a disk and not its size is another one: it is neither read nor written.
func TestAnotherDiskOfTheSameName(t *testing.T) {
	d := file(t, 64<<10)
	for _, bytes := range []int64{64<<10 - 512, 64<<10 + 512} {
		info := d.Info()
		info.Bytes = bytes
		other := blockdev.Open(nil, info)
		if n, err := other.WriteAt([]byte("x"), 0); n != 0 || err == nil {
			t.Errorf("%d bytes: wrote %d, %v", bytes, n, err)
		}
		if n, err := other.ReadAt(make([]byte, 1), 0); n != 0 || err == nil || errors.Is(err, io.EOF) {
			t.Errorf("%d bytes: read %d, %v", bytes, n, err)
		}
	}
	if content, err := os.ReadFile(d.Info().Path); err != nil || content[0] != 0xa5 {
		t.Errorf("it was written: %v, %v", content[:1], err)
	}
}

// A disk may be pulled, and another one of the same kind and size get its path, while those before it are wiped for hours: the
// disk that was looked at is not the one that would be emptied.
func TestAnotherDiskOfTheSamePathAndSize(t *testing.T) {
	content := bytes.Repeat([]byte{0xa5}, 64<<10)
	for name, c := range map[string]struct {
		change func(root fstest.MapFS)
		same   bool
	}{
		"nothing has changed": {func(fstest.MapFS) {}, true},
		"another serial":      {func(root fstest.MapFS) { root["sys/block/sdz/device/serial"] = &fstest.MapFile{Data: []byte("s2\n")} }, false},
		"another WWN":         {func(root fstest.MapFS) { root["sys/block/sdz/wwid"] = &fstest.MapFile{Data: []byte("naa.2\n")} }, false},
		"another model":       {func(root fstest.MapFS) { root["sys/block/sdz/device/model"] = &fstest.MapFile{Data: []byte("N\n")} }, false},
		"it is gone":          {func(root fstest.MapFS) { clear(root) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			root := fstest.MapFS{
				"sys/block/sdz/size":          {Data: []byte("128\n")},
				"sys/block/sdz/wwid":          {Data: []byte("naa.1\n")},
				"sys/block/sdz/device/model":  {Data: []byte("M\n")},
				"sys/block/sdz/device/serial": {Data: []byte("s1\n")},
			}
			found, err := blockdev.Scan(root)
			if err != nil || len(found) != 1 {
				t.Fatal(found, err)
			}
			found[0].Path = filepath.Join(t.TempDir(), "sdz")
			if err := os.WriteFile(found[0].Path, content, 0o600); err != nil {
				t.Fatal(err)
			}
			d := blockdev.Open(root, found[0])
			c.change(root)
			got, err := disk.Wipe(t.Context(), []disk.Device{d}, disk.Wiping{Method: node.WipeQuick, Seed: 1}, func(float64, string) {})
			if err := errors.Join(err, d.Close()); err != nil || got[0].ReadBack != c.same || (got[0].Reason == "") != c.same {
				t.Errorf("%+v, %v", got, err)
			}
			left, err := os.ReadFile(found[0].Path)
			if err != nil || bytes.Equal(left, content) == c.same {
				t.Errorf("it was written: %v, %v", !bytes.Equal(left, content), err)
			}
		})
	}
}

// The control plane tells a disk by its name, which it was told as JSON.
func TestADiskIsFoundAgainByWhateverNameItHas(t *testing.T) {
	for serial, want := range map[string]string{
		"S 1": "S 1", " S1\xff\x01 \n": "S1", "S\x001": "S1", "S\x1b[31m": "S[31m", "\xff\xfe": "", "Sü": "Sü",
	} {
		found, err := blockdev.Scan(fstest.MapFS{
			"sys/block/sda/device/model":    {Data: []byte(serial)},
			"sys/block/sda/device/vpd_pg80": {Data: []byte("\x00\x80\x00\x08" + serial)},
		})
		if err != nil || len(found) != 1 || found[0].Serial != want || found[0].Model != want {
			t.Errorf("%q: %+v, %v", serial, found, err)
			continue
		}
		text, err := json.Marshal(found[0].Disk)
		if err != nil {
			t.Fatal(err)
		}
		var told node.Disk
		if err := json.Unmarshal(text, &told); err != nil || told.Key() != found[0].Key() {
			t.Errorf("%q: told as %s, %v", serial, text, err)
		}
	}
}

func TestScan(t *testing.T) {
	root := fstest.MapFS{}
	put := func(name, text string) { root[name] = &fstest.MapFile{Data: []byte(text)} }
	link := func(name, to string) {
		root["sys/block/"+name] = &fstest.MapFile{Data: []byte("../devices/" + to + "/block/" + name), Mode: os.ModeSymlink}
		put("sys/devices/"+to+"/block/"+name+"/size", "8\n")
		put("sys/devices/"+to+"/block/"+name+"/device/model", " M "+name+"\n")
	}
	link("sda", "pci0000:00/0000:00:1f.2/ata1/host0/target0:0:0/0:0:0:0")
	link("sdb", "pci0000:00/0000:00:14.0/usb1/1-1/1-1:1.0/host1/target1:0:0/1:0:0:0")
	link("sdc", "platform/host2/session1/target2:0:0/2:0:0:0")
	link("sdd", "pci0000:00/0000:03:00.0/host3/rport-3:0-0/target3:0:0/3:0:0:0")
	link("sde", "pci0000:00/0000:04:00.0/host4/port-4:0/end_device-4:0/target4:0:0/4:0:0:0")
	link("sdf", "pci0000:00/0000:05:00.0/host5/target5:2:0/5:2:0:0")
	link("vda", "pci0000:00/0000:06:00.0/virtio2")
	link("nvme0n1", "pci0000:00/0000:07:00.0/nvme/nvme0")
	link("nvme1n1", "virtual/nvme-subsystem/nvme-subsys1")
	put("sys/devices/pci0000:00/0000:07:00.0/nvme/nvme0/block/nvme0n1/device/transport", "pcie\n")
	put("sys/devices/virtual/nvme-subsystem/nvme-subsys1/block/nvme1n1/device/nvme1/transport", "tcp\n")
	for _, name := range []string{"loop0", "ram0", "zram0", "dm-0", "md0", "mmcblk0boot0", "bcache0", "mtdblock0", "ubiblock0_1"} {
		put("sys/block/"+name+"/size", "8\n")
		put("sys/block/"+name+"/device/x", "")
	}
	put("sys/devices/pci0000:00/0000:04:00.0/host4/port-4:0/end_device-4:0/target4:0:0/4:0:0:0/block/sde/device/vendor", "ATA     \n")
	type told struct {
		Transport, Reason string
		ATA               bool
	}
	got := map[string]told{}
	disks, err := blockdev.Scan(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range disks {
		if i.Model != "M "+filepath.Base(i.Path) || i.Bytes != 4096 {
			t.Errorf("got %+v", i)
		}
		got[i.Path] = told{i.Transport, i.Reported(), i.ATA}
	}
	const network = "it is on a network, where other machines may use it"
	if diff := cmp.Diff(map[string]told{
		"/dev/sda": {"sata", "", true}, "/dev/sdb": {"usb", "it is removable", false}, "/dev/sdc": {"iscsi", network, false},
		"/dev/sdd": {"fc", network, false}, "/dev/sde": {"sas", "", true}, "/dev/sdf": {"scsi", "", false}, "/dev/vda": {"virtio", "", false},
		"/dev/nvme0n1": {"nvme", "", false}, "/dev/nvme1n1": {"nvme", network, false},
	}, got); diff != "" {
		t.Error(diff)
	}
	if disks, err := blockdev.Scan(fstest.MapFS{}); err == nil {
		t.Errorf("without a list of disks there are %v", disks)
	}
}
