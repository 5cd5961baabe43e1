// Package identity keeps a directory with everything that says who may connect to the brokers: the
// keys and claims of NATS (an operator and four accounts), credentials of users with the
// permissions of package access, the password of the cluster's routes, and certificates.
//
// A broker needs only operator.jwt, accounts, cluster.password, tls without ca.key, and the
// credentials of the users operator and system (users/all.creds for regroup up).
package identity
