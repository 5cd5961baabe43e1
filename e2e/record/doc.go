// Package record reads the records of the workers of e2e/recorder and determines, independently of
// Regroup's code, which steps count and that each of their samples occurs exactly once.
//
// Which steps count follows from where each generation began. Going back from the last one: a
// generation's steps count up to the step at which a later one began; its further steps are void. A
// step that counts was made by all ranks of its generation, so the records of each of them must
// have it.
package record
