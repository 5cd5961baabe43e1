// Package statesync brings the members of a generation to the same training state.
//
// Each member has a Replica: its tensors, and the newest commit of them in memory. A commit is a
// Snapshot, which is hashed and sent in chunks of 1 MiB. State moves in two ways:
//
//   - Replica.Sync runs when a generation begins. The members exchange their inventories, choose
//     the newest commit that any of them has, and relay the chunks that are missing from those who
//     have them to those who lack them.
//   - A Prefetch fetches the commits of a running generation for a worker that is not a member yet,
//     from the Server of a member. The sync that follows only sends what has changed since.
//
// Nothing that was received becomes a commit before its hash was compared with the one that all
// members agreed on, so a transfer that breaks off loses nothing.
//
// What this package does not do: it does not know what the metadata of a commit means, when a
// commit is due, or who is a member.
package statesync
