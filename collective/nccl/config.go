package nccl

import (
	"math"
	"unsafe"
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

// newConfig makes a non-blocking configuration with NCCL's defaults for the rest.
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

// cString is s for C, nil if it is empty. Who passes it keeps it.
func cString(s string) *byte {
	if s == "" {
		return nil
	}
	return &append([]byte(s), 0)[0]
}
