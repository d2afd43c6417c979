// Package domain holds what is true about machines and what may happen to them.
//
// It is pure: no I/O, no clock, no randomness, no goroutines. Time and ids come in as arguments. Ten words carry the
// whole design; nothing else needs a name.
//
// An event is a fact that happened, in the past tense, with a written name (domain/event). It is never changed or
// deleted.
//
// A stream is the ordered list of one aggregate's events, named <category>-<id>, with versions dense from 1.
//
// An aggregate is a thing that decides: a node, a pool, a claim. Its state is the fold of its stream and of nothing
// else.
//
// A verb (command) is a wish against an aggregate, such as deploy. An aggregate's Decide turns a verb into events or
// into an error of domain/fault; package commands loads, authorizes, decides and appends.
//
// A projection is a read model: tables derived from the log, which can be dropped and rebuilt at any time.
//
// A checkpoint is the position in the log up to which a projection has applied every event.
//
// A process manager is a reconciler: it looks at what is, and makes the next thing happen that should.
//
// A wake-up is a hint that a process manager should look at a key. Nothing depends on one arriving.
//
// A step is one operation of a workflow, such as setting the boot device.
//
// An agent command is an order to one agent on one machine. It is never just a command.
//
// Start reading in domain/node: moves.go is the table, decide.go the rules, evolve.go the fold.
package domain
