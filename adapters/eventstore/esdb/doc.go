// Package esdb is event.Store on EventStoreDB or KurrentDB, 22.10 or newer, through EventStore-Client-Go/v4.
//
// That client is the last of its line and has known faults, so nothing outside this package meets it. What the package
// does about each:
//
//   - A client whose discovery fails is dead for good, and a read that finds no connection never starts a new one:
//     manager replaces the client after either.
//   - Calls can hang while the client looks for a node, whatever their context says: every call runs in a goroutine of
//     its own and is left behind when its context ends.
//   - Closing a client that has calls in flight panics: calls are counted, and a replaced client is closed by the last.
//   - A client that forgets its connection and looks for a node again leaves the connection open, and when it finds
//     none, its other callers wait for ever: it logs the error before it forgets, and from then on no call is let in
//     (see manager.hear, which is why the module's version is pinned).
//   - Messages that it does not know, and errors without the trailers it wants, make it panic: calls recover.
//   - It loses a connection now and then when it moves to another leader: it is replaced after a few moves.
//   - It never sends "requires-leader": this package does, so that a deposed leader refuses instead of answering with
//     what it knew, and the client moves to the new leader.
//   - Subscriptions never reconnect, and may fall silent: follower starts them again, and a watchdog looks at the head.
//   - A refused append of several events ends in EOF without a reason: the outcome is looked up, by event ids.
//   - No expected revision means any, no start means the end: both are always given.
//
// # Versions and positions
//
// Versions begin at 1, revisions at 0: version v is revision v-1, and an append that expects version 0 expects no stream.
//
// A position is the commit position of the event's record in $all. Events written by the protocol's appends commit
// themselves: each is a record with its own place in the transaction file, commit and prepare position are the same
// number, and both rise within one append. (Only the explicit transactions of the old TCP protocol let events
// share a commit position; nothing here writes those.) So the commit position alone is the cursor. Servers older than
// 22.10 give no position when a stream is read; that is an error here, not a guess.
//
// # Form
//
// Data is the event's data. User metadata is {"metal":<schema version>,"meta":<metadata>}, where the inner metadata is
// kept byte for byte, because the hash chain is taken over it. Events of $all without this envelope, in system streams
// or outside Options.StreamPrefix are not ours and are passed over.
package esdb
