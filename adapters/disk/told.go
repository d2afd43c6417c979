package disk

import "github.com/better-compute/metal/domain/node"

// Told is the disk as an inventory has it: what names it, and what it is.
func (i Info) Told() node.Disk {
	told, rotational := i.Disk, i.Rotational
	told.Transport, told.Rotational = i.Transport, &rotational
	return told
}
