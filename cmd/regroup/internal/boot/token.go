package boot

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/internal/durable"
	"github.com/regroup-io/regroup/jetstream/identity"
)

// Names of the files of a token that is kept. The token is what counts: the others are written
// from it at each start, for the connection.
const (
	tokenFile     = "token"
	credsFile     = "user.creds"
	authorityFile = "ca.pem"
)

// tokenLimit bounds what is read of a file or of standard input; a token is smaller.
const tokenLimit = 1 << 17

// ReadToken returns the join token that a setting names, and its text: it is the token itself, @
// and the path of a file that has it, or - for standard input. The error has nothing of the token.
func ReadToken(setting string, in io.Reader) (identity.Join, string, error) {
	path, isFile := strings.CutPrefix(setting, "@")
	switch {
	case isFile:
		f, err := os.Open(path)
		if err != nil {
			return identity.Join{}, "", errcode.Errorf(errcode.Invalid, "%w", err)
		}
		defer f.Close()
		return scan(f)
	case setting == "-":
		return scan(in)
	}
	j, err := identity.ParseJoin(setting)
	return j, setting, err
}

// scan reads lines until they are a token: at a terminal nothing ends the input.
func scan(in io.Reader) (identity.Join, string, error) {
	lines := bufio.NewReader(io.LimitReader(in, tokenLimit))
	text := ""
	for {
		line, end := lines.ReadString('\n')
		if text += strings.TrimSpace(line); text == "" && end == nil {
			continue
		}
		j, err := identity.ParseJoin(text)
		switch {
		case err == nil || errors.Is(end, io.EOF) || !identity.IsJoin(text):
			return j, text, err
		case end != nil:
			return j, text, errcode.Errorf(errcode.Invalid, "%w", end)
		}
	}
}

// Token is a token in a folder, unpacked.
type Token struct {
	identity.Join
	Creds, TLSCA string // paths; TLSCA is empty for the system's authorities

	dir, text string // the folder, and the token
}

// KeepToken stores a token in a folder and unpacks it there. All files are readable by their owner
// alone.
func KeepToken(dir, text string) (Token, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return Token{}, errcode.Errorf(errcode.Internal, "join token: %w", err)
	}
	if err := replace(filepath.Join(dir, tokenFile), []byte(compact(text)+"\n")); err != nil {
		return Token{}, err
	}
	return LoadToken(dir)
}

// LoadToken unpacks the token that a folder has; NotFound if it has none.
func LoadToken(dir string) (Token, error) {
	path := filepath.Join(dir, tokenFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return Token{}, errcode.Errorf(errcode.NotFound, "%s has no join token", dir)
	}
	if err != nil {
		return Token{}, errcode.Errorf(errcode.Internal, "join token: %w", err)
	}
	j, err := identity.ParseJoin(string(text))
	if err != nil {
		return Token{}, errcode.Errorf(errcode.Invalid, "%s: %w", path, err)
	}
	k := Token{Join: j, Creds: filepath.Join(dir, credsFile), dir: dir, text: compact(string(text))}
	if err := replace(k.Creds, j.Credentials); err != nil {
		return k, err
	}
	if len(j.Authority) > 0 {
		k.TLSCA = filepath.Join(dir, authorityFile)
		return k, replace(k.TLSCA, j.Authority)
	}
	return k, nil
}

// replace writes a file unless it has this content already.
func replace(path string, data []byte) error {
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, data) {
		if i, err := os.Stat(path); err == nil && i.Mode().Perm() == 0o600 {
			return nil
		}
	}
	if err := durable.WriteFile(path, data); err != nil {
		return errcode.Errorf(errcode.Internal, "join token: %w", err)
	}
	return nil
}
