package nccl

// layout is who is where: the nodes of a generation in the order of their ranks.
type layout struct {
	first, size []int // of each node: its first rank, and how many it has
	node, local int   // this rank's node, and its place there
	// carriers is the size of the smallest node: so many ranks of every node talk to their
	// like on the others, each with a part of the data.
	carriers int
}

func (l *layout) add(first, size int) {
	if len(l.first) == 0 || size < l.carriers {
		l.carriers = size
	}
	l.first, l.size = append(l.first, first), append(l.size, size)
}

func (l *layout) nodes() int { return len(l.first) }

func (l *layout) world() int { return l.first[len(l.first)-1] + l.size[len(l.size)-1] }

// here is the number of ranks of this node.
func (l *layout) here() int { return l.size[l.node] }

func (l *layout) rank() int { return l.first[l.node] + l.local }

// carries says whether this rank takes part between the nodes.
func (l *layout) carries() bool { return l.local < l.carriers }

// alike is this carrier's like on a node.
func (l *layout) alike(node int) int { return l.first[node] + l.local }

// group is with whom this rank reduces between the nodes: itself, if it is no carrier.
func (l *layout) group() []int {
	if !l.carries() {
		return []int{l.rank()}
	}
	ranks := make([]int, l.nodes())
	for node := range ranks {
		ranks[node] = l.alike(node)
	}
	return ranks
}

// find returns where a rank is.
func (l *layout) find(rank int) (node, local int) {
	for rank >= l.first[node]+l.size[node] {
		node++
	}
	return node, rank - l.first[node]
}

// share divides n elements among the carriers of a node: q for each, in order, and what is
// left for the last.
type share struct{ n, q, of int }

// divide makes a share. Where it does not come out even, the parts begin at multiples of 16
// elements, which a GPU reads faster.
func divide(n, of int) share {
	q := n / of
	if n%of != 0 {
		q &^= 15
	}
	return share{n, q, of}
}

// part is the elements [lo, hi) of carrier i; none for who is no carrier.
func (s share) part(i int) (lo, hi int) {
	switch {
	case i >= s.of:
		return 0, 0
	case i == s.of-1:
		return i * s.q, s.n
	}
	return i * s.q, (i + 1) * s.q
}

// even is the elements that are divided evenly, from the first on.
func (s share) even() int { return s.q * s.of }

// longest is the elements of the longest part.
func (s share) longest() int { return s.n - s.q*(s.of-1) }
