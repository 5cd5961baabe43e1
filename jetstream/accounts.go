package jetstream

import (
	"cmp"
	"crypto/rand"

	"github.com/nats-io/nats-server/v2/server"
)

// SystemUser is the default name of the system account's user.
const SystemUser = "regroup-system"

// accounts adds a user of the system account to a server without accounts of its own, and returns
// its access. Other clients still need no name: they are users of the global account. A
// configuration with users is left unchanged.
func (s System) accounts(opts *server.Options) System {
	if len(opts.Accounts)+len(opts.Users)+len(opts.Nkeys)+len(opts.TrustedOperators) > 0 || opts.Username != "" || opts.Authorization != "" ||
		opts.SystemAccount != "" || opts.NoSystemAccount {
		return s
	}
	s.User, s.Password = cmp.Or(s.User, SystemUser), cmp.Or(s.Password, rand.Text())
	account := server.NewAccount(server.DEFAULT_SYSTEM_ACCOUNT)
	const anybody = "regroup"
	opts.Accounts = []*server.Account{account}
	opts.Users = []*server.User{
		{Username: s.User, Password: s.Password, Account: account},
		{Username: anybody, Password: rand.Text()},
	}
	opts.NoAuthUser = anybody
	return System{User: s.User, Password: s.Password}
}
