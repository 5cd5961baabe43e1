// Package traceback finds in the output of a program what ended it: the last traceback of Python
// with its causes, an exception group, a report of faulthandler, a panic of Go, an exception of C++
// that nobody caught. It reads line by line and keeps a bounded amount.
package traceback
