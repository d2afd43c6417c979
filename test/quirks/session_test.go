package quirks

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/better-compute/metal/adapters/bmc"
	"github.com/better-compute/metal/adapters/bmc/redfish"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/node"
)

// TestSessions is section 1 of the list, as far as it is about who logs in and how often.
func TestSessions(t *testing.T) {
	row(t, "R01_a_hundred_failing_calls_hold_one_session", func(t *testing.T) {
		r := start(t)
		r.On("GET", System, Always(Problem(500, "Base.1.8.InternalError", "The request failed.")))
		for i := range 100 {
			ctx, cancel := context.WithCancel(t.Context())
			if i%3 == 0 {
				cancel() // every third caller has gone away before it asks
			}
			err := r.doWithin(ctx, func(ctx context.Context, m machine) error { _, err := m.Power(ctx); return err })
			cancel()
			if err == nil {
				t.Fatal("no error")
			}
		}
		atMost(t, "sessions at one time", r.Counts().PeakSessions, 1)
		r.close()
		same(t, "sessions left", r.Counts().Sessions, 0)
	})

	row(t, "R01_a_caller_that_leaves_during_the_login", func(t *testing.T) {
		r := start(t)
		ctx, leave := context.WithCancel(t.Context())
		r.On("POST", Sessions, func(x *Exchange) *Answer {
			a := x.Next()
			leave()
			x.wait(100 * time.Millisecond)
			return a
		})
		if err := r.doWithin(ctx, powerOnly); err == nil {
			t.Fatal("no error")
		}
		r.close()
		same(t, "sessions made", r.Counts().Logins, 1)
		same(t, "sessions left", r.Counts().Sessions, 0)
	})

	row(t, "R01_one_session_serves_many_callers", func(t *testing.T) {
		r := start(t)
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if err := r.doWithin(t.Context(), powerOnly); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		atMost(t, "sessions at one time", r.Counts().PeakSessions, 1)
	})

	row(t, "R01_a_session_that_nobody_uses_is_ended", func(t *testing.T) {
		r := attach(t, Start(t), redfish.Options{SessionIdle: 50 * time.Millisecond})
		must(t, r.do(powerOnly))
		soon(t, "the session is ended", func() bool { return r.Counts().Sessions == 0 })
		must(t, r.do(powerOnly))
		same(t, "logins", r.Counts().Logins, 2)
	})

	row(t, "R01_a_logout_under_way_is_waited_for", func(t *testing.T) {
		r := attach(t, Start(t), redfish.Options{SessionIdle: 50 * time.Millisecond})
		r.On("DELETE", "", Slow(300*time.Millisecond))
		must(t, r.do(powerOnly))
		soon(t, "a logout begins", func() bool { return len(r.Requests("DELETE", "")) == 1 })
		r.close()
		same(t, "sessions left", r.Counts().Sessions, 0)
	})

	for name, full := range map[string]*Answer{
		"R01_session_limit":               Problem(503, "IDRAC.2.4.RAC0218", "The maximum number of user sessions is reached."),
		"R01_session_limit_standard":      Problem(503, "Base.1.8.SessionLimitExceeded", "The session establishment failed due to the number of simultaneous sessions exceeding the limit of the implementation."),
		"R01_session_limit_text_only_400": Problem(400, "Base.1.8.GeneralError", "The maximum number of user sessions is reached."),
	} {
		row(t, name, func(t *testing.T) {
			r := start(t)
			r.On("POST", Sessions, Always(full))
			for range 10 {
				must(t, r.do(powerOnly)) // by Basic authentication
			}
			atMost(t, "logins that were tried", len(r.Requests("POST", Sessions)), 2)
		})
	}

	for name, give := range map[string]Rule{
		"R02_location_of_another_host": func(x *Exchange) *Answer {
			a := x.Next()
			return a.With("Location", "https://other-name.example"+a.Header.Get("Location"))
		},
		"R02_no_location": func(x *Exchange) *Answer { return x.Next().With("Location", "") },
	} {
		row(t, name, func(t *testing.T) {
			r := start(t)
			r.On("POST", Sessions, give)
			must(t, r.do(powerOnly))
			r.close()
			same(t, "sessions made", r.Counts().Logins, 1)
			same(t, "sessions left", r.Counts().Sessions, 0)
		})
	}

	row(t, "R02_neither_location_nor_id", func(t *testing.T) {
		r := start(t)
		r.On("POST", Sessions, func(x *Exchange) *Answer {
			a := x.Next().With("Location", "")
			a.Body = Doc{"Name": "Session"}
			return a
		})
		must(t, r.do(powerOnly))
		atMost(t, "sessions made", r.Counts().Logins, 1)
	})

	for name, status := range map[string]int{"R05_logout_401": 401, "R05_logout_404": 404} {
		row(t, name, func(t *testing.T) {
			r := start(t)
			r.On("DELETE", "", Always(Problem(status, "Base.1.8.NoValidSession", "There is no such session.")))
			must(t, r.do(powerOnly))
			r.close() // fails the test where it gives an error
			same(t, "logouts", len(r.Requests("DELETE", "")), 1)
		})
	}
}

func powerOnly(ctx context.Context, m machine) error {
	_, err := m.Power(ctx)
	return err
}

// TestCredentials is section 1, as far as it is about credentials that are refused.
func TestCredentials(t *testing.T) {
	refused := Problem(401, "Base.1.8.NoValidSession", "There is no valid session.")

	row(t, "R06_a_401_now_and_then", func(t *testing.T) {
		r := start(t)
		r.On("GET", System, func(x *Exchange) *Answer {
			if x.N%2 == 1 {
				return Always(refused)(x)
			}
			return x.Next()
		})
		for range 5 {
			must(t, r.do(powerOnly))
		}
		atMost(t, "logins", r.Counts().Logins, 2)
	})

	row(t, "R06_401_always", func(t *testing.T) {
		r := start(t)
		r.On("GET", System, Always(refused))
		wantReason(t, r.do(powerOnly), bmc.CredentialsRejected)
		atMost(t, "reads", len(r.Requests("GET", System)), 6)
		atMost(t, "logins", len(r.Requests("POST", Sessions)), 3)
	})

	row(t, "R07_a_wrong_password_locks_nobody_out", func(t *testing.T) {
		r := start(t, func(s *Server) { s.Edit("/redfish/v1/AccountService", Doc{"AccountLockoutThreshold": 3}) })
		r.SetPassword("another")
		for range 20 { // a controller that tries again every 15 seconds, for 5 minutes
			wantReason(t, r.do(powerOnly), bmc.CredentialsRejected)
			r.clock.turn(15 * time.Second)
		}
		atMost(t, "wrong passwords within 5 minutes", r.Counts().Rejected, 2)
	})

	row(t, "R07_many_callers_with_a_wrong_password", func(t *testing.T) {
		r := start(t)
		r.SetPassword("another")
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() { wantReason(t, r.doWithin(t.Context(), powerOnly), bmc.CredentialsRejected) })
		}
		all.Wait()
		atMost(t, "wrong passwords", r.Counts().Rejected, 2)
	})

	row(t, "R07_the_right_password_needs_no_waiting", func(t *testing.T) {
		r := start(t)
		r.SetPassword("another")
		wantReason(t, r.do(powerOnly), bmc.CredentialsRejected)
		r.SetPassword(Password + "-2")
		r.target.Password, r.target.CredentialVersion = Password+"-2", "2"
		must(t, r.do(powerOnly))
	})

	row(t, "R07_later_it_is_tried_again", func(t *testing.T) {
		r := start(t)
		r.SetPassword("another")
		wantReason(t, r.do(powerOnly), bmc.CredentialsRejected)
		r.SetPassword(Password)
		r.clock.turn(24 * time.Hour)
		must(t, r.do(powerOnly))
	})

	row(t, "R07_a_locked_account", func(t *testing.T) {
		r := start(t)
		locked := Problem(403, "Base.1.8.AccountLocked", "The account is locked.")
		r.On("", "", func(x *Exchange) *Answer {
			if key(x.Path) == Root {
				return x.Next()
			}
			return Always(locked)(x)
		})
		wantReason(t, r.do(powerOnly), bmc.CredentialsRejected)
		atMost(t, "logins", len(r.Requests("POST", Sessions)), 2)
	})

	row(t, "R08_a_rotated_password", func(t *testing.T) {
		r := start(t)
		must(t, r.do(powerOnly))
		r.SetPassword(Password + "-2")
		r.target.Password, r.target.CredentialVersion = Password+"-2", "2"
		must(t, r.do(powerOnly))
		same(t, "logins", r.Counts().Logins, 2)
		r.close()
		same(t, "sessions left", r.Counts().Sessions, 0)
	})

	row(t, "R08_sessions_that_die_again_and_again", func(t *testing.T) {
		r := start(t)
		for range 5 {
			must(t, r.do(powerOnly))
			r.EndSessions()
		}
		same(t, "logins", r.Counts().Logins, 5)
	})

	row(t, "R06_what_an_account_may_not_see", func(t *testing.T) {
		r := start(t)
		r.On("GET", System+"/*", Always(refused)) // the machine itself is shown, and nothing of what is in it
		for range 3 {
			same(t, "ports", len(r.inspect().Hardware.NICs), 0)
		}
		must(t, r.do(powerOnly))
		atMost(t, "logins", r.Counts().Logins, 2)
	})

	for name, status := range map[string]int{"R08_a_dead_session_401": 401, "R08_a_dead_session_403": 403} {
		row(t, name, func(t *testing.T) {
			r := start(t)
			must(t, r.do(powerOnly))
			r.EndSessions()
			r.clock.turn(time.Minute)
			r.On("", "", func(x *Exchange) *Answer {
				a := x.Next()
				if a.Status == http.StatusUnauthorized {
					a.Status = status
				}
				return a
			})
			must(t, r.do(powerOnly))
			same(t, "logins", r.Counts().Logins, 2)
		})
	}
}

// TestBusy is section 1, as far as it is about controllers that do not answer in time.
func TestBusy(t *testing.T) {
	unavailable := Problem(503, "Base.1.8.ServiceTemporarilyUnavailable", "The service is temporarily unavailable. Retry in 30 seconds.", "30")

	row(t, "R10_the_service_names_a_time", func(t *testing.T) {
		r := start(t)
		r.On("GET", System, Always(unavailable))
		err := r.do(powerOnly)
		wantReason(t, err, bmc.NotReady)
		same(t, "retryAfter", inSeconds(t, err), 30)
		atMost(t, "reads before the time that was named", len(r.Requests("GET", System)), 1)
	})

	row(t, "R10_the_header_names_a_time", func(t *testing.T) {
		r := start(t)
		r.On("GET", System, Always(Problem(503, "IDRAC.2.8.SYS518", "The data sources are unavailable.").With("Retry-After", "45")))
		err := r.do(powerOnly)
		wantReason(t, err, bmc.NotReady)
		same(t, "retryAfter", inSeconds(t, err), 45)
		atMost(t, "reads before the time that was named", len(r.Requests("GET", System)), 1)
	})

	for name, asked := range map[string][2]string{
		"R10_a_short_time_is_waited_for": {"GET", System}, "R10_a_short_time_is_waited_for_by_a_login": {"POST", Sessions},
	} {
		row(t, name, func(t *testing.T) {
			r := start(t)
			var times moments
			r.On(asked[0], asked[1], func(x *Exchange) *Answer {
				times.add()
				return First(1, Always(Problem(503, "IDRAC.2.8.SYS518", "The data sources are unavailable.").With("Retry-After", "1")))(x)
			})
			must(t, r.do(powerOnly))
			if gap, n := times.shortest(); gap < 900*time.Millisecond || n != 2 {
				t.Errorf("it was asked %d times, again after %v", n, gap)
			}
		})
	}

	row(t, "R11_a_controller_that_starts", func(t *testing.T) {
		r := start(t)
		r.On("GET", System, First(3, Always(Problem(503, "Base.1.8.GeneralError", "The service starts."))))
		r.On("POST", Sessions, First(1, Slow(300*time.Millisecond)))
		must(t, r.do(powerOnly))
		atMost(t, "logins", r.Counts().Logins, 1)
	})

	row(t, "R11_504", func(t *testing.T) {
		r := start(t)
		r.On("GET", System, First(2, Always(Say(504, "<html>Gateway Timeout</html>"))))
		must(t, r.do(powerOnly))
	})

	row(t, "R11_an_action_is_not_sent_twice", func(t *testing.T) {
		r := start(t)
		r.On("POST", Reset, First(1, Then(Problem(503, "Base.1.8.GeneralError", "The service is busy."))))
		result, err := r.power(node.ActionOff, bmc.PowerOptions{})
		must(t, err)
		same(t, "power", result.Power, node.PowerOff)
		same(t, "resets", r.Resets(), []string{"ForceOff"})
	})

	row(t, "R12_connections_close_unannounced", func(t *testing.T) {
		r := start(t)
		r.On("GET", "", func(x *Exchange) *Answer {
			if x.N%3 == 0 {
				return Drop(x)
			}
			return x.Next()
		})
		for range 5 {
			must(t, r.do(powerOnly))
		}
	})

	row(t, "R12_fresh_connections_close_too", func(t *testing.T) {
		r := start(t)
		must(t, r.do(powerOnly))
		r.On("GET", System, First(2, Drop)) // the first is on a connection that was used before
		must(t, r.do(powerOnly))
	})

	row(t, "R12_a_dropped_action_is_read_again", func(t *testing.T) {
		r := start(t)
		r.On("POST", Reset, First(1, ThenDrop))
		result, err := r.power(node.ActionOff, bmc.PowerOptions{})
		must(t, err)
		same(t, "power", result.Power, node.PowerOff)
		same(t, "resets", r.Resets(), []string{"ForceOff"})
	})

	row(t, "R12_a_dropped_change_is_read_again", func(t *testing.T) {
		r := start(t)
		r.On("PATCH", System, First(1, ThenDrop))
		_, err := r.boot(bmc.BootOverride{Device: bmc.BootNetwork})
		must(t, err)
		atMost(t, "changes", len(r.Requests("PATCH", "")), 2)
	})

	row(t, "R13_no_answer", func(t *testing.T) {
		s := Start(t)
		r := attach(t, s, redfish.Options{RequestTimeout: 100 * time.Millisecond})
		r.On("GET", System, Hang)
		wantCode(t, r.do(powerOnly), fault.Unavailable, fault.Timeout)
		r.inTime(t)
	})

	row(t, "R13_the_caller's_deadline_bounds_all", func(t *testing.T) {
		s := Start(t)
		r := attach(t, s, redfish.Options{RequestTimeout: time.Hour}) // it would wait that long
		r.timeout = 200 * time.Millisecond
		r.On("GET", System, Hang)
		wantCode(t, r.do(powerOnly), fault.Timeout)
	})

	row(t, "R13_slow_is_not_dead", func(t *testing.T) {
		s := Start(t)
		r := attach(t, s, redfish.Options{ConnectTimeout: 3 * time.Second, RequestTimeout: 30 * time.Second})
		r.On("PATCH", System, Slow(4*time.Second))
		_, err := r.boot(bmc.BootOverride{Device: bmc.BootNetwork})
		must(t, err)
	})

	row(t, "R13_a_change_may_take_longer_than_a_read", func(t *testing.T) {
		r := attach(t, Start(t), redfish.Options{RequestTimeout: 2 * time.Second})
		r.On("PATCH", System, Slow(2400*time.Millisecond))
		_, err := r.boot(network)
		must(t, err)
		same(t, "changes that were sent", len(r.Requests("PATCH", "")), 1)
	})

	row(t, "R19_a_controller_takes_four_at_a_time", func(t *testing.T) {
		r := start(t)
		r.On("", "", func(x *Exchange) *Answer {
			if c := x.server.Counts(); c.Peak > 4 || c.PeakWriting > 1 {
				return Problem(500, "Base.1.8.InternalError", "The service fell over.")
			}
			return Slow(time.Millisecond)(x)
		})
		var all sync.WaitGroup
		for i := range 24 {
			all.Go(func() {
				if err := r.oneOfMany(t.Context(), i); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		atMost(t, "requests at one time", r.Counts().Peak, 4)
		atMost(t, "changes at one time", r.Counts().PeakWriting, 1)
	})
}

// oneOfMany is one of many callers of one controller: they read, inspect and change.
func (r *rig) oneOfMany(ctx context.Context, i int) error {
	return r.doWithin(ctx, func(ctx context.Context, m machine) (err error) {
		switch i % 3 {
		case 0:
			_, err = m.Inspect(ctx)
		case 1:
			_, err = m.Power(ctx)
		default:
			_, err = m.SetBootDevice(ctx, bmc.BootOverride{Device: bmc.BootNetwork})
		}
		return err
	})
}

// moments are points in time.
type moments struct {
	mu   sync.Mutex
	list []time.Time
}

func (m *moments) add() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.list = append(m.list, time.Now())
}

// shortest is the shortest time between two of them, and how many they are.
func (m *moments) shortest() (time.Duration, int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	shortest := time.Hour
	for i := 1; i < len(m.list); i++ {
		shortest = min(shortest, m.list[i].Sub(m.list[i-1]))
	}
	return shortest, len(m.list)
}

// inSeconds is the detail retryAfter of an error: a number of seconds, or a duration's text.
func inSeconds(t *testing.T, err error) int {
	t.Helper()
	text := detail(err, "retryAfter")
	if d, err := time.ParseDuration(text); err == nil {
		return int(d.Round(time.Second) / time.Second)
	}
	d, err := time.ParseDuration(text + "s")
	if err != nil {
		t.Fatalf("retryAfter is %q", text)
	}
	return int(d / time.Second)
}
