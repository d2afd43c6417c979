package event

// Reacher is a Store that knows, without asking, how far the log reaches at least. What it knows may be behind the log; what
// it has not heard of yet, Changed tells.
type Reacher interface{ Reached() Position }

// MayHaveMore tells a follower that has read up to after whether to read on at once: false where that is exactly how far the
// store knows the log to reach, so that the end of a busy log is found without a query. Such a follower waits in Changed.
// A store that knows less than the follower is asked.
func MayHaveMore(s any, after Position) bool {
	r, knows := s.(Reacher)
	return !knows || r.Reached() != after
}
