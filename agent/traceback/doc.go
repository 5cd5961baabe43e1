// Package traceback finds the cause of a program's end in its output: the last traceback of Python
// with its causes, an exception group, a report of faulthandler, a panic of Go, an uncaught
// exception of C++. It reads line by line and keeps a bounded amount.
package traceback
