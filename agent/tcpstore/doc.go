// Package tcpstore serves the TCPStore of torch.distributed: the key-value store in which the
// processes of a job find each other (MASTER_ADDR, MASTER_PORT). The agent serves one store for
// each generation, so that nothing of an earlier generation can be read in a later one, and so
// that the store does not end with the process of rank 0.
//
// # Protocol
//
// The protocol has no specification. What is served here is that of the clients in PyTorch 1.13
// to 2.15, taken from the bytes that 1.13 and 2.15 send and from the sources of
// torch/csrc/distributed/c10d: TCPStore.cpp, TCPStoreBackend.cpp (the server that polls) and
// TCPStoreLibUvBackend.cpp (the default server since 2.4).
//
// Integers are little-endian. A string is its length in 8 bytes, then its bytes; a list of strings
// is their number in 8 bytes, then the strings. A request is one byte, the operation, then its
// arguments. There are no request ids and no error replies: replies follow in the order of the
// requests, and an error closes the connection.
//
//	operation     1.13  2.0  2.1+  arguments              reply
//	VALIDATE       -     -    0    u32 magic              -
//	SET            0     0    1    key, value             -
//	COMPARE_SET    1     1    2    key, expected, value   bytes
//	GET            2     2    3    key                    bytes
//	ADD            3     3    4    key, i64               i64
//	CHECK          4     4    5    keys                   0 all present, 1 not
//	WAIT           5     5    6    keys                   0, once all are present
//	GETNUMKEYS     6     6    7    -                      i64
//	WATCH_KEY      7     7    -    key                    3
//	DELETE_KEY     8     8    8    key                    i64, 1 or 0
//	APPEND         -     9    9    key, value             -
//	MULTI_GET      -    10   10    keys                   a value for each
//	MULTI_SET      -    11   11    n, then (key, value)   -
//	CANCEL_WAIT    -    12   12    -                      1
//	PING           -     -   13    u32                    the same u32
//	QUEUE_PUSH     -     -   14    key, value             -
//	QUEUE_POP      -     -   15    key                    i64 length before; a value if > 0
//	QUEUE_LEN      -     -   16    key                    i64
//	LIST_KEYS      -     -   17    -                      i64, then that many keys
//	BARRIER        -     -   18    key, i64 world size    0, once that many have called it
//
// A connection whose first bytes are 00 CE F7 85 3C (VALIDATE and its magic number) speaks the
// newest dialect, every other one an older. In the older ones 00 is SET, and the four bytes would
// be the length of a key over 1 GB. 1.13 and 2.0 need no distinction. A client of 1.13 opens a
// second connection on which it never sends anything, unless the program calls watchKey: it is
// answered, and no change is reported.
//
// # Differences from the servers of PyTorch
//
//   - Inputs are bounded (Options), and what is over a bound closes the connection.
//   - A request that arrives while the connection waits ends the wait. A client of 1.13 whose wait
//     has timed out sends its next request on the same connection; its own server answers the
//     wait later, in the place of another reply, and the client never recovers.
//   - COMPARE_SET wakes those who wait for the key if it creates the key. 1.13 wakes nobody, libuv
//     always.
//   - GET of an absent key closes the connection in the older dialects, as 1.13 does, and returns
//     an empty value in the newest, as libuv does. Clients wait for the key first.
//   - Text that is no number closes the connection that calls ADD or BARRIER, not the server.
//   - WATCH_KEY reports nothing.
package tcpstore
