// Package liveness decides whether a node is alive. The entity is the node; one Machine step takes one observation.
//
//	             hello                 silence
//	  (unknown) ───────► ready ◄──────────────────► suspected
//	                     │  ▲        heard, hello      │
//	       bye           │  │ hello                    │ silence, the ping failed too
//	left ◄───────────────┤  └───────── lost ◄──────────┘
//	  └── hello of a new incarnation ──► ready
//
// An incarnation that was replaced stays fenced: nothing that it says counts any more. A lost node may come back as the
// same incarnation, because it was only silent; one that has said goodbye may not.
// Draining is a property of the machine, not of the agent's life: it survives a restart of the agent until it is undone.
//
// Quarantine is beside these states and outlives the agents' lives, too:
//
//	          several failures charged within the window        the cool-down is over, or by hand
//	slot in use ──────────────────────────────────────► benched ─────────────────────────────────► in use
//	          several slots benched, or lost too often          the same
//	node in use ──────────────────────────────────────► quarantined ─────────────────────────────► in use
//
// The first cool-down is as long as the setting says, each one after it twice as long, and a clean hour takes one doubling
// back. Each life of a worker counts once; planned departures and losses while the node drains do not, and a program
// that crashes without getting any further counts once: somebody who looks for a fault in a script must not lose the slots. Blame is per slot first: one failed process never costs a node its other slots
// (Horovod blacklists the host, never forgets, and begins with two to three times the delay that it documents).
//
// The host list is beside them as well: a node that it does not name is excluded, one that it names has at most as many
// slots as it says.
//
// Ages is the soft half: who has been silent for how long, as one replica of discovery hears it. It decides nothing.
package liveness
