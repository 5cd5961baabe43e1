// Package record reads what the workers of e2e/recorder wrote down and proves, with nothing of
// Regroup's own, which steps count and that their samples are each there exactly once.
//
// Which steps count follows from where each generation began. Going back from the last one: a
// generation's steps count up to the step at which a later one began; what it made beyond is void.
// A step that counts was made by all ranks of its generation, so the account of every one of them
// must hold it.
package record
