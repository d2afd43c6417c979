package disk

// The ends of a disk hold partition tables, RAID and volume metadata; a superblock may also stand further in.
const ends = 4 << 20

// superblocks are where filesystems and volume managers keep what they are recognised by, beyond the first 4 MiB.
// A disk's first and last 4 MiB cover: MBR and both GPTs; ext (1 KiB), btrfs (64 KiB), XFS, NTFS, FAT, F2FS, swap (end of the
// first page), LVM (first sectors), LUKS 1 and 2 (0 to 4 MiB), md 1.1 and 1.2 (0, 4 KiB), bcache, the first two ZFS labels
// (0, 256 KiB); at the end md 0.90 and 1.0, DDF and IMSM, the last two ZFS labels and the backup of exFAT and NTFS.
var superblocks = []span{
	{64 << 20, 1 << 20},  // btrfs, second copy
	{256 << 30, 1 << 20}, // btrfs, third copy
	{128 << 20, 1 << 20}, // ext, first backup of a filesystem with blocks of 4 KiB
	{8 << 20, 1 << 20},   // ext, first backup with blocks of 1 KiB
}

// marks are the ranges that a quick wipe empties and every wipe reads back, on a disk of size bytes.
func marks(size int64) (out []span) {
	all := append([]span{{0, ends}, {size - ends, ends}}, superblocks...)
	for _, s := range all {
		if s, ok := s.clip(size); ok {
			out = append(out, s)
		}
	}
	return out
}

// partitionMarks are the same at the start of a partition, where a filesystem's own offsets begin.
func partitionMarks(size int64, partitions []partition) (out []span) {
	for _, p := range partitions {
		for _, s := range []span{
			{p.offset, 1 << 20}, {p.offset + 64<<20, 64 << 10}, {p.offset + p.length - 1<<20, 1 << 20},
		} {
			if s, ok := s.clip(size); ok {
				out = append(out, s)
			}
		}
	}
	return out
}
