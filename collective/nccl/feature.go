package nccl

// Feature is something that a version of NCCL can do and an older one cannot.
type Feature struct {
	Name    string
	Since   Version // the first release with it
	Present bool    // whether the library at hand has it
}

// Features lists what depends on the version, oldest first.
func (l *Library) Features() []Feature {
	n := &l.nccl
	return []Feature{
		{"scaled sums (PreMulSum)", since("PreMulSumCreate"), n.PreMulSumCreate != nil && n.RedOpDestroy != nil},
		{"non-blocking communicators", 21403, true}, // Open refuses a library without them
		{"Split", since("CommSplit"), n.CommSplit != nil},
		{"Register", since("CommRegister"), n.CommRegister != nil && n.CommDeregister != nil},
		{"AllocNCCL", since("MemAlloc"), n.MemAlloc != nil && n.MemFree != nil},
		{"Reform by shrinking", since("CommShrink"), n.CommShrink != nil},
		{"RegisterWindow", since("WindowRegister"), n.WindowRegister != nil && n.WindowDeregister != nil},
		{"all-to-all in one call", since("AlltoAll"), n.AlltoAll != nil},
		{"Reform by revoking", since("CommRevoke"), n.CommRevoke != nil},
		{"Grow", since("CommGrow"), n.CommGrow != nil && n.CommGetUniqueID != nil},
		{"MemoryBytes", since("CommMemStats"), n.CommMemStats != nil},
	}
}
