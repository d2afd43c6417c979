package sim

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/better-compute/metal/adapters/disk"
	"github.com/better-compute/metal/adapters/sim/bmcsim"
	"github.com/better-compute/metal/domain/node"
)

// draw gives the 32 bytes that the seed holds for a use.
func draw(seed uint64, use ...string) [32]byte {
	b := binary.BigEndian.AppendUint64([]byte("better-compute/metal sim\x00"), seed)
	for _, u := range use {
		b = append(b, 0)
		b = append(b, u...)
	}
	return sha256.Sum256(b)
}

func drawHex(seed uint64, digits int, use ...string) string {
	d := draw(seed, use...)
	return hex.EncodeToString(d[:])[:digits]
}

func drawUUID(seed uint64, use ...string) string {
	d := draw(seed, use...)
	id, _ := uuid.FromBytes(d[:16]) // 16 bytes always do
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	return id.String()
}

// fill completes the spec of the machine with number i, from 0.
func (c *Config) fill(i int) MachineSpec {
	m := c.Machines[i]
	if m.Name == "" {
		m.Name = fmt.Sprintf("machine-%d", i+1)
	}
	seeded := func(v *string, digits int, use string) {
		if *v == "" {
			*v = drawHex(c.Seed, digits, m.Name, use)
		}
	}
	if m.Personality == "" {
		m.Personality = c.Personalities[i%len(c.Personalities)]
	}
	if m.Serial == "" {
		m.Serial = "SIM" + drawHex(c.Seed, 9, m.Name, "serial")
		if m.Personality == bmcsim.Dell { // a service tag
			m.Serial = strings.ToUpper(drawHex(c.Seed, 7, m.Name, "serial"))
		}
	}
	if m.Username == "" {
		m.Username = "admin"
	}
	seeded(&m.Password, 20, "password")
	if m.Cores == 0 {
		m.Cores = 16
	}
	if m.MemoryBytes == 0 {
		m.MemoryBytes = 64 << 30
	}
	if len(m.NICs) == 0 {
		for n := range 2 {
			h := draw(c.Seed, m.Name, "mac")
			// 02 in the first octet would mark it as made up; 00:16:3e is a prefix for virtual machines.
			mac := fmt.Sprintf("00:16:3e:%02x:%02x:%02x", h[0], h[1], h[2]&0xfe|byte(n))
			m.NICs = append(m.NICs, node.NIC{
				Name: fmt.Sprintf("eth%d", n), MAC: mac, Driver: "mlx5_core", Link: node.LinkUp, SpeedMbps: 25_000,
				LLDP: &node.LLDPNeighbor{
					ChassisID: fmt.Sprintf("00:16:3e:ff:00:%02x", n), SystemName: fmt.Sprintf("leaf-%d", n+1),
					PortID: fmt.Sprintf("Ethernet%d", i+1), PortDescription: m.Name,
				},
			})
		}
	}
	if m.UUID == "" {
		m.UUID = c.machineUUID(m)
	}
	if m.Disks == nil {
		m.Disks = c.disks(m.Name)
	}
	if len(m.BootOrder) == 0 {
		m.BootOrder = []Device{FromDisk, FromNetwork}
	}
	return m
}

// machineUUID is random, but for the vendor that makes it from a MAC.
func (c *Config) machineUUID(m MachineSpec) string {
	if m.Personality != bmcsim.Supermicro {
		return drawUUID(c.Seed, m.Name, "uuid")
	}
	var mac [6]byte
	_, _ = fmt.Sscanf(m.NICs[0].MAC, "%02x:%02x:%02x:%02x:%02x:%02x", &mac[0], &mac[1], &mac[2], &mac[3], &mac[4], &mac[5])
	return "00000000-0000-0000-0000-" + hex.EncodeToString(mac[:])
}

// disks are an NVMe disk that erases by itself and a SATA disk that has to be overwritten.
func (c *Config) disks(machine string) []DiskSpec {
	serial := func(n string) string { return drawHex(c.Seed, 12, machine, "disk", n) }
	return []DiskSpec{
		{
			Info: disk.Info{Transport: "nvme", Disk: node.Disk{
				Path: "/dev/nvme0n1", Model: "SIM-NVME-1", Serial: serial("0"),
				WWN: "eui." + drawHex(c.Seed, 16, machine, "wwn", "0"), Bytes: c.DiskBytes,
			}},
			Means: disk.Means{Discard: true, DiscardsToZero: true, SecureErase: true, CryptoErase: true},
		},
		{
			Info: disk.Info{Transport: "sata", Rotational: true, Disk: node.Disk{
				Path: "/dev/sda", Model: "SIM-HDD-2", Serial: serial("1"),
				WWN: "0x5" + drawHex(c.Seed, 15, machine, "wwn", "1"), Bytes: 2 * c.DiskBytes,
			}},
		},
	}
}
