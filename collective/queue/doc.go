// Package queue takes named operations from ranks that may submit them in different
// orders, as the hooks of a backward pass do, and carries them out in one order.
//
// A goroutine runs in cycles while anything is pending:
//
//	negotiate   a byte for each known name says whether it is pending here; the least
//	            over all ranks says which names are pending everywhere. New names are
//	            gathered and compared first, and known from then on.
//	carry out   what is pending everywhere, in the order in which names became known.
//	            Small allreduces of one kind are packed into one.
//
// So different types, lengths or reductions under one name are an error on all ranks, and
// a name that some rank never submits is reported with the ranks that miss it. A single
// tensor leaves at once; while a cycle runs, what comes in is collected for the next.
//
// The model is Horovod's coordination cycle with its response cache and tensor fusion (A.
// Sergeev and M. Del Balso, "Horovod: fast and easy distributed deep learning in
// TensorFlow", 2018).
//
// While a queue exists, all collective operations of its communicator go through it.
package queue
