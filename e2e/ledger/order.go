package ledger

import "math/bits"

// mix is the hash of docs/samples.md.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// Order returns which sample is at each of the first places of an epoch.
func Order(seed, epoch, samples, places uint64) []uint64 {
	half := 1
	if samples > 1 {
		half = max(1, (bits.Len64(samples-1)+1)/2)
	}
	low := uint64(1)<<half - 1
	keys := []uint64{mix(mix(mix(seed) ^ epoch))}
	for len(keys) < 6 {
		keys = append(keys, mix(keys[len(keys)-1]))
	}
	order := make([]uint64, 0, places)
	for x := range places {
		for at := x; ; {
			l, r := at>>half, at&low
			for _, k := range keys {
				l, r = r, l^mix(r^k)&low
			}
			if at = l<<half + r; at < samples {
				order = append(order, at)
				break
			}
		}
	}
	return order
}
