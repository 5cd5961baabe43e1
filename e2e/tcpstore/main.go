// Command tcpstore serves stores of package agent/tcpstore to the clients of PyTorch in tests. It
// prints the address of a new store at its start, and of one more for each line of its standard
// input; at the end of the input it ends. With bench it measures a store beside PyTorch's own
// server.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"log/slog"
	"os"

	"github.com/regroup-io/regroup/agent/tcpstore"
)

func main() {
	host := flag.String("host", "127.0.0.1", "address to serve on")
	verbose := flag.Bool("v", false, "say why connections end")
	flag.Parse()
	if err := serve(*host, *verbose); err != nil {
		fmt.Fprintln(os.Stderr, "tcpstore:", err)
		os.Exit(1)
	}
}

func serve(host string, verbose bool) error {
	o := tcpstore.Options{}
	if verbose {
		o.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	lines := bufio.NewScanner(os.Stdin)
	for {
		s, err := o.Listen(host)
		if err != nil {
			return err
		}
		defer s.Close()
		fmt.Println(s.Addr())
		if !lines.Scan() {
			return lines.Err()
		}
	}
}
