package projections

import "time"

// Impatient makes a runner try again at once.
func Impatient(r *Runner) { r.backoff = func(int) time.Duration { return 0 } }
