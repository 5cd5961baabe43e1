package nccl

import "fmt"

// Code is a result of NCCL (ncclResult_t).
type Code int32

// The results, as nccl.h numbers them.
const (
	Success         Code = 0
	UnhandledCUDA   Code = 1
	SystemError     Code = 2
	InternalError   Code = 3
	InvalidArgument Code = 4
	InvalidUsage    Code = 5
	RemoteError     Code = 6 // since 2.13
	InProgress      Code = 7
	TimedOut        Code = 8 // since 2.30
)

func (c Code) String() string {
	names := [...]string{
		"ncclSuccess", "ncclUnhandledCudaError", "ncclSystemError", "ncclInternalError", "ncclInvalidArgument",
		"ncclInvalidUsage", "ncclRemoteError", "ncclInProgress", "ncclTimeout",
	}
	if c < 0 || int(c) >= len(names) {
		return fmt.Sprintf("ncclResult %d", int32(c))
	}
	return names[c]
}

// working says whether a call was taken: it is done, or NCCL goes on by itself.
func (c Code) working() bool { return c == Success || c == InProgress }

// Version is NCCL's version code: 23007 is 2.30.7.
type Version int32

func (v Version) String() string {
	if v < 10000 { // up to 2.8 the minor version had one digit
		return fmt.Sprintf("%d.%d.%d", v/1000, v/100%10, v%100)
	}
	return fmt.Sprintf("%d.%d.%d", v/10000, v/100%100, v%100)
}

// DataType is the type of elements (ncclDataType_t).
type DataType int32

// The types, as nccl.h numbers them. Both of 8 bits came with 2.24.
const (
	Int8 DataType = iota
	Uint8
	Int32
	Uint32
	Int64
	Uint64
	Float16
	Float32
	Float64
	BFloat16
	Float8E4M3
	Float8E5M2
)

// Bytes is the size of one element, 0 for no type of ours.
func (t DataType) Bytes() int {
	switch t {
	case Int8, Uint8, Float8E4M3, Float8E5M2:
		return 1
	case Float16, BFloat16:
		return 2
	case Int32, Uint32, Float32:
		return 4
	case Int64, Uint64, Float64:
		return 8
	}
	return 0
}

// ReduceOp is how elements are combined (ncclRedOp_t): one of these, or what Comm.PreMulSum made.
type ReduceOp int32

// The reductions, as nccl.h numbers them.
const (
	Sum ReduceOp = iota
	Product
	Max
	Min
	Average
)

// UniqueID is what the ranks of a new communicator must share (ncclUniqueId).
type UniqueID [128]byte
