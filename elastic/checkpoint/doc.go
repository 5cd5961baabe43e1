// Package checkpoint keeps commits of a training state in a directory, so that a job can continue
// where another one has ended, at any world size: the state is the same on all members, or its
// parts say where they belong.
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
// Of a sharded state that file has what is not sharded, and names a set of parts, which are in a
// folder beside it. Each rank writes a file of the safetensors format there, with one part of each
// tensor, and another one if it has several; the header has the offsets of parts as PyTorch's
// HuggingFaceStorageReader expects them, the number of the set, hashes of each chunk of each part,
// and a checksum of itself. The folder is renamed when all ranks have written and read back theirs:
//
//	run-...step-....0123456789abcdef.writing/rank-00003.safetensors
//	run-...step-....0123456789abcdef.parts/rank-00003.safetensors
//
// Directories and files are of their user alone (0700, 0600), and Read refuses what another user
// may have written with ErrUntrusted.
//
// What this package does not do: it decides neither when a checkpoint is due nor with which one a
// job begins.
package checkpoint
