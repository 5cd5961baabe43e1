package main

// main is never called: the library is loaded, not run.
func main() {}
