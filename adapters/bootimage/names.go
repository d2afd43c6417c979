package bootimage

import "slices"

// Modules are what a ramdisk has unless others are chosen: drivers of network ports, disks and what they hang on, as servers
// have them, each of which is loaded where its device is; and the filesystems that an installed kernel is found on.
func Modules() []string {
	return slices.Concat(
		// What everything else may ask for.
		[]string{"af_packet", "ipv6", "virtio_pci", "virtio_rng", "crc32c_generic", "crc32c_intel", "button", "evdev"},
		// Storage. A disk that no driver shows is neither in the inventory nor wiped: vmd has those on the processors' own
		// controllers, where the firmware is set so.
		[]string{
			"vmd", "nvme", "sd_mod", "sr_mod", "ahci", "ata_piix", "ata_generic", "virtio_blk", "virtio_scsi", "vmw_pvscsi", "hv_storvsc",
			"mpt3sas", "mptspi", "megaraid_sas", "smartpqi", "hpsa", "aacraid", "sym53c8xx", "isci",
			"mpi3mr", "pm80xx", "arcmsr", "esas2r", "3w_9xxx", "3w_sas", "mvsas", "sata_mv", "sata_sil24",
			"xhci_pci", "ehci_pci", "uhci_hcd", "usb_storage", "uas", "usbhid", "hid_generic", "mmc_block", "sdhci_pci",
		},
		// Network ports.
		[]string{
			"virtio_net", "vmxnet3", "hv_netvsc", "ena", "gve", "e1000", "e1000e", "igb", "igc", "ixgbe", "i40e", "ice", "tg3", "bnxt_en",
			"bnx2", "bnx2x", "mlx4_en", "mlx5_core", "qede", "sfc", "cxgb4", "be2net", "enic", "atlantic", "r8169", "8139cp",
		},
		// Filesystems, read only. Not btrfs: it measures the processor for a while when it is loaded.
		[]string{"nls_cp437", "nls_ascii", "nls_iso8859_1", "nls_utf8", "vfat", "ext4", "xfs"},
		// Firmware.
		[]string{"tpm_tis", "tpm_crb", "efivarfs"},
	)
}
