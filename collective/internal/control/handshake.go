package control

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"
	"unsafe"

	"github.com/regroup-io/regroup/collective/internal/frame"
)

// The handshake. The acceptor speaks first, so that a token is never proved over a value that the
// dialer alone chose:
//
//	acceptor → dialer   magic "RGRP", version, byte order, 2 zeroes, challenge (16)
//	dialer → acceptor   length u16, hello, HMAC(token, "dial" challenge hello)
//	acceptor → dialer   code u8, length u16, detail, HMAC(token, "answer" MAC-of-dialer code detail)
//
// After a welcome, connections that carry data are encrypted if both ends want that, see secure.go.
//
// Only a welcome must be authentic, because an endpoint that refuses may not know the token. Until
// the dialer has proved that it knows the token, it gets one of two answers without a detail,
// refused and busy: neither names a job, a generation or a setting.
const (
	magic        = "RGRP"
	wireVersion  = 6
	greetingLen  = 24
	challengeLen = 16
	randomLen    = 16 // in a hello: no two hellos are the same
	helloFixed   = 4 + 4 + 4 + 8 + 8 + 8 + 3 + randomLen + 1 + 1
	macLen       = sha256.Size
)

// Purpose is what a connection is for.
type Purpose uint8

// The purposes.
const (
	PurposeControl    Purpose = iota + 1 // control frames between neighbours
	PurposeData                          // messages of collective operations
	PurposeDirect                        // point-to-point messages; the stream is their origin
	PurposeProbe                         // asks whether the process is alive; closed after the reply
	PurposeLocal                         // to form the group of a machine, dialed to its first rank
	PurposeDeathWatch                    // ends when the process dies; see watchPeers
	// from outside of any generation, to the endpoint's service; the ranks mean nothing
	PurposeService
)

type replyCode uint8

const (
	replyWelcome  replyCode = iota
	replyRefused            // without a detail: the token was not proved, or its generation is unknown here
	replyMismatch           // the token was proved: same generation, other settings
	replyFailed             // the token was proved: the generation failed; the detail is the encoded failure
	replyBusy               // try again: there is no room, or the generation has not begun here
)

// Limits of what a hello may announce.
const (
	MaxWorld   = 1 << 20
	MaxStreams = 32
)

// hello is what the dialer says about itself.
type hello struct {
	purpose    Purpose
	order      byte
	from, to   int
	world      int
	stream     int
	generation uint64
	settings   uint64 // hash of the options that must be equal on all ranks
	stall      time.Duration
	random     [randomLen]byte
	encrypt    bool // what follows the handshake, if purpose has that
	job        string
}

// encrypts reports whether connections of a purpose are encrypted where both ends want that. The
// others carry nothing, and what watches for deaths needs the socket.
func (p Purpose) encrypts() bool { return p != PurposeProbe && p != PurposeDeathWatch }

var errHandshake = errors.New("malformed handshake")

// byteOrder is 1 on little endian machines and 2 on big endian ones.
func byteOrder() byte {
	one := uint16(1)
	if *(*byte)(unsafe.Pointer(&one)) == 1 {
		return 1
	}
	return 2
}

func (h hello) encode() []byte {
	le := binary.LittleEndian
	b := []byte{byte(h.purpose), h.order, byte(h.stream)}
	b = le.AppendUint32(b, uint32(h.from))
	b = le.AppendUint32(b, uint32(h.to))
	b = le.AppendUint32(b, uint32(h.world))
	b = le.AppendUint64(b, h.generation)
	b = le.AppendUint64(b, h.settings)
	b = le.AppendUint64(b, uint64(h.stall))
	b = append(b, h.random[:]...)
	if h.encrypt {
		b = append(b, 1)
	} else {
		b = append(b, 0)
	}
	b = append(b, byte(len(h.job)))
	return append(b, h.job...)
}

// parseHello decodes what encode made, and nothing else.
func parseHello(b []byte) (hello, error) {
	if len(b) < helloFixed {
		return hello{}, fmt.Errorf("%w: hello of %d bytes", errHandshake, len(b))
	}
	le := binary.LittleEndian
	h := hello{
		purpose: Purpose(b[0]), order: b[1], stream: int(b[2]),
		from: int(le.Uint32(b[3:])), to: int(le.Uint32(b[7:])), world: int(le.Uint32(b[11:])),
		generation: le.Uint64(b[15:]),
		settings:   le.Uint64(b[23:]),
		stall:      time.Duration(le.Uint64(b[31:])),
		encrypt:    b[39+randomLen] == 1,
		job:        string(b[helloFixed:]),
	}
	copy(h.random[:], b[39:])
	switch {
	case b[39+randomLen] > 1:
		return hello{}, fmt.Errorf("%w: encryption %d", errHandshake, b[39+randomLen])
	case int(b[40+randomLen]) != len(h.job) || h.job == "":
		return hello{}, fmt.Errorf("%w: job name of %d bytes, announced %d", errHandshake, len(h.job), b[40+randomLen])
	case h.purpose < PurposeControl || h.purpose > PurposeService:
		return hello{}, fmt.Errorf("%w: purpose %d", errHandshake, b[0])
	case h.purpose == PurposeService && (h.world != 1 || h.from != 0 || h.to != 0):
		return hello{}, fmt.Errorf("%w: a visitor with rank %d of %d", errHandshake, h.from, h.world)
	case h.purpose != PurposeService && (h.world < 1 || h.world > MaxWorld || h.from >= h.world || h.to >= h.world || h.from < 0 || h.to < 0 || h.from == h.to):
		return hello{}, fmt.Errorf("%w: rank %d to rank %d of %d", errHandshake, h.from, h.to, h.world)
	case h.stream >= MaxStreams || h.stall <= 0:
		return hello{}, fmt.Errorf("%w: stream %d, stall limit %d ns", errHandshake, h.stream, h.stall)
	}
	return h, nil
}

func mac(token string, parts ...[]byte) []byte {
	m := hmac.New(sha256.New, []byte(token))
	for _, p := range parts {
		m.Write(p)
	}
	return m.Sum(nil)
}

func dialerMAC(token string, challenge, hello []byte) []byte {
	return mac(token, []byte("dial"), challenge, hello)
}

func answerMAC(token string, dialer []byte, code replyCode, detail []byte) []byte {
	return mac(token, []byte("answer"), dialer, []byte{byte(code)}, detail)
}

func greeting(challenge []byte) []byte {
	b := append([]byte(magic), wireVersion, byteOrder(), 0, 0)
	return append(b, challenge...)
}

func readGreeting(r io.Reader) ([]byte, error) {
	b := make([]byte, greetingLen)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, err
	}
	if string(b[:4]) != magic || b[4] != wireVersion {
		return nil, fmt.Errorf("%w: not an endpoint of version %d", errHandshake, wireVersion)
	}
	if b[5] != byteOrder() {
		return nil, fmt.Errorf("%w: the peer's machine has the other byte order", errHandshake)
	}
	return b[8:], nil
}

// readHello returns the encoded hello, the decoded one, and its MAC.
func readHello(r io.Reader) (body []byte, h hello, sum []byte, err error) {
	var size [2]byte
	if _, err = io.ReadFull(r, size[:]); err != nil {
		return nil, hello{}, nil, err
	}
	n := int(binary.LittleEndian.Uint16(size[:]))
	if n < helloFixed || n > helloFixed+255 {
		return nil, hello{}, nil, fmt.Errorf("%w: hello of %d bytes", errHandshake, n)
	}
	b := make([]byte, n+macLen)
	if _, err = io.ReadFull(r, b); err != nil {
		return nil, hello{}, nil, err
	}
	h, err = parseHello(b[:n])
	return b[:n], h, b[n:], err
}

func appendReply(token string, dialer []byte, code replyCode, detail []byte) []byte {
	b := []byte{byte(code)}
	b = binary.LittleEndian.AppendUint16(b, uint16(len(detail)))
	b = append(b, detail...)
	return append(b, answerMAC(token, dialer, code, detail)...)
}

func readReply(r io.Reader, token string, dialer []byte) (replyCode, []byte, error) {
	var fixed [3]byte
	if _, err := io.ReadFull(r, fixed[:]); err != nil {
		return 0, nil, err
	}
	n := int(binary.LittleEndian.Uint16(fixed[1:]))
	if n > frame.MaxControl {
		return 0, nil, fmt.Errorf("%w: reply of %d bytes", errHandshake, n)
	}
	b := make([]byte, n+macLen)
	if _, err := io.ReadFull(r, b); err != nil {
		return 0, nil, err
	}
	code, detail := replyCode(fixed[0]), b[:n]
	if code == replyWelcome && !hmac.Equal(b[n:], answerMAC(token, dialer, code, detail)) {
		return 0, nil, fmt.Errorf("%w: the acceptor does not know the token", errHandshake)
	}
	return code, detail, nil
}
