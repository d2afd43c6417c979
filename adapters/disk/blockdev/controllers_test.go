package blockdev_test

import (
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/better-compute/metal/adapters/disk/blockdev"
)

func TestControllersWhoseDisksAreStillToCome(t *testing.T) {
	root := fstest.MapFS{}
	for name, c := range map[string]struct{ state, transport string }{
		"nvme0": {"live", "pcie"}, "nvme1": {"connecting", "pcie"}, "nvme2": {"resetting", "pcie"}, "nvme3": {"new", ""},
		"nvme4": {"connecting", "tcp"}, "nvme5": {"dead", "pcie"}, "nvme6": {"deleting", "pcie"},
	} {
		root["sys/class/nvme/"+name+"/state"] = &fstest.MapFile{Data: []byte(c.state + "\n")}
		if c.transport != "" {
			root["sys/class/nvme/"+name+"/transport"] = &fstest.MapFile{Data: []byte(c.transport + "\n")}
		}
	}
	if diff := cmp.Diff([]string{"nvme1", "nvme2", "nvme3"}, blockdev.Starting(root)); diff != "" {
		t.Error(diff)
	}
	if got := blockdev.Starting(fstest.MapFS{}); got != nil {
		t.Errorf("without NVMe there are %v", got)
	}
}

func TestControllersWithoutADriver(t *testing.T) {
	root := fstest.MapFS{}
	for name, class := range map[string]string{"0000:00:17.0": "0x010601", "0000:01:00.0": "0x010400", "0000:02:00.0": "0x020000"} {
		root["sys/bus/pci/devices/"+name+"/class"] = &fstest.MapFile{Data: []byte(class + "\n")}
	}
	root["sys/bus/pci/devices/0000:00:17.0/driver/x"] = &fstest.MapFile{}
	if diff := cmp.Diff([]string{"0000:01:00.0"}, blockdev.Driverless(root)); diff != "" {
		t.Error(diff)
	}
}
