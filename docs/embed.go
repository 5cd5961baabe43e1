// Package docs holds the documentation, so that the binary can show it where there is no network.
package docs

import "embed"

// Pages holds the Markdown files of this folder and of the tutorials.
//
//go:embed *.md tutorials/*.md
var Pages embed.FS
