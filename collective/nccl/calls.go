package nccl

import (
	"fmt"
	"math"
	"unsafe"
)

// idArgument is ncclUniqueId, which is passed by value.
type idArgument struct{ Internal UniqueID }

// ncclCalls are the functions of libnccl. The symbol's first version is given where
// a library from 2.14 on may lack it.
type ncclCalls struct {
	GetVersion         func(version *Version) Code                                                                `symbol:"ncclGetVersion"`
	GetUniqueID        func(id *idArgument) Code                                                                  `symbol:"ncclGetUniqueId"`
	GetErrorString     func(code Code) string                                                                     `symbol:"ncclGetErrorString"`
	GetLastError       func(comm uintptr) string                                                                  `symbol:"ncclGetLastError"`
	CommInitRankConfig func(comm *uintptr, world int32, id idArgument, rank int32, c *config) Code                `symbol:"ncclCommInitRankConfig"`
	CommFinalize       func(comm uintptr) Code                                                                    `symbol:"ncclCommFinalize"`
	CommDestroy        func(comm uintptr) Code                                                                    `symbol:"ncclCommDestroy"`
	CommAbort          func(comm uintptr) Code                                                                    `symbol:"ncclCommAbort"`
	CommGetAsyncError  func(comm uintptr, state *Code) Code                                                       `symbol:"ncclCommGetAsyncError"`
	CommCount          func(comm uintptr, world *int32) Code                                                      `symbol:"ncclCommCount"`
	CommUserRank       func(comm uintptr, rank *int32) Code                                                       `symbol:"ncclCommUserRank"`
	AllReduce          func(send, recv, count uintptr, t DataType, op ReduceOp, comm, stream uintptr) Code        `symbol:"ncclAllReduce"`
	Broadcast          func(send, recv, count uintptr, t DataType, root int32, comm, stream uintptr) Code         `symbol:"ncclBroadcast"`
	Reduce             func(send, recv, count uintptr, t DataType, op ReduceOp, root int32, comm, s uintptr) Code `symbol:"ncclReduce"`
	AllGather          func(send, recv, count uintptr, t DataType, comm, stream uintptr) Code                     `symbol:"ncclAllGather"`
	ReduceScatter      func(send, recv, count uintptr, t DataType, op ReduceOp, comm, stream uintptr) Code        `symbol:"ncclReduceScatter"`
	Send               func(buffer, count uintptr, t DataType, peer int32, comm, stream uintptr) Code             `symbol:"ncclSend"`
	Recv               func(buffer, count uintptr, t DataType, peer int32, comm, stream uintptr) Code             `symbol:"ncclRecv"`
	GroupStart         func() Code                                                                                `symbol:"ncclGroupStart"`
	GroupEnd           func() Code                                                                                `symbol:"ncclGroupEnd"`

	// Optional: nil where the library is older, or was built without them.
	CommSplit  func(comm uintptr, color, key int32, child *uintptr, c *config) Code                    `symbol:"ncclCommSplit" since:"21801"`
	CommShrink func(comm uintptr, excluded *int32, n int32, child *uintptr, c *config, how int32) Code `symbol:"ncclCommShrink" since:"22703"`
	CommRevoke func(comm uintptr, flags int32) Code                                                    `symbol:"ncclCommRevoke" since:"22807"`
}

// cudaCalls are the functions of the driver. All of them exist since CUDA 11.
type cudaCalls struct {
	Init              func(flags uint32) int32                                          `symbol:"cuInit"`
	DriverGetVersion  func(version *int32) int32                                        `symbol:"cuDriverGetVersion"`
	GetErrorName      func(code int32, name *unsafe.Pointer) int32                      `symbol:"cuGetErrorName"`
	DeviceGetCount    func(count *int32) int32                                          `symbol:"cuDeviceGetCount"`
	DeviceGet         func(device *int32, ordinal int32) int32                          `symbol:"cuDeviceGet"`
	DeviceGetName     func(name *byte, size, device int32) int32                        `symbol:"cuDeviceGetName"`
	DeviceGetUUID     func(uuid *[16]byte, device int32) int32                          `symbol:"cuDeviceGetUuid"`
	DeviceTotalMem    func(bytes *uintptr, device int32) int32                          `symbol:"cuDeviceTotalMem_v2"`
	PrimaryCtxRetain  func(context *uintptr, device int32) int32                        `symbol:"cuDevicePrimaryCtxRetain"`
	PrimaryCtxRelease func(device int32) int32                                          `symbol:"cuDevicePrimaryCtxRelease_v2"`
	CtxSetCurrent     func(context uintptr) int32                                       `symbol:"cuCtxSetCurrent"`
	MemAlloc          func(pointer *uintptr, size uintptr) int32                        `symbol:"cuMemAlloc_v2"`
	MemFree           func(pointer uintptr) int32                                       `symbol:"cuMemFree_v2"`
	MemHostAlloc      func(pointer *unsafe.Pointer, size uintptr, flags uint32) int32   `symbol:"cuMemHostAlloc"`
	MemFreeHost       func(pointer unsafe.Pointer) int32                                `symbol:"cuMemFreeHost"`
	MemcpyHtoD        func(to uintptr, from unsafe.Pointer, size, stream uintptr) int32 `symbol:"cuMemcpyHtoDAsync_v2"`
	MemcpyDtoH        func(to unsafe.Pointer, from uintptr, size, stream uintptr) int32 `symbol:"cuMemcpyDtoHAsync_v2"`
	MemcpyDtoD        func(to, from, size, stream uintptr) int32                        `symbol:"cuMemcpyDtoDAsync_v2"`
	PointerAttribute  func(value *uint32, attribute int32, pointer uintptr) int32       `symbol:"cuPointerGetAttribute"`
	StreamCreate      func(stream *uintptr, flags uint32) int32                         `symbol:"cuStreamCreate"`
	StreamDestroy     func(stream uintptr) int32                                        `symbol:"cuStreamDestroy_v2"`
	StreamQuery       func(stream uintptr) int32                                        `symbol:"cuStreamQuery"`
	StreamWaitEvent   func(stream, event uintptr, flags uint32) int32                   `symbol:"cuStreamWaitEvent"`
	EventCreate       func(event *uintptr, flags uint32) int32                          `symbol:"cuEventCreate"`
	EventRecord       func(event, stream uintptr) int32                                 `symbol:"cuEventRecord"`
	EventQuery        func(event uintptr) int32                                         `symbol:"cuEventQuery"`
	EventDestroy      func(event uintptr) int32                                         `symbol:"cuEventDestroy_v2"`
}

// Results and flags of the driver, as cuda.h numbers them.
const (
	cudaSuccess  = 0
	cudaNotReady = 600

	streamNonBlocking = 1
	eventNoTiming     = 2
	hostPortable      = 1 // pinned for all contexts

	attributeMemoryType    = 2
	attributeDeviceOrdinal = 9
	memoryTypeDevice       = 2
)

// Values that NCCL's calls take, as nccl.h numbers them.
const (
	shrinkPlain    = 0
	shrinkAborting = 1
)

// config is ncclConfig_t, laid out up to 2.30.7. NCCL copies the smaller of its own
// and our size, and puts fields that are newer than our version back to their
// defaults: so version and size are those of one header, of 2.27, whatever library
// is found, and fields behind configSize are here only to pin the layout down.
type config struct {
	Size                                            uintptr
	Magic, Version                                  uint32
	Blocking, CGAClusterSize, MinCTAs, MaxCTAs      int32
	NetName                                         *byte
	SplitShare, TrafficClass                        int32 // 2.18, 2.26
	CommName                                        *byte // this and the next four: 2.27
	CollnetEnable, CTAPolicy, ShrinkShare, NVLSCTAs int32
	ChannelsPerNetPeer, NVLinkCentricSched          int32 // 2.28
	GraphUsageMode, RMAContexts                     int32 // 2.29
	MaxP2PPeers                                     int32 // 2.30
	GraphStreamOrdering                             int32 // 2.30.5
}

const (
	configMagic   = 0xcafebeef
	configVersion = 22700
	configSize    = unsafe.Offsetof(config{}.ChannelsPerNetPeer)
	undefined     = math.MinInt32
)

// newConfig returns a non-blocking configuration with NCCL's defaults for the rest.
func newConfig() *config {
	return &config{
		Size: configSize, Magic: configMagic, Version: configVersion,
		CGAClusterSize: undefined, MinCTAs: undefined, MaxCTAs: undefined,
		SplitShare: undefined, TrafficClass: undefined,
		CollnetEnable: undefined, CTAPolicy: undefined, ShrinkShare: undefined, NVLSCTAs: undefined,
		ChannelsPerNetPeer: undefined, NVLinkCentricSched: undefined,
		GraphUsageMode: undefined, RMAContexts: undefined, MaxP2PPeers: undefined, GraphStreamOrdering: undefined,
	}
}

// cString is s for C, nil if it is empty. The caller keeps it alive.
func cString(s string) *byte {
	if s == "" {
		return nil
	}
	return &append([]byte(s), 0)[0]
}

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

// working reports whether NCCL accepted a call: it is done, or continues asynchronously.
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

// Bytes is the size of one element, 0 for an unknown type.
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

// ReduceOp is how elements are combined (ncclRedOp_t).
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
