// Package reshard says who sends which part of a sharded state to whom.
//
// A sharded state consists of global tensors, of which each member holds parts: boxes, as DTensor
// and DCP of PyTorch describe their shards by offsets and sizes. When the members change, so do the
// boxes that each of them needs:
//
//	weight of 12 rows, dealt to 4 members, and then to the 3 that remain when member 3 is gone,
//	of which member 0 has a copy:
//
//	              has                 needs         receives
//	member 0      rows 0-2, 9-11      rows 0-3      row 3 from member 1
//	member 1      rows 3-5            rows 4-7      rows 6 and 7 from member 2
//	member 2      rows 6-8            rows 8-11     rows 9-11 from member 0
//
// Plan computes this for any boxes of any number of dimensions. What a member has is not sent to
// it, what it lacks is sent to it once, and the members that have something share the work. A part
// that several members lack travels along a chain of them, each of which forwards what it receives.
// So replicated state is not a case of its own: it is a box of all elements that some members have
// and others lack.
//
// Holders chooses who keeps copies of the parts of others. Groups chooses who keep parity for each
// other, which is less and survives less. Survives tells how many losses a commit survives.
// Once and Deal choose who writes which part to disk, and who reads it.
//
// What this package does not do: it moves nothing, and it does not know which commit a part is of.
// All of it is a function of its arguments, so that the members compute the same plan.
package reshard
