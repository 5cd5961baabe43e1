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
// Ages is the soft half: who has been silent for how long, as one replica of discovery hears it. It decides nothing.
package liveness
