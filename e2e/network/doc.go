// Package network builds a small data centre inside this machine (Linux, root): hosts with network
// stacks and addresses of their own behind one switch, real processes of Regroup on them, and links
// that can be cut or made lossy. Its tests inject faults.
package network
