package worker

// Account is the user that a worker's processes run as.
type Account struct {
	Name     string
	UID, GID uint32
	Own      uint32   // the primary group of the user, whatever GID is
	Groups   []uint32 // supplementary
	Home     string
}
