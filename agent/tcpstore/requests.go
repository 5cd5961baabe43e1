package tcpstore

import (
	"errors"
	"fmt"
)

// op is an operation, as the newest dialect numbers them.
type op byte

const (
	opValidate op = iota
	opSet
	opCompareSet
	opGet
	opAdd
	opCheck
	opWait
	opNumKeys
	opDelete
	opAppend
	opMultiGet
	opMultiSet
	opCancelWait
	opPing
	opPush
	opPop
	opQueueLen
	opListKeys
	opBarrier
	opWatch // of older dialects only
)

const (
	magic = 0x3C85F7CE

	stopWaiting     = 0
	waitCanceled    = 1
	allPresent      = 0
	notPresent      = 1
	watchRegistered = 3
)

var errAbsent = errors.New("GET of a key that is absent")

// operation returns what a first byte of a request asks for.
func operation(b byte, older bool) (op, bool) {
	switch o := op(b); {
	case !older:
		return o, opValidate < o && o <= opBarrier
	case b < 7:
		return o + 1, true
	case b == 7:
		return opWatch, true
	default:
		return o, o <= opCancelWait
	}
}

// request reads the arguments of a request, and executes it.
func (c *conn) request(b byte) error {
	o, known := operation(b, c.older)
	if !known {
		return garbage(fmt.Sprintf("no operation %d", b))
	}
	switch o {
	case opCheck, opWait, opMultiGet:
		return c.keysRequest(o)
	case opMultiSet:
		return c.multiSet()
	case opNumKeys:
		return c.writeInt(int64(c.store.len()))
	case opCancelWait:
		return c.writeByte(waitCanceled) // the wait has ended with the arrival of this request
	case opPing:
		return c.ping()
	case opListKeys:
		return c.listKeys()
	default:
		key, err := c.key()
		if err != nil {
			return err
		}
		return c.keyRequest(o, key)
	}
}

// keyRequest executes a request whose first argument is a key.
func (c *conn) keyRequest(o op, key string) error {
	switch o {
	case opSet:
		return c.set(key)
	case opCompareSet:
		return c.compareSet(key)
	case opGet:
		return c.writeValue(c.store.getOne(key))
	case opAdd:
		return c.add(key)
	case opDelete:
		if c.store.remove(key) {
			return c.writeInt(1)
		}
		return c.writeInt(0)
	case opAppend, opPush:
		data, err := c.value()
		if err != nil {
			return err
		}
		change := c.store.append
		if o == opPush {
			change = c.store.push
		}
		woken, err := change(key, data)
		notify(woken)
		return err
	case opPop:
		return c.pop(key)
	case opQueueLen:
		return c.writeInt(int64(c.store.queueLen(key)))
	case opBarrier:
		return c.barrier(key)
	default: // opWatch
		return c.writeByte(watchRegistered)
	}
}

func (c *conn) set(key string) error {
	data, err := c.value()
	if err != nil {
		return err
	}
	woken, err := c.store.set(key, data)
	notify(woken)
	return err
}

func (c *conn) compareSet(key string) error {
	expected, err := c.value()
	if err != nil {
		return err
	}
	desired, err := c.value()
	if err != nil {
		return err
	}
	v, woken, err := c.store.compareSet(key, expected, desired)
	notify(woken)
	if err != nil {
		return err
	}
	return c.writeValue(v)
}

func (c *conn) add(key string) error {
	delta, err := c.uint64()
	if err != nil {
		return err
	}
	n, woken, err := c.store.add(key, int64(delta))
	notify(woken)
	if err != nil {
		return err
	}
	return c.writeInt(n)
}

func (c *conn) ping() error {
	n, err := c.uint32()
	if err != nil {
		return err
	}
	return c.write([]byte{byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24)})
}

func (c *conn) pop(key string) error {
	v, n := c.store.pop(key)
	err := c.writeInt(int64(n))
	if v == nil || err != nil {
		return err
	}
	return c.writeValue(v)
}

// barrier counts the call, and waits for the last one. What was replied before is sent first,
// because others write the answer of a wait.
func (c *conn) barrier(key string) error {
	size, err := c.uint64()
	if err != nil {
		return err
	}
	if err := c.out.Flush(); err != nil {
		return err
	}
	c.waiting = true
	last, woken, err := c.store.barrier(&c.waiter, key, int64(size))
	notify(woken)
	return c.waited(last, err)
}

// waited replies to a wait that is over at once.
func (c *conn) waited(over bool, err error) error {
	if err != nil || !over {
		return err
	}
	c.waiting = false
	return c.writeByte(stopWaiting)
}

func (c *conn) keysRequest(o op) error {
	keys, err := c.keys()
	if err != nil {
		return err
	}
	switch o {
	case opCheck:
		if c.store.check(keys) {
			return c.writeByte(allPresent)
		}
		return c.writeByte(notPresent)
	case opWait:
		if err := c.out.Flush(); err != nil {
			return err
		}
		c.waiting = true
		return c.waited(c.store.wait(&c.waiter, keys))
	}
	values := c.store.get(keys...)
	for i, v := range values {
		if err := c.writeValue(v); err != nil {
			for _, rest := range values[i+1:] {
				if rest != nil {
					rest.release(&c.store.budget)
				}
			}
			return err
		}
	}
	return nil
}

func (c *conn) multiSet() error {
	n, err := c.count()
	if err != nil {
		return err
	}
	var pairs []pair
	for range n {
		var p pair
		if p.key, err = c.key(); err != nil {
			return err
		}
		if p.data, err = c.value(); err != nil {
			return err
		}
		pairs = append(pairs, p)
	}
	woken, err := c.store.setAll(pairs)
	notify(woken)
	return err
}

func (c *conn) listKeys() error {
	keys, size := c.store.keys()
	if err := c.take(size + int64(len(keys))*keyCost); err != nil {
		return err
	}
	if err := c.writeInt(int64(len(keys))); err != nil {
		return err
	}
	for _, k := range keys {
		if err := c.writeBytes([]byte(k)); err != nil {
			return err
		}
	}
	return nil
}

// writeValue writes a value, and releases it. An absent one is empty in the newest dialect.
func (c *conn) writeValue(v *value) error {
	if v == nil {
		if c.older {
			return errAbsent
		}
		return c.writeInt(0)
	}
	defer v.release(&c.store.budget)
	return c.writeBytes(v.data)
}
