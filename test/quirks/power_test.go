package quirks

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/metal/adapters/bmc"
	"github.com/better-compute/metal/adapters/bmc/redfish"
	"github.com/better-compute/metal/domain/node"
)

// allow says which reset types a machine takes.
func allow(kinds ...any) func(s *Server) {
	return func(s *Server) {
		s.Edit(System, Doc{"Actions": Doc{"#ComputerSystem.Reset": Doc{"ResetType@Redfish.AllowableValues": kinds}}})
	}
}

// state sets a machine's power.
func state(power string) func(s *Server) {
	return func(s *Server) { s.Edit(System, Doc{"PowerState": power}) }
}

// TestPower is section 4 of the list.
func TestPower(t *testing.T) {
	row(t, "R60_on_when_on", func(t *testing.T) {
		r := start(t)
		got, err := r.power(node.ActionOn, bmc.PowerOptions{})
		must(t, err)
		same(t, "result", got, bmc.PowerResult{Power: node.PowerOn})
		same(t, "resets that were sent", len(r.Requests("POST", Reset)), 0)
	})

	row(t, "R60_on_when_on_behind_a_stale_state", func(t *testing.T) {
		r := start(t)
		r.On("GET", System, func(x *Exchange) *Answer {
			if len(x.server.Requests("POST", Reset)) == 0 {
				return Lie(Doc{"PowerState": "Off"})(x)
			}
			return x.Next()
		})
		r.On("POST", Reset, Always(Problem(409, "IDRAC.2.4.PSU501", "Server is already powered ON.")))
		got, err := r.power(node.ActionOn, bmc.PowerOptions{})
		must(t, err)
		same(t, "power", got.Power, node.PowerOn)
		same(t, "resets that were sent", len(r.Requests("POST", Reset)), 1)
	})

	row(t, "R62_too_soon_after_off", func(t *testing.T) {
		r := start(t, state("Off"))
		r.On("POST", Reset, First(4, Always(Problem(409, "Base.1.8.ActionParameterValueConflict", "The action conflicts with the state.", "ResetType", "On"))))
		got, err := r.power(node.ActionOn, bmc.PowerOptions{})
		must(t, err)
		same(t, "power", got.Power, node.PowerOn)
		same(t, "resets that were sent", len(r.Requests("POST", Reset)), 5)
	})

	for name, late := range map[string]struct {
		answer *Answer
		lag    int
	}{
		"R63_a_late_400": {Problem(400, "Base.1.8.GeneralError", "The request failed."), 0},
		"R63_a_late_409": {Problem(409, "Base.1.8.ResourceInUse", "The resource is in use."), 2},
		"R63_a_late_500": {Problem(500, "Base.1.8.InternalError", "The request failed."), 2},
	} {
		row(t, name, func(t *testing.T) {
			r := start(t, func(s *Server) { s.Lag = late.lag })
			r.On("POST", Reset, First(1, Then(late.answer)))
			got, err := r.power(node.ActionOff, bmc.PowerOptions{})
			must(t, err)
			same(t, "power", got.Power, node.PowerOff)
		})
	}

	for name, lost := range map[string]Rule{
		"R63_a_button_is_not_pressed_twice":              ThenDrop,
		"R63_a_button_is_not_pressed_twice_after_a_500":  Then(Problem(500, "Base.1.8.InternalError", "The request failed.")),
		"R63_a_button_is_not_pressed_twice_by_a_gateway": Then(Say(504, "<html>Gateway Timeout</html>")),
	} {
		row(t, name, func(t *testing.T) {
			r := start(t, allow("PushPowerButton"), state("Off"), func(s *Server) { s.Lag = 4 })
			r.On("POST", Reset, First(1, lost))
			got, err := r.power(node.ActionOn, bmc.PowerOptions{})
			must(t, err)
			same(t, "power", got.Power, node.PowerOn)
			same(t, "resets", r.Resets(), []string{"PushPowerButton"})
		})
	}

	row(t, "R63_a_button_that_seems_to_do_nothing", func(t *testing.T) {
		r := start(t, allow("PushPowerButton"), state("Off"), func(s *Server) { s.Lag = 100_000 })
		_, err := r.power(node.ActionOn, bmc.PowerOptions{})
		wantReason(t, err, bmc.PowerNotReached)
		same(t, "resets", r.Resets(), []string{"PushPowerButton"}) // a second press would undo the first
	})

	row(t, "R63_a_true_refusal_stays_one", func(t *testing.T) {
		r := start(t)
		r.On("POST", Reset, Always(Problem(400, "Base.1.8.InsufficientPrivilege", "The account may not do this.")))
		_, err := r.power(node.ActionOff, bmc.PowerOptions{})
		wantReason(t, err, bmc.Refused, bmc.PowerNotReached)
	})

	deaf := func(x *Exchange) *Answer { // a graceful shutdown that the operating system never hears
		if x.Body["ResetType"] == "GracefulShutdown" {
			return Say(204, nil)
		}
		return x.Next()
	}
	row(t, "R64_graceful_without_force", func(t *testing.T) {
		r := start(t)
		r.On("POST", Reset, deaf)
		_, err := r.power(node.ActionGraceful, bmc.PowerOptions{Graceful: 100 * time.Millisecond})
		wantReason(t, err, bmc.PowerNotReached)
		same(t, "power", r.Power(System), "On")
		same(t, "resets", r.Resets(), nil)
		r.inTime(t)
	})

	row(t, "R64_graceful_then_force", func(t *testing.T) {
		r := start(t)
		r.On("POST", Reset, deaf)
		got, err := r.power(node.ActionGraceful, bmc.PowerOptions{Graceful: 100 * time.Millisecond, Force: true})
		must(t, err)
		same(t, "power", got.Power, node.PowerOff)
		same(t, "sent", got.Sent, []string{"GracefulShutdown", "ForceOff"})
		same(t, "forced", got.Forced, true)
	})

	row(t, "R64_graceful_that_works", func(t *testing.T) {
		r := start(t, func(s *Server) { s.Lag = 3 })
		got, err := r.power(node.ActionGraceful, bmc.PowerOptions{Force: true})
		must(t, err)
		same(t, "result", got.Sent, []string{"GracefulShutdown"})
		same(t, "forced", got.Forced, false)
	})

	for name, kind := range map[string]string{"R64_a_restart_that_stays_off": "GracefulRestart", "R64_a_forced_restart_that_stays_off": "ForceRestart"} {
		row(t, name, func(t *testing.T) {
			r := start(t, allow("On", "ForceOff", kind))
			r.On("POST", Reset, func(x *Exchange) *Answer {
				a := x.Next()
				if x.Body["ResetType"] == kind {
					x.server.Edit(System, Doc{"PowerState": "Off"})
				}
				return a
			})
			got, err := r.power(node.ActionReset, bmc.PowerOptions{})
			if err != nil {
				wantReason(t, err, bmc.PowerNotReached)
			} else if got.Power != node.PowerOn || r.Power(System) != "On" {
				t.Errorf("success with the machine %s: %+v", r.Power(System), got)
			}
		})
	}

	row(t, "R68_a_cycle_that_does_nothing", func(t *testing.T) {
		r := start(t)
		r.On("POST", Reset, Always(Say(204, nil)))
		_, err := r.power(node.ActionCycle, bmc.PowerOptions{})
		wantReason(t, err, bmc.PowerNotReached)
	})

	row(t, "R68_a_cycle_that_only_stays_off", func(t *testing.T) {
		r := start(t, allow("On", "ForceOff"))
		r.On("POST", Reset, func(x *Exchange) *Answer {
			if x.Body["ResetType"] == "On" {
				return Say(204, nil)
			}
			return x.Next()
		})
		_, err := r.power(node.ActionCycle, bmc.PowerOptions{})
		wantReason(t, err, bmc.PowerNotReached)
	})

	row(t, "R68_a_cycle_loses_power", func(t *testing.T) {
		r := start(t, func(s *Server) { s.Lag = 2 })
		got, err := r.power(node.ActionCycle, bmc.PowerOptions{})
		must(t, err)
		same(t, "power", got.Power, node.PowerOn)
		same(t, "times the power was lost", r.Counts().LostPower, 1)
	})

	for name, restarts := range map[string]bool{"R68_a_reset_with_fresh_evidence": true, "R68_a_reset_without_fresh_evidence": false} {
		row(t, name, func(t *testing.T) {
			r := start(t, func(s *Server) { s.Edit(System, Doc{"LastResetTime": "2026-01-01T00:00:00Z"}) })
			if !restarts {
				r.On("POST", Reset, Always(Say(204, nil)))
			}
			_, err := r.power(node.ActionReset, bmc.PowerOptions{})
			if restarts {
				must(t, err)
			} else {
				wantReason(t, err, bmc.PowerNotReached)
			}
		})
	}

	row(t, "R72_off_is_what_was_observed", func(t *testing.T) {
		r := start(t, func(s *Server) { s.Lag = 5 })
		got, err := r.power(node.ActionOff, bmc.PowerOptions{})
		must(t, err)
		same(t, "power", got.Power, node.PowerOff)
		same(t, "what the controller tells", r.Power(System), "Off")
		same(t, "sent", got.Sent, []string{"ForceOff"})
	})

	row(t, "R72_off_that_never_comes", func(t *testing.T) {
		r := start(t)
		r.On("POST", Reset, Always(Say(204, nil)))
		_, err := r.power(node.ActionOff, bmc.PowerOptions{})
		wantReason(t, err, bmc.PowerNotReached)
	})

	row(t, "R73_health_is_told_and_not_judged", func(t *testing.T) {
		r := start(t, func(s *Server) { s.Edit(System, Doc{"Status": Doc{"Health": "Critical"}}) })
		_, err := r.power(node.ActionCycle, bmc.PowerOptions{})
		must(t, err)
		same(t, "health", r.identify().Health, "Critical")
	})
}

// TestResetTypes is R65 and R66: which reset type carries out an action, by what the machine takes.
func TestResetTypes(t *testing.T) {
	for name, c := range map[string]struct {
		allowed []any
		from    string
		action  node.PowerAction
		want    string // the types that were sent; empty: it is unsupported and nothing is sent
	}{
		"R65_dgx_cycle":           {[]any{"ForceOff", "ForceRestart", "GracefulShutdown", "On"}, "On", node.ActionCycle, "ForceOff On"},
		"R65_two_verbs_cycle":     {[]any{"On", "ForceOff"}, "On", node.ActionCycle, "ForceOff On"},
		"R65_cycle_of_a_dead_one": {[]any{"On", "ForceOff", "PowerCycle"}, "Off", node.ActionCycle, "On"},
		"R65_forced_both_ways":    {[]any{"ForceOn", "ForceOff"}, "On", node.ActionCycle, "ForceOff ForceOn"},
		"R65_force_on":            {[]any{"ForceOn", "ForceOff"}, "Off", node.ActionOn, "ForceOn"},
		"R65_on":                  {[]any{"PushPowerButton", "On"}, "Off", node.ActionOn, "On"},
		"R65_off":                 {[]any{"GracefulShutdown", "ForceOff"}, "On", node.ActionOff, "ForceOff"},
		"R65_reset":               {[]any{"On", "ForceOff", "ForceRestart"}, "On", node.ActionReset, "ForceRestart"},
		"R65_no_graceful":         {[]any{"On", "ForceOff", "ForceRestart"}, "On", node.ActionGraceful, ""},
		"R65_nothing_to_cycle":    {[]any{"Nmi"}, "On", node.ActionCycle, ""},
		"R65_nothing_for_on":      {[]any{"Nmi", "ForceOff"}, "Off", node.ActionOn, ""},
		"R65_nothing_for_off":     {[]any{"Nmi", "On"}, "On", node.ActionOff, ""},
		"R65_nothing_to_reset":    {[]any{"Nmi"}, "On", node.ActionReset, ""},
	} {
		row(t, name, func(t *testing.T) {
			r := start(t, allow(c.allowed...), state(c.from))
			got, err := r.power(c.action, bmc.PowerOptions{})
			if c.want == "" {
				wantReason(t, err, bmc.Unsupported)
				same(t, "resets that were sent", len(r.Requests("POST", Reset)), 0)
				return
			}
			must(t, err)
			same(t, "sent", strings.Join(got.Sent, " "), c.want)
			same(t, "carried out", strings.Join(r.Resets(), " "), c.want)
		})
	}

	const info = System + "/ResetActionInfo"
	linked := func(s *Server) {
		s.Edit(System, Doc{"Actions": Doc{"#ComputerSystem.Reset": Doc{
			"ResetType@Redfish.AllowableValues": Gone, "@Redfish.ActionInfo": info}}})
	}
	row(t, "R66_action_info", func(t *testing.T) {
		r := start(t, linked, func(s *Server) {
			s.Put(info, Doc{"Id": "ResetActionInfo", "Parameters": []any{
				Doc{"Name": "Other", "AllowableValues": []any{"PowerCycle"}},
				Doc{"Name": "ResetType", "Required": true, "AllowableValues": []any{"ForceOn", "ForceOff"}},
			}})
		})
		got, err := r.power(node.ActionOff, bmc.PowerOptions{})
		must(t, err)
		same(t, "sent", got.Sent, []string{"ForceOff"})
		got, err = r.power(node.ActionOn, bmc.PowerOptions{})
		must(t, err)
		same(t, "sent", got.Sent, []string{"ForceOn"}) // and not On, which it refuses
		same(t, "requests that were refused", refusals(r.Server), 0)
	})

	row(t, "R66_action_info_that_allows_nothing_of_use", func(t *testing.T) {
		r := start(t, linked, func(s *Server) {
			s.Put(info, Doc{"Id": "ResetActionInfo", "Parameters": []any{Doc{"Name": "ResetType", "AllowableValues": []any{"Nmi"}}}})
		})
		_, err := r.power(node.ActionOff, bmc.PowerOptions{})
		wantReason(t, err, bmc.Unsupported)
		same(t, "resets that were sent", len(r.Requests("POST", Reset)), 0)
	})

	row(t, "R66_action_info_that_is_not_there", func(t *testing.T) {
		r := start(t, linked)
		got, err := r.power(node.ActionOff, bmc.PowerOptions{})
		must(t, err)
		same(t, "power", got.Power, node.PowerOff)
	})
}

// TestPowerAlone is R69: power needs the machine's own resource and nothing beside it.
func TestPowerAlone(t *testing.T) {
	away := Problem(503, "Base.1.8.ServiceTemporarilyUnavailable", "The service is temporarily unavailable.", "300")
	row(t, "R69_everything_else_is_away", func(t *testing.T) {
		r := start(t, state("Off"))
		r.On("GET", "", func(x *Exchange) *Answer {
			if own := []string{Root, "/redfish", "/redfish/v1/Systems", System}; slices.ContainsFunc(own, func(p string) bool { return key(p) == key(x.Path) }) {
				return x.Next()
			}
			return Always(away)(x)
		})
		got, err := r.power(node.ActionOn, bmc.PowerOptions{})
		must(t, err)
		same(t, "power", got.Power, node.PowerOn)
	})

	for name, wanted := range map[string]string{"R69_the_baseboard_is_away": "1", "R69_the_baseboard_is_away_and_no_system_is_named": ""} {
		row(t, name, func(t *testing.T) {
			r := start(t, state("Off"), withBaseboard(baseboard, System))
			r.On("GET", baseboard, Always(away))
			r.target.System = wanted
			got, err := r.power(node.ActionOn, bmc.PowerOptions{})
			must(t, err)
			same(t, "power", got.Power, node.PowerOn)
		})
	}
}

// TestTasks is section 5 of the list, and R67: a reset that is a task.
func TestTasks(t *testing.T) {
	const task = "/redfish/v1/TaskService/Tasks/7"
	off := func(s *Server) func() { return func() { s.Edit(System, Doc{"PowerState": "Off"}) } }
	stays := func(*Server) func() { return nil }
	running := Doc{"TaskState": "Running", "TaskStatus": "OK"}
	for name, c := range map[string]struct {
		done   func(s *Server) func() // what the task does
		states []Doc
		reason bmc.Reason // empty: success
	}{
		"R75_new":                       {off, []Doc{{"TaskState": "New"}, {"TaskState": "Starting"}, {"TaskState": "Completed", "TaskStatus": "OK"}}, ""},
		"R75_unknown":                   {off, []Doc{{"TaskState": "Pondering"}, {"TaskState": "Completed", "TaskStatus": "OK"}}, ""},
		"R76_completed_and_critical":    {stays, []Doc{running, {"TaskState": "Completed", "TaskStatus": "Critical", "PercentComplete": 100}}, bmc.TaskFailed},
		"R76_exception_and_ok":          {stays, []Doc{running, {"TaskState": "Exception", "TaskStatus": "OK", "Messages": []any{Doc{"MessageId": "Base.1.8.ActionNotSupported", "Message": "The action is not supported."}}}}, bmc.TaskFailed},
		"R76_completed_with_an_error":   {stays, []Doc{running, {"TaskState": "Completed", "TaskStatus": "OK", "Messages": []any{Doc{"MessageId": "Base.1.8.InternalError", "Message": "It failed.", "Severity": "Critical"}}}}, bmc.TaskFailed},
		"R76_completed_without_status":  {off, []Doc{running, {"TaskState": "Completed"}}, ""},
		"R76_completed_with_a_notice":   {off, []Doc{running, {"TaskState": "Completed", "TaskStatus": "OK", "Messages": []any{Doc{"MessageId": "Base.1.8.Success", "Message": "Done.", "Severity": "OK"}}}}, ""},
		"R76_killed":                    {stays, []Doc{running, {"TaskState": "Killed"}}, bmc.TaskFailed},
		"R76_completed_and_nothing_did": {stays, []Doc{running, {"TaskState": "Completed", "TaskStatus": "OK"}}, bmc.PowerNotReached},
	} {
		row(t, name, func(t *testing.T) {
			r := start(t)
			begun := r.Task(task, c.done(r.Server), c.states...)
			begun.Body = Doc{"@odata.id": task, "TaskState": "New"}
			r.On("POST", Reset, Always(begun))
			got, err := r.power(node.ActionOff, bmc.PowerOptions{})
			if c.reason != "" {
				wantReason(t, err, c.reason)
				return
			}
			must(t, err)
			same(t, "power", got.Power, node.PowerOff)
			same(t, "resets that were sent", len(r.Requests("POST", Reset)), 1)
		})
	}

	const monitor = "/redfish/v1/TaskService/TaskMonitors/7"
	row(t, "R67_a_monitor_without_a_body", func(t *testing.T) {
		r := attach(t, Start(t), redfish.Options{Poll: 100 * time.Millisecond})
		var asked moments
		r.On("POST", Reset, Always(Say(202, nil).With("Location", r.target.Address+monitor)))
		r.On("GET", monitor, func(x *Exchange) *Answer {
			asked.add()
			if x.N < 3 {
				return Say(202, nil).With("Retry-After", "1")
			}
			x.server.Edit(System, Doc{"PowerState": "Off"})
			return Say(204, nil)
		})
		got, err := r.power(node.ActionOff, bmc.PowerOptions{})
		must(t, err)
		same(t, "power", got.Power, node.PowerOff)
		if gap, n := asked.shortest(); n != 3 || gap < 900*time.Millisecond {
			t.Errorf("it was asked %d times, again after %v; Retry-After is 1 s", n, gap)
		}
	})

	gone := Problem(404, "Base.1.8.ResourceMissingAtURI", "There is no such task.")
	row(t, "R77_a_task_that_ended_and_went", func(t *testing.T) {
		r := start(t)
		r.On("POST", Reset, Always(r.Task(task, nil, running)))
		r.On("GET", task, After(1, func(x *Exchange) *Answer {
			x.server.Edit(System, Doc{"PowerState": "Off"})
			return Always(gone)(x)
		}))
		got, err := r.power(node.ActionOff, bmc.PowerOptions{})
		must(t, err)
		same(t, "power", got.Power, node.PowerOff)
	})

	row(t, "R77_a_task_that_went_and_did_nothing", func(t *testing.T) {
		r := start(t)
		r.On("POST", Reset, Always(r.Task(task, nil, running)))
		r.On("GET", task, After(1, Always(gone)))
		_, err := r.power(node.ActionOff, bmc.PowerOptions{})
		wantReason(t, err, bmc.PowerNotReached)
	})

	row(t, "R79_a_task_is_told_with_202", func(t *testing.T) {
		r := start(t)
		r.On("POST", Reset, Always(r.Task(task, off(r.Server), running, Doc{"TaskState": "Completed", "TaskStatus": "OK"})))
		r.On("GET", task, func(x *Exchange) *Answer {
			a := x.Next()
			a.Status = 202
			return a
		})
		got, err := r.power(node.ActionOff, bmc.PowerOptions{})
		must(t, err)
		same(t, "power", got.Power, node.PowerOff)
	})

	row(t, "R81_a_monitor_that_ends_in_an_error", func(t *testing.T) {
		r := start(t)
		r.On("POST", Reset, Always(Say(202, nil).With("Location", monitor)))
		r.On("GET", monitor, func(x *Exchange) *Answer {
			if x.N == 1 {
				return Say(202, nil)
			}
			return Problem(400, "Base.1.8.ActionNotSupported", "The action is not supported.")
		})
		_, err := r.power(node.ActionOff, bmc.PowerOptions{})
		wantReason(t, err, bmc.TaskFailed)
	})
}
