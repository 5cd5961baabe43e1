// Command tcpstore serves stores of package agent/tcpstore to the clients of PyTorch in tests. For
// each line of its standard input, which is a port or 0 for any, it prints the address of a new
// store; at the end of the input it ends.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"log/slog"
	"net"
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
	level := slog.LevelWarn
	if verbose {
		level = slog.LevelDebug
	}
	o := tcpstore.Options{Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		l, err := net.Listen("tcp", net.JoinHostPort(host, lines.Text()))
		if err != nil {
			return err
		}
		defer o.Serve(l).Close()
		fmt.Println(l.Addr())
	}
	return nil
}
