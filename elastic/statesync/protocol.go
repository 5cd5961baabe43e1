package statesync

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"
)

// The protocol between a newcomer, which is not a member yet, and a holder of the state. Numbers
// are little endian.
//
//	newcomer → holder   request u8, length u32, body
//	holder → newcomer   response u8, length u32, text                          (refused, or reached)
//	                    response u8, length u32, generation u64, step u64, meta, then by chunk:
//	                    u8 chunkSame | u8 chunkSent, hash, bytes               (state)
//	                    response u8, length u32, entries                       (prologue)
//
// A newcomer does not have to trust what it receives: the sync compares the hashes again with those
// of the members.
const (
	requestReach    byte = iota + 1 // body: the address at which the holder shall call back
	requestState                    // body: final u8, layout, the hashes of the newcomer's chunks
	requestPrologue                 // no body; the response is the whole prologue
)

const (
	responseNo byte = iota + 1
	responseYes
)

const (
	chunkSame byte = iota + 1
	chunkSent
)

// noCommit is the only refusal of requestState after which the newcomer tries again.
const noCommit = "nothing is committed yet"

const (
	ioTimeout    = 10 * time.Second // of one chunk, or of a response that needs no waiting
	reachTimeout = 3 * time.Second
	maxAddress   = 1 << 10
	maxText      = 1 << 10
	maxMeta      = 256 << 20
)

var errProtocol = errors.New("the holder does not keep to the protocol")

// stateRequestBytes is the length of the body of requestState.
func stateRequestBytes(chunks int) int { return 1 + sha256.Size + chunks*len(chunkHash{}) }

func writeMessage(w io.Writer, kind byte, body []byte) error {
	b := binary.LittleEndian.AppendUint32([]byte{kind}, uint32(len(body)))
	_, err := w.Write(append(b, body...))
	return err
}

// readMessage reads a message of writeMessage whose body has at most limit bytes.
func readMessage(r io.Reader, limit int) (kind byte, body []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := int(binary.LittleEndian.Uint32(head[1:]))
	if n > limit {
		return 0, nil, fmt.Errorf("a message of %d bytes, at most %d are expected", n, limit)
	}
	body = make([]byte, n)
	_, err = io.ReadFull(r, body)
	return head[0], body, err
}
