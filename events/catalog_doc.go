package events

import (
	"fmt"
	"strings"

	"github.com/regroup-io/regroup/events/limits"
)

// CatalogMarkdown renders the catalogue for docs/events.md: one table per class and family.
func CatalogMarkdown() string {
	var b strings.Builder
	b.WriteString("# Events\n\nGenerated from the catalogue in `events/catalog.go`. Every message is a CloudEvent 1.0, in binary mode as we write it;\nboth modes are read. The data is JSON; fields may be added, never changed: another meaning is another type.\n")
	b.WriteString(longLists)
	rows := Catalog()
	for _, class := range []struct {
		class Class
		title string
		intro string
	}{
		{ClassCommand, "Commands", "Sent by clients to the stream `" + StreamCommands + "`, answered by facts. Data of at most " + fmt.Sprint(limits.Command.Max>>10) + " KiB. One with the\nCloudEvents extension `expirytime` is refused, with a fact, when it comes to its service after that time by the clock of the broker (`ts` of `STREAM.INFO`)."},
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

const longLists = `
## Long lists

A job may have tens of thousands of workers, so lists of them are grouped by node.

- Places (` + "`placement.set`, `round.opened`" + `): one text for the slots of a node, in order: ` + "`[\"node-a/0-7\", \"node-b/0,2\"]`" + `.
- Members (` + "`round.sealed`" + `), in order of rank, one object per node: ` + "`node`, `slots` (`\"0-7\"`), `agent`, `workers`, `ports`, `attempts`, `pids`, `commits`" + `.
  The incarnation of the i-th is ` + "`prefix + workers[i] + suffix`" + `, its address ` + "`host + \":\" + ports[i]`" + ` (or ` + "`addresses[i]`" + ` where they have nothing in common).
  One value in the place of a list stands for all of the group; what is absent is zero or empty. Ranks count up through the whole list, local ranks
  within a group; a cross rank counts the groups before that are longer than the local rank. Readers also meet the plain form, one object with ` + "`place`, `rank`" + `
  and the rest per member, where ranks do not follow from the order.
- Data of more than ` + "128 KiB" + ` is compressed; the NATS header ` + "`Content-Encoding: gzip`" + ` says so.
`
