// Package shards keeps a sharded state: one of which each member has parts that may be nowhere
// else.
//
// In each generation a member registers the parts that it has memory for. The state goes on from
// the newest commit of which the members have everything, whichever parts they had before:
//
//	Choose ──► (the program makes its model for the new world) ──► Register ... ──► Sync ──► train
//	   ▲                                                                                      │
//	   └─────────────── a member is lost, or a change is planned ◄──── Settle, Save ◄─────────┘
//
// Save copies this member's parts, and begins to send them to the members that keep a copy of them
// (reshard.Copies); Settle, before the next commit is agreed on, waits until those have them. So
// when all members have agreed on a commit, the one before it is whole, and of two commits one can
// be returned to at any time:
//
//	commit 7          copies of 7 travel          agreed on 8: 7 is whole, 6 is dropped
//	────┬──────────────────────────────────┬─────────────┬───────────
//	    Save(7)                            Settle        Save(8)
//
// Save can leave the copying to a goroutine, of parts that do not change before Copied (SetLive).
// If they have, the member gives the commit up with Withdraw: all members hear of it when they
// agree on the next one or in Choose, and return to the one before.
//
// A commit is a set of parts for each member, its own and those that it keeps for others. A part
// that other members need as well is not copied.
//
// With Options.Parity members keep the XOR of parts of the others of their group in place of copies
// (reshard.Groups): each sends each other one a stripe of its parts, which is added to what the
// others sent. So nobody ever has the parts of all. What nobody has of the commit that is chosen is
// rebuilt by Choose, from the parity and what the others of the group have of the same commit, and
// belongs to the sets of those who rebuilt it. Parity is then made again of what each has of that
// commit; until the next Settle one more loss in that group would not be survived.
//
// Before members leave as planned, they send what they alone have of the commit to those who stay,
// who keep it until the next Sync. Nothing else of that commit is sent: nobody is lost as planned.
// If one of them is lost all the same, before the next generation has made copies, the commit
// before has some: it is kept until all have agreed on the one after.
// If nobody can say who leaves, each part is sent to another member, in the order of the nodes to
// one of the opposite half.
//
// Commits go to disk as well: Pin keeps one while it is written, each element by one member, and
// Resume reads a checkpoint of which the members can read everything together, whichever files each
// of them sees.
//
// What this package does not do: it does not know what else belongs to a commit, when one is due
// or written, or which parts a member should have.
package shards
