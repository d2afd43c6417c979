// Package machine runs the product against real machines: QEMU, with firmware, a kernel, disks and a network of its own, behind
// a Redfish controller. The control plane, the site's agent and the ramdisk are the programs that users run.
//
// Its tests have the build tag qemu; `make test-machine` runs them.
package machine
