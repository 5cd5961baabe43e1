package identity

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/regroup-io/regroup/events/access"
	"github.com/regroup-io/regroup/events/errcode"
)

// answerWithin is how long after a request its service may answer.
const answerWithin = time.Minute

// Issue makes a user with the permissions of its role and writes its credentials file. It expires
// after the given time; 0 = never. Conflict if a valid user has the name.
func (d Dir) Issue(i access.Identity, expires time.Duration) (User, error) {
	var made User
	if expires < 0 {
		return made, errcode.Errorf(errcode.Invalid, "expires: is %s, write a time from now like 24h", expires)
	}
	return made, d.change(func(all []User) ([]User, error) {
		now := time.Now()
		if slices.ContainsFunc(all, func(u User) bool { return u.Name == i.Name && u.Valid(now) }) || i.Name == SystemUser {
			return nil, errcode.Errorf(errcode.Conflict, "there is a user %s: give another name, or rotate or revoke that one", i.Name)
		}
		var err error
		made, err = d.issue(i, expires, now)
		return append(all, made), err
	})
}

// issue signs the claims of a user and writes its credentials file.
func (d Dir) issue(i access.Identity, expires time.Duration, now time.Time) (User, error) {
	u := User{Name: i.Name, Role: i.Role, Node: i.Node, RunAs: i.User, Issued: now.UTC().Truncate(time.Second)}
	may, err := access.Of(i)
	if err != nil {
		return u, err
	}
	claims := jwt.NewUserClaims("unset")
	claims.Pub.Allow, claims.Pub.Deny, claims.Sub.Allow = may.Publish, may.Deny, may.Subscribe
	if may.Responses {
		claims.Resp = &jwt.ResponsePermission{MaxMsgs: 1, Expires: answerWithin}
	}
	limit(claims, i.Amounts())
	if expires > 0 {
		u.Expires = u.Issued.Add(expires).Truncate(time.Second)
		claims.Expires = u.Expires.Unix()
	}
	if u.Outside = i.Role.Outside(); u.Outside {
		if err := d.connectAccounts(); err != nil {
			return u, err
		}
	}
	return d.sign(u, claims, signer(i.Role))
}

// Tags of claims that say how much a user may have, which brokers of ours look after.
const (
	tagConnections = "connections:"
	tagConsumers   = "consumers:"
	tagBytes       = "bytes:" // published in a second
)

// limit writes amounts into the claims of a user.
func limit(claims *jwt.UserClaims, a access.Amounts) {
	if a.Subscriptions > 0 {
		claims.Limits.Subs = int64(a.Subscriptions)
	}
	if a.Payload > 0 {
		claims.Limits.Payload = int64(a.Payload)
	}
	if a.Connections > 0 {
		claims.Tags.Add(tagConnections + strconv.Itoa(a.Connections))
	}
	if a.Consumers > 0 {
		claims.Tags.Add(tagConsumers + strconv.Itoa(a.Consumers))
	}
	if a.Bytes > 0 {
		claims.Tags.Add(tagBytes + strconv.Itoa(a.Bytes))
	}
}

// Amounts returns what the tags of a user's claims say of its amounts.
func Amounts(tags []string) (a access.Amounts) {
	for _, t := range tags {
		for prefix, to := range map[string]*int{tagConnections: &a.Connections, tagConsumers: &a.Consumers, tagBytes: &a.Bytes} {
			if n, err := strconv.Atoi(strings.TrimPrefix(t, prefix)); err == nil && n > 0 {
				*to = n
			}
		}
	}
	return a
}

// AmountsOf returns the same of credentials; none if they cannot be read.
func AmountsOf(creds []byte) access.Amounts {
	claims, ok := claimsOf(creds)
	if !ok {
		return access.Amounts{}
	}
	return Amounts(claims.Tags)
}

// issueSystem makes the user of the system account.
func (d Dir) issueSystem(all []User) ([]User, error) {
	u := User{Name: SystemUser, Role: roleSystem, Issued: time.Now().UTC().Truncate(time.Second)}
	claims := jwt.NewUserClaims("unset")
	claims.Pub.Deny = jwt.StringList{">"}
	claims.Sub.Allow = jwt.StringList{systemReports, access.Identity{Name: SystemUser}.InboxPrefix() + ".>"}
	u, err := d.sign(u, claims, systemKey)
	return append(all, u), err
}

// systemReports is where brokers report the connections that have closed.
const systemReports = "$SYS.ACCOUNT.*.DISCONNECT"

// sign makes the key of a user, signs its claims, and writes its credentials file.
func (d Dir) sign(u User, claims *jwt.UserClaims, signer string) (User, error) {
	by, err := d.key(signer)
	if err != nil {
		return u, err
	}
	pair, err := nkeys.CreateUser()
	if err != nil {
		return u, failed(err)
	}
	seed, err := pair.Seed()
	if err != nil {
		return u, failed(err)
	}
	u.Key = public(pair)
	claims.Subject, claims.Name = u.Key, u.Name
	text, err := claims.Encode(by)
	if err != nil {
		return u, failed(err)
	}
	creds, err := jwt.FormatUserConfig(text, seed)
	if err != nil {
		return u, failed(err)
	}
	return u, WriteFile(d.Credentials(u.Name), creds)
}

// Revoke makes the brokers refuse a user from now on, with any of its keys; they close its
// connections. NotFound if no valid user has the name.
func (d Dir) Revoke(name string) error {
	return d.change(func(all []User) ([]User, error) {
		newest, err := valid(all, name)
		if err != nil {
			return nil, err
		}
		if err := d.revokeOld(all, newest); err != nil {
			return nil, err
		}
		return all, d.revoke(newest)
	})
}

// RevokeOld makes the brokers refuse all keys of a user but the newest, which Rotate has kept.
// NotFound if there are none.
func (d Dir) RevokeOld(name string) error {
	return d.change(func(all []User) ([]User, error) {
		newest, err := valid(all, name)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(all, func(u User) bool { return Old(all, u, time.Now()) && u.Name == name }) {
			return nil, errcode.Errorf(errcode.NotFound, "%s has no old key that is valid: one is kept with regroup auth rotate %[1]s --keep-old", name)
		}
		return all, d.revokeOld(all, newest)
	})
}

// Old reports whether a user is valid, and its name has a newer key.
func Old(all []User, u User, now time.Time) bool {
	newest, err := valid(all, u.Name)
	return err == nil && u.Valid(now) && u.Key != newest.Key
}

// revokeOld revokes all keys of a user but the newest.
func (d Dir) revokeOld(all []User, newest *User) error {
	for n := range all {
		if Old(all, all[n], time.Now()) && all[n].Name == newest.Name {
			if err := d.revoke(&all[n]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d Dir) revoke(u *User) error {
	if err := d.refuse(*u); err != nil {
		return err
	}
	u.Revoked = time.Now().UTC().Truncate(time.Second)
	return nil
}

// Rotate gives a user a new key, with the permissions that its role has now, and revokes the old
// one unless that is kept, until RevokeOld. Its life is as long as that of the old one was.
// NotFound if no valid user has the name.
func (d Dir) Rotate(name string, keepOld bool) (User, error) {
	var made User
	return made, d.change(func(all []User) ([]User, error) {
		u, err := valid(all, name)
		if err != nil {
			return nil, err
		}
		old := *u
		if old.Role == roleSystem {
			all, err = d.issueSystem(all)
			made = all[len(all)-1]
		} else {
			life := time.Duration(0)
			if !old.Expires.IsZero() {
				life = old.Expires.Sub(old.Issued)
			}
			// The file is first: a client that is disconnected finds the new key there.
			made, err = d.issue(access.Identity{Role: old.Role, Name: old.Name, Node: old.Node, User: old.RunAs}, life, time.Now())
			all = append(all, made)
		}
		if err != nil || keepOld {
			return all, err
		}
		return all, d.revokeOld(all, &all[len(all)-1])
	})
}

// valid finds the newest key of the user that has a name now.
func valid(all []User, name string) (*User, error) {
	now := time.Now()
	for n := len(all) - 1; n >= 0; n-- {
		if all[n].Name == name && all[n].Valid(now) {
			return &all[n], nil
		}
	}
	var names []string
	for _, u := range all {
		if u.Valid(now) && !slices.Contains(names, u.Name) {
			names = append(names, u.Name)
		}
	}
	return nil, errcode.Errorf(errcode.NotFound, "there is no user %q: there are %s", name, strings.Join(names, ", "))
}
