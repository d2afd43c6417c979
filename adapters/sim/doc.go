// Package sim is a simulated site: machines with a management controller each, speaking Redfish over TLS, with disks that
// hold bytes, and with the real agent running on them once they have booted.
//
// A machine does what its power and its boot device say: from the network it runs the ramdisk agent that a boot server names;
// from a disk it runs the OS that was written there, whose agent has its identity on that disk; else nothing. Power may be
// cut at any moment. Everything about a machine follows from the seed, and faults strike by counting: the same seed and the
// same requests give the same site.
package sim
