// Package checkpoint keeps commits of a training state in a directory, so that a job can continue
// where another one has ended: at any world size, because the state is the same on all members.
//
// A checkpoint is one file. It appears under its name when all of it is on the disk, or not at all:
//
//	write a temporary file ─► fsync ─► rename ─► fsync of the directory ─► remove old checkpoints
//
// File names sort from old to new. Numbers are little endian, sizes in bytes:
//
//	magic     "RGCKPT01"
//	header    u32 length, JSON (type Header)
//	meta      Header.Meta bytes: everything that is not a tensor
//	data      Header.Data bytes: the tensors, as Header.Tensors says, in byte order Header.Order
//	hashes    16 for each chunk of 1 MiB of data: its XXH3 of 128 bits, high half first, big endian
//	checksum  32: SHA-256 of magic, header, meta and hashes
//
// Read checks all of it. It refuses a file that is torn, damaged or of another length with
// ErrCorrupt, and there is an older one to read instead: files are removed only when enough newer
// ones are known to be intact.
//
// Directories and files are of their user alone (0700, 0600), and Read refuses what another user
// may have written with ErrUntrusted.
//
// What this package does not do: it decides neither when a checkpoint is due nor with which one a
// job begins.
package checkpoint
