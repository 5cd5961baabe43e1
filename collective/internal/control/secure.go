package control

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
)

// Encrypted connections. Both ends derive a key for each direction from the generation's token and
// the two random numbers of the handshake, so no two connections have a key in common:
//
//	keys    HKDF-SHA256(token, salt = challenge MAC-of-dialer, info)   32 bytes for each direction
//	record  length u32 of what follows, AES-256-GCM(data), nonce = number of the record
//
// The length is authenticated with the data. A record that was changed, repeated, left out or moved
// ends the connection. The token is the only secret: who learns it can read what was recorded of
// its generation.
const (
	maxRecord    = 64 << 10 // bytes of data in one record
	recordHeader = 4
)

var (
	errForged = errors.New("an encrypted message was changed on its way")
	errCut    = errors.New("the encrypted connection was cut off within a message")
)

// secureConn is a connection that is encrypted. Like any net.Conn it may be read and written at the
// same time, and deadlines interrupt it without loss.
type secureConn struct {
	net.Conn

	wmu    sync.Mutex
	seal   cipher.AEAD
	sent   uint64
	wnonce nonce
	wbuf   []byte
	torn   bool // a part of a record was sent: nothing more can be

	rmu      sync.Mutex
	open     cipher.AEAD
	received uint64
	rnonce   nonce
	rbuf     []byte // what has arrived and is not opened
	rspace   []byte // that rbuf is in
	plain    []byte // what is opened and not read; in rspace
}

// secure returns an encrypted connection. challenge and sum are those of the handshake.
func secure(conn net.Conn, token string, challenge, sum []byte, dialer bool) (net.Conn, error) {
	aead := func(direction string) (cipher.AEAD, error) {
		key, err := hkdf.Key(sha256.New, []byte(token), slices.Concat(challenge, sum), "regroup "+direction, 32)
		if err != nil {
			return nil, err
		}
		block, err := aes.NewCipher(key)
		if err != nil {
			return nil, err
		}
		return cipher.NewGCM(block)
	}
	from, errFrom := aead("from the dialer")
	to, errTo := aead("to the dialer")
	if err := errors.Join(errFrom, errTo); err != nil {
		return nil, fmt.Errorf("encryption: %w", err)
	}
	c := &secureConn{Conn: conn, seal: to, open: from}
	if dialer {
		c.seal, c.open = from, to
	}
	return c, nil
}

// nonce holds the number of a record, which never repeats under one key.
type nonce [12]byte

func (n *nonce) of(record uint64) []byte {
	binary.BigEndian.PutUint64(n[4:], record)
	return n[:]
}

// Write encrypts p and sends it. If it is interrupted, n counts the data of whole records only, and
// the connection can be written to again if no part of a record was sent.
func (c *secureConn) Write(p []byte) (n int, err error) {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	for {
		if c.torn {
			return n, errCut
		}
		data := p[n:min(n+maxRecord, len(p))]
		size := len(data) + c.seal.Overhead()
		c.wbuf = binary.LittleEndian.AppendUint32(c.wbuf[:0], uint32(size))
		c.wbuf = c.seal.Seal(c.wbuf, c.wnonce.of(c.sent), data, c.wbuf[:recordHeader])
		written, err := c.Conn.Write(c.wbuf)
		if written > 0 && written < len(c.wbuf) {
			c.torn = true
		}
		if written == len(c.wbuf) {
			c.sent++
			n += len(data)
		}
		if err != nil || n == len(p) {
			return n, err
		}
	}
}

// Read returns data of one record at a time.
func (c *secureConn) Read(p []byte) (int, error) {
	c.rmu.Lock()
	defer c.rmu.Unlock()
	for len(c.plain) == 0 {
		if err := c.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, c.plain)
	c.plain = c.plain[n:]
	return n, nil
}

// next opens one record, and reads what is missing of it first.
func (c *secureConn) next() error {
	for {
		need := recordHeader
		if len(c.rbuf) >= recordHeader {
			size := int(binary.LittleEndian.Uint32(c.rbuf))
			if size < c.open.Overhead() || size > maxRecord+c.open.Overhead() {
				return errForged
			}
			need += size
		}
		if len(c.rbuf) >= need && need > recordHeader {
			sealed := c.rbuf[recordHeader:need]
			plain, err := c.open.Open(sealed[:0], c.rnonce.of(c.received), sealed, c.rbuf[:recordHeader])
			if err != nil {
				return errForged
			}
			c.received++
			c.plain, c.rbuf = plain, c.rbuf[need:]
			return nil
		}
		if err := c.fill(); err != nil {
			return err
		}
	}
}

// fill reads what has arrived, at least a byte. Nothing is lost if it fails.
func (c *secureConn) fill() error {
	if c.rspace == nil {
		c.rspace = make([]byte, recordHeader+maxRecord+c.open.Overhead())
	}
	have := copy(c.rspace, c.rbuf) // plain is empty: nothing else is in there
	n, err := c.Conn.Read(c.rspace[have:])
	c.rbuf = c.rspace[:have+n]
	if n > 0 {
		return nil // an error comes again
	}
	return err
}
