package shares

import (
	"log/slog"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"golang.org/x/time/rate"

	"github.com/regroup-io/regroup/events/access"
	"github.com/regroup-io/regroup/jetstream/identity"
)

// Connections looks after the connections of identities to one broker, which counts them by
// account: one identity could take what all others need. It is not safe for concurrent use.
type Connections struct {
	looked map[string]looked // by account

	bytes int64                // that all had published at the last look
	sent  map[uint64]int64     // of which was counted for each connection
	by    map[uint64]publisher // whose it is, where that was asked
	rates map[User]*rate.Limiter
}

// looked is when the connections of an account were looked at, and how many there were.
type looked struct {
	connections int
	at          time.Time
}

// lookAgain is how long what was seen of an account counts.
const lookAgain = 10 * time.Second

// CloseExcess closes the connections of identities that have too many, the newest first. It looks
// at an account only if the number of its connections has changed, if some were closed the last
// time, or after a while: one may have ended as another one began.
func (s *Connections) CloseExcess(ns *server.Server, key string, log *slog.Logger) {
	account, err := ns.LookupAccount(key)
	if err != nil {
		return
	}
	n := account.NumLocalConnections()
	if last := s.looked[key]; last.connections == n && time.Since(last.at) < lookAgain {
		return
	}
	if s.looked == nil {
		s.looked = map[string]looked{}
	}
	s.looked[key] = looked{n, time.Now()}
	count, closed := map[string]int{}, map[string]int{}
	for _, c := range connections(ns, key) {
		most := identity.Amounts(c.Tags).Connections
		if count[c.AuthorizedUser]++; most > 0 && count[c.AuthorizedUser] > most {
			if ns.DisconnectClientByID(c.Cid) == nil {
				closed[nameOf(c)]++
			}
			delete(s.looked, key)
		}
	}
	for name, n := range closed {
		log.Warn("an identity has more connections than its share: the newest are closed", "user", name, "closed", n)
	}
}

// connections returns those of an account, the oldest first.
func connections(ns *server.Server, account string) []*server.ConnInfo {
	return list(ns, server.ConnzOptions{Username: true, Account: account, Limit: 1 << 20, Sort: server.ByCid})
}

func list(ns *server.Server, o server.ConnzOptions) []*server.ConnInfo {
	z, err := ns.Connz(&o)
	if err != nil {
		return nil
	}
	return z.Conns
}

// User is one of an account, by their public keys.
type User struct{ Account, Key, Name string }

// publisher is who has a connection, and how many bytes it may publish in a second; 0 = any number.
type publisher struct {
	User
	most int
}

// counted is what a connection publishes before its bytes are counted, so that a broker with
// thousands of them asks only for the users of those that matter: it verifies the claims of each.
const counted = 64 << 10

// Fast returns the users that have published more than their share: access.BurstOfBytes at once,
// and Amounts.Bytes in each second. It looks at the connections, those that were closed too, only
// if all of them together have published access.LookedAtBytes since it last did.
func (s *Connections) Fast(ns *server.Server, now time.Time) (fast []User) {
	v, err := ns.Varz(nil)
	if err != nil || v.InBytes-s.bytes < access.LookedAtBytes {
		return nil
	}
	s.bytes = v.InBytes
	sent, by, rates, published := map[uint64]int64{}, map[uint64]publisher{}, map[User]*rate.Limiter{}, map[User]int64{}
	for _, c := range list(ns, server.ConnzOptions{Limit: 1 << 20, Sort: server.ByCid, State: server.ConnAll}) {
		sent[c.Cid] = s.sent[c.Cid]
		who, known := s.by[c.Cid]
		if n := c.InBytes - sent[c.Cid]; n >= counted {
			if !known {
				who = publisherOf(ns, c.Cid)
			}
			known, sent[c.Cid] = true, c.InBytes
			if who.most > 0 {
				published[who.User] += n
			}
		}
		if known {
			by[c.Cid] = who
		}
		if who.most > 0 && rates[who.User] == nil {
			if rates[who.User] = s.rates[who.User]; rates[who.User] == nil {
				rates[who.User] = rate.NewLimiter(rate.Limit(who.most), access.BurstOfBytes)
			}
		}
	}
	s.sent, s.by, s.rates = sent, by, rates
	for u, n := range published {
		if !rates[u].AllowN(now, int(n)) {
			fast = append(fast, u)
		}
	}
	return fast
}

// publisherOf asks who has, or had, a connection.
func publisherOf(ns *server.Server, cid uint64) publisher {
	for _, c := range list(ns, server.ConnzOptions{Username: true, CID: cid, State: server.ConnAll}) {
		return publisher{User{Account: c.Account, Key: c.AuthorizedUser, Name: nameOf(c)}, identity.Amounts(c.Tags).Bytes}
	}
	return publisher{} // the broker has just forgotten it
}

// nameOf returns the name of the user of a connection: the broker's own NameTag is the account's.
func nameOf(c *server.ConnInfo) string {
	claims, err := jwt.DecodeUserClaims(c.JWT)
	if err != nil {
		return c.AuthorizedUser
	}
	return claims.Name
}
