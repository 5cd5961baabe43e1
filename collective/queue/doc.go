// Package queue takes named operations from ranks that may submit them in different orders, as the
// hooks of a backward pass or several threads do, and executes them in one order.
//
// A goroutine runs cycles while anything is pending:
//
//	vote        one small allreduce tells whether the oldest pending operations are the same
//	            on all ranks. For programs that submit in one order that is all.
//	negotiate   otherwise the ranks exchange the hashes of all that they have pending. What
//	            all of them have under one name, with one specification, is ready. What they
//	            have under one name with different specifications is an error on all ranks.
//	execute     what is ready, in the order in which the first rank submitted it. Small
//	            allreduces of one kind are fused into one.
//
// An operation runs only if its name, method, type, shape, reduction and root are the same on all
// ranks; any difference is a *MismatchError, and the queue continues. Ranks whose programs wait for
// each other's operations get a *DeadlockError. A name that some rank does not submit is reported
// with the ranks that lack it. A rank that has joined takes part in the allreduces of the others
// with identity elements.
//
// Nothing about earlier operations is kept, so names may be used once or a million times.
//
// The model is Horovod's coordination cycle with tensor fusion and join (A. Sergeev and M. Del
// Balso, "Horovod: fast and easy distributed deep learning in TensorFlow", 2018).
//
// While a queue exists, all collective operations of its communicator go through it.
package queue
