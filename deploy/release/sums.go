package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const sums = "SHA256SUMS"

// A signer signs the checksums, which stand for all other files.
type signer struct {
	cosign string
	key    string // empty = nothing is signed
}

// finish writes the checksums, signs them, and prints what there is.
func finish(ctx context.Context, dist string, s signer) error {
	files, err := listed(dist)
	if err != nil {
		return err
	}
	var lines strings.Builder
	for _, f := range files {
		fmt.Fprintf(&lines, "%s  %s\n", f.sum, f.name)
		fmt.Printf("%s  %11d  %s\n", f.sum, f.size, f.name)
	}
	if err := os.WriteFile(filepath.Join(dist, sums), []byte(lines.String()), 0o644); err != nil {
		return err
	}
	if s.key == "" {
		fmt.Printf("release: not signed, because there is no key: make release COSIGN_KEY=cosign.key\n")
		return nil
	}
	// Without the log, because a release can be made where there is no network.
	args := []string{"sign-blob", "--yes", "--tlog-upload=false", "--key", s.key, "--output-signature", sums + ".sig", sums}
	if _, err := output(ctx, dist, s.cosign, args...); err != nil {
		return err
	}
	fmt.Printf("release: %s.sig signs all of them\n", sums)
	return nil
}
