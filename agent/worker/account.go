package worker

// Account is the user that a worker's processes run as.
type Account struct {
	Name     string
	UID, GID uint32
	Own      uint32   // the primary group of the user, whatever GID is
	Groups   []uint32 // supplementary
	Home     string
}

// Another reports whether the account is of another user than the one with this id; nil is the same
// user.
func (a *Account) Another(uid int) bool { return a != nil && int64(a.UID) != int64(uid) }
