// Package dashboard has the pages that a gateway serves to people. They are modules that browsers
// run as they are; nothing builds them. files/vendor has the libraries, as they were published:
// vendor.lock has their hashes and licences.
package dashboard

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/hex"
	"io/fs"
	"mime"
	"net/http"
	"net/url"
	"path"
	"strings"

	"github.com/regroup-io/regroup/events/errcode"
)

//go:embed files
var files embed.FS

// Headers sets what keeps a page from running or loading what is not ours.
func Headers(w http.ResponseWriter) { headers(w, "") }

func headers(w http.ResponseWriter, scripts string) {
	w.Header().Set("Content-Security-Policy", "default-src 'none'; script-src 'self'"+scripts+"; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'")
	w.Header().Set("Cross-Origin-Opener-Policy", "same-origin")
	w.Header().Set("Cross-Origin-Resource-Policy", "same-origin")
}

// pages are the first words of the addresses of pages.
var pages = map[string]bool{"overview": true, "jobs": true, "nodes": true, "submit": true, "system": true}

// hashed returns the address of a page whose # was left out: /#/jobs/x?a=b for /jobs/x?a=b.
func hashed(u *url.URL) string {
	to := "/#" + u.EscapedPath()
	if u.RawQuery != "" {
		to += "?" + u.RawQuery
	}
	return to
}

// file is one embedded file.
type file struct {
	text  []byte
	media string
	tag   string
}

// Handler serves the files, and sends who asks for a page without its # to the address with it.
func Handler() (http.Handler, error) {
	all := map[string]file{}
	err := fs.WalkDir(files, "files", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := files.ReadFile(name)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(text)
		media := mime.TypeByExtension(path.Ext(name))
		switch path.Ext(name) {
		case ".js", ".mjs":
			media = "text/javascript; charset=utf-8"
		case ".map", "":
			media = "text/plain; charset=utf-8"
		}
		all[strings.TrimPrefix(name, "files")] = file{text, media, `"` + hex.EncodeToString(sum[:8]) + `"`}
		return nil
	})
	if err != nil {
		return nil, errcode.Errorf(errcode.Internal, "the dashboard's files: %w", err)
	}
	index := all["/index.html"]
	scripts := allowed(index.text)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := r.URL.Path
		if name == "/" {
			name = "/index.html"
		}
		f, ok := all[name]
		if !ok {
			Headers(w)
			if first, _, _ := strings.Cut(strings.TrimPrefix(name, "/"), "/"); pages[first] {
				http.Redirect(w, r, hashed(r.URL), http.StatusFound)
				return
			}
			http.Error(w, "there is no such page", http.StatusNotFound)
			return
		}
		h := w.Header()
		headers(w, scripts)
		h.Set("Content-Type", f.media)
		h.Set("Cache-Control", "no-cache")
		h.Set("ETag", f.tag)
		if r.Header.Get("If-None-Match") == f.tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		_, _ = w.Write(f.text) // the client has gone
	}), nil
}

// allowed returns the source expression of the one script in a page, its map of modules.
func allowed(page []byte) string {
	const begin, end = `<script type="importmap">`, "</script>"
	_, rest, ok := bytes.Cut(page, []byte(begin))
	text, _, closed := bytes.Cut(rest, []byte(end))
	if !ok || !closed {
		return ""
	}
	sum := sha256.Sum256(text)
	return " 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
