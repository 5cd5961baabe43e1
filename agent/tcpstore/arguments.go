package tcpstore

// Arguments are bounded by their lengths before they are received, and memory for them is taken as
// they arrive: a length alone costs nothing.

const (
	keyCost = 96       // of a key in a request, beside its bytes
	firstKB = 64 << 10 // a longer value is received in parts, each as long as all before
)

func (c *conn) key() (string, error) {
	n, err := c.uint64()
	if err != nil {
		return "", err
	}
	return c.keyOf(n)
}

// keyOf reads a key of n bytes.
func (c *conn) keyOf(n uint64) (string, error) {
	most := c.server.opt.MaxKey
	if n > uint64(most) {
		return "", tooLong("a key", n, most)
	}
	if err := c.take(keyCost + int64(n)); err != nil {
		return "", err
	}
	if n <= bufferBytes {
		b, err := c.next(int(n))
		return string(b), err
	}
	p := make([]byte, n)
	err := c.read(p)
	return string(p), err
}

// value reads a value, which belongs to the caller.
func (c *conn) value() ([]byte, error) {
	length, err := c.uint64()
	if err != nil {
		return nil, err
	}
	most := c.server.opt.MaxValue
	if length > uint64(most) {
		return nil, tooLong("a value", length, most)
	}
	n := int(length)
	var data []byte
	for have := 0; have < n; have = len(data) {
		size := min(n, max(firstKB, 2*have))
		if err := c.take(int64(size)); err != nil {
			return nil, err
		}
		longer := make([]byte, size)
		copy(longer, data)
		if err := c.read(longer[have:]); err != nil {
			return nil, err
		}
		data = longer
	}
	return data, nil
}

// count reads the number of keys of a request.
func (c *conn) count() (int, error) {
	n, err := c.uint64()
	if err != nil {
		return 0, err
	}
	if most := c.server.opt.MaxKeys; n > uint64(most) {
		return 0, tooLong("a list of keys", n, most)
	}
	return int(n), nil
}

func (c *conn) keys() ([]string, error) {
	n, err := c.count()
	if err != nil {
		return nil, err
	}
	keys := make([]string, 0, min(n, 64))
	for range n {
		k, err := c.key()
		if err != nil {
			return nil, err
		}
		keys = append(keys, k)
	}
	return keys, nil
}
