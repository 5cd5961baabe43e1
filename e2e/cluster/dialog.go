package cluster

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
)

// Dialog is a program that is told by lines what to do, and says by lines what it has done.
type Dialog struct {
	*exec.Cmd
	In    io.WriteCloser
	lines *bufio.Scanner
}

// Talk starts a program.
func Talk(cmd *exec.Cmd) (*Dialog, error) {
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 16<<20)
	return &Dialog{cmd, in, lines}, cmd.Start()
}

// Tell sends the program a line of words.
func (d *Dialog) Tell(words ...any) error {
	_, err := fmt.Fprintln(d.In, words...)
	return err
}

// Line returns the next line, or io.EOF.
func (d *Dialog) Line() (string, error) {
	if !d.lines.Scan() {
		return "", errors.Join(d.lines.Err(), io.EOF)
	}
	return d.lines.Text(), nil
}

// Expect reads on until a line begins with a word, and returns what follows. The word "failed"
// begins an error.
func (d *Dialog) Expect(ctx context.Context, word string) (string, error) {
	for {
		line, err := d.Line()
		if err != nil {
			return "", fmt.Errorf("%s has ended before %q: %w", d.Path, word, errors.Join(context.Cause(ctx), err))
		}
		first, rest, _ := strings.Cut(line, " ")
		switch first {
		case word:
			return rest, nil
		case "failed":
			return "", errors.New(rest)
		}
	}
}

// End ends the input, and waits for the program.
func (d *Dialog) End() error { return errors.Join(d.In.Close(), d.Wait()) }
