// Package checkpoint keeps commits of a training state in a folder, so that a job can begin where another one has ended: at
// any world size, because the state is the same on all members.
//
// A checkpoint is one file. It appears under its name when all of it is on the disk, or not at all:
//
//	write a file with another name ─► fsync ─► rename ─► fsync of the folder ─► remove what is too old
//
// Its name orders it. Numbers are little endian, sizes in bytes:
//
//	magic   "RGCKPT01"
//	head    u32 length, JSON (type Head)
//	meta    Head.Meta bytes: what is not tensors
//	data    Head.Data bytes: tensors one after the other, where Head.Parts says, in the byte order Head.Order
//	marks   16 for each block of 1 MiB of data: its XXH3 of 128 bits, high half first, big endian
//	seal    32: SHA-256 of magic, head, meta and marks
//
// Reading checks all of it. A file that is torn, damaged or of another length is refused with ErrCorrupt, and the one before it is
// there: files are only removed when enough newer ones are known to be whole.
//
// What this package does not do: it decides neither when a checkpoint is due nor which one a job begins with.
package checkpoint
