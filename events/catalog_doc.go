package events

import (
	"fmt"
	"strings"
)

// CatalogMarkdown renders the catalogue for docs/events.md: one table per class and family.
func CatalogMarkdown() string {
	var b strings.Builder
	b.WriteString("# Events\n\nGenerated from the catalogue in `events/catalog.go`. Every message is a CloudEvent 1.0, in binary mode as we write it;\nboth modes are read. The data is JSON; fields may be added, never changed: another meaning is another type.\n")
	rows := Catalog()
	for _, class := range []struct {
		class Class
		title string
		intro string
	}{
		{ClassCommand, "Commands", "Sent by clients to the stream `" + StreamCommands + "`, answered by facts. Data of at most " + fmt.Sprint(MaxPayload>>10) + " KiB."},
		{ClassFact, "Facts", "What has happened, on the stream `" + StreamFacts + "`. Each type has one writer."},
	} {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n", class.title, class.intro)
		done := map[Family]bool{}
		for _, r := range rows {
			if f := r.Type.Family(); r.Class == class.class && !done[f] {
				done[f] = true
				familyTable(&b, rows, class.class, f)
			}
		}
	}
	return b.String()
}

func familyTable(b *strings.Builder, rows []Entry, class Class, f Family) {
	fmt.Fprintf(b, "\n### %s\n\n| type | what | subject | writer | readers | since |\n|---|---|---|---|---|---|\n", f)
	for _, r := range rows {
		if r.Class != class || r.Type.Family() != f {
			continue
		}
		subject := CommandSubject(r.Type)
		if class == ClassFact {
			subject = FactSubject(r.Type, entityWord(f))
		}
		readers := "clients"
		if len(r.Readers) > 0 {
			readers = strings.Join(r.Readers, ", ")
		}
		fmt.Fprintf(b, "| `%s` | %s | `%s` | %s | %s | %s |\n", r.Type, r.What, subject, r.Writer, readers, r.Since)
	}
}

func entityWord(f Family) string {
	if f == FamilyNode {
		return "<node>"
	}
	return "<job>"
}
