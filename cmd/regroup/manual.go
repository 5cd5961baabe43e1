package main

import (
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/cmd/regroup/internal/screen"
	"github.com/regroup-io/regroup/docs"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/spec"
)

// page is a page of the documentation.
type page struct {
	Name  string `json:"name"` // of its file, without .md
	Title string `json:"title"`
	text  string
}

func readPages() (all []page, err error) {
	err = fs.WalkDir(docs.Pages, ".", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := fs.ReadFile(docs.Pages, file)
		p := page{Name: strings.TrimSuffix(path.Base(file), ".md"), text: string(b)}
		first, _, _ := strings.Cut(p.text, "\n")
		p.Title = strings.TrimPrefix(first, "# ")
		all = append(all, p)
		return err
	})
	slices.SortFunc(all, func(a, b page) int { return strings.Compare(a.Name, b.Name) })
	return all, err
}

// section is a heading and what stands below it, up to the next one that is as high or higher.
type section struct {
	heading string
	level   int
	text    string // with the heading
}

// sectionsOf returns the sections of a page, in their order. A # within a block of code is no
// heading.
func sectionsOf(text string) (all []section) {
	lines := slices.Collect(strings.Lines(text))
	var at []int // their lines
	inCode := false
	for i, line := range lines {
		if strings.HasPrefix(line, "```") {
			inCode = !inCode
		}
		marks := len(line) - len(strings.TrimLeft(line, "#"))
		if !inCode && marks > 0 && strings.HasPrefix(line[marks:], " ") {
			all, at = append(all, section{heading: strings.TrimSpace(line[marks:]), level: marks}), append(at, i)
		}
	}
	for i := range all {
		end := len(lines)
		for j := i + 1; j < len(all); j++ {
			if all[j].level <= all[i].level {
				end = at[j]
				break
			}
		}
		all[i].text = strings.Join(lines[at[i]:end], "")
	}
	return all
}

// manualCommand returns regroup docs, which shows the pages; generated and the manual pages are
// below it.
func manualCommand(env command.Env, below ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: "docs [PAGE [SECTION]]", Short: "Show the documentation", Args: cobra.MaximumNArgs(2),
		Long:    "Shows the documentation of this version, which is in the binary: without an argument the list of pages, else a page as Markdown, by its name or the beginning of it, or a section of it by some words of its heading. With --find it shows the lines that have a text, with their page and section.",
		Example: command.Examples("regroup docs", "regroup docs python | less", "regroup docs python sharded", "regroup docs --find MASTER_PORT"),
	}
	find := cmd.Flags().String("find", "", "show the lines with this `TEXT`, in small or capital letters")
	form := command.Reading(cmd, command.Table, command.JSON, command.YAML, command.Name)
	cmd.ValidArgsFunction = func(_ *cobra.Command, args []string, _ string) (words []cobra.Completion, _ cobra.ShellCompDirective) {
		all, err := readPages()
		if err != nil || len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		for _, p := range all {
			words = append(words, cobra.CompletionWithDesc(p.Name, p.Title))
		}
		return words, cobra.ShellCompDirectiveNoFileComp
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		all, err := readPages()
		switch {
		case err != nil:
			return err
		case *find != "":
			return findIn(env.Out, all, *find, args)
		case len(args) == 0:
			return command.Print(env, cmd, form, all, command.Columns[page]{
				Name: func(p page) string { return p.Name }, Header: []string{"PAGE", "TITLE"}, Row: func(_ screen.Palette, p page) []string { return []string{p.Name, p.Title} },
			})
		}
		p, err := pageOf(all, args[0])
		if err == nil && len(args) > 1 {
			p.text, err = sectionOf(p, args[1])
		}
		if err == nil {
			_, err = io.WriteString(env.Out, p.text)
		}
		return err
	}
	cmd.AddCommand(below...)
	return cmd
}

// pageOf returns the page of a name, or the only one whose name begins so.
func pageOf(all []page, name string) (page, error) {
	name = strings.TrimSuffix(name, ".md")
	names := make([]string, len(all))
	var begin []page
	for i, p := range all {
		if names[i] = p.Name; p.Name == name {
			return p, nil
		}
		if name != "" && strings.HasPrefix(p.Name, name) {
			begin = append(begin, p)
		}
	}
	switch len(begin) {
	case 0:
	case 1:
		return begin[0], nil
	default:
		var words []string
		for _, p := range begin {
			words = append(words, p.Name)
		}
		return page{}, errcode.Errorf(errcode.NotFound, "there is no page %q: which one of %s?", name, strings.Join(words, ", "))
	}
	return page{}, errcode.Errorf(errcode.NotFound, "there is no page %q: %s", name, cmp.Or(spec.DidYouMean(name, names), "regroup docs lists them, regroup docs --find TEXT searches them"))
}

func sectionOf(p page, words string) (string, error) {
	var headings []string
	for _, s := range sectionsOf(p.text)[1:] {
		if strings.Contains(strings.ToLower(s.heading), strings.ToLower(words)) {
			return s.text, nil
		}
		headings = append(headings, "  "+s.heading)
	}
	return "", errcode.Errorf(errcode.NotFound, "no heading of %s has %q; it has\n%s", p.Name, words, strings.Join(headings, "\n"))
}

// findIn prints the lines that have a text, of all pages or of the one that is named.
func findIn(w io.Writer, all []page, text string, args []string) error {
	if len(args) > 0 {
		p, err := pageOf(all, args[0])
		if err != nil {
			return err
		}
		all = []page{p}
	}
	found := false
	for _, p := range all {
		heading, inCode := "", false
		for line := range strings.Lines(p.text) {
			if strings.HasPrefix(line, "```") {
				inCode = !inCode
			}
			if !inCode && strings.HasPrefix(line, "#") {
				heading = strings.TrimSpace(strings.TrimLeft(line, "#"))
			}
			if strings.Contains(strings.ToLower(line), strings.ToLower(text)) {
				found = true
				if _, err := fmt.Fprintf(w, "%s, %s: %s\n", p.Name, heading, strings.TrimSpace(line)); err != nil {
					return err
				}
			}
		}
	}
	if !found {
		return errcode.Errorf(errcode.NotFound, "no page has %q", text)
	}
	return nil
}
