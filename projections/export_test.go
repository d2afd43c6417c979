package projections

import "time"

// Impatient makes a runner try again at once.
func Impatient(r *Runner) { r.backoff = func(int) time.Duration { return 0 } }

// Patient makes a runner try again only after what is long for a test.
func Patient(r *Runner) { r.backoff = func(int) time.Duration { return time.Hour } }
