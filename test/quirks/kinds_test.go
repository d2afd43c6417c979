package quirks

import (
	"bytes"
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/better-compute/metal/adapters/bmc"
	"github.com/better-compute/metal/adapters/bmc/redfish"
	"github.com/better-compute/metal/domain/node"
)

// The rows of the list are samples. What follows is of the same kinds, and no row tells it.

// TestLoginKinds are further ways in which a login or the first requests differ.
func TestLoginKinds(t *testing.T) {
	for name, c := range map[string]struct {
		change   func(s *Server)
		sessions int
	}{
		"R02_no_link_to_the_sessions": {func(s *Server) { s.Edit(Root, Doc{"Links": Gone}) }, 1},
		"R02_login_answers_200": {func(s *Server) {
			s.On("POST", Sessions, func(x *Exchange) *Answer { a := x.Next(); a.Status = 200; return a })
		}, 1},
		"R01_no_session_service": {func(s *Server) {
			s.On("", "/redfish/v1/SessionService*", Always(Problem(404, "Base.1.8.ResourceMissingAtURI", "There is no such resource.")))
		}, 0},
		"R01_sessions_can't_be_made": {func(s *Server) {
			s.On("POST", Sessions, Always(Problem(405, "Base.1.8.OperationNotAllowed", "The method is not allowed.")))
		}, 0},
		"R02_login_without_a_token": {func(s *Server) {
			s.On("POST", Sessions, func(x *Exchange) *Answer { return Say(200, Doc{"Name": "Session"}) })
		}, 0},
		"R04_the_root_redirects": {func(s *Server) {
			s.On("GET", Root, func(x *Exchange) *Answer {
				if !strings.HasSuffix(x.Path, "/") {
					return Say(308, nil).With("Location", Root+"/")
				}
				return x.Next()
			})
		}, 1},
		"R04_the_root_needs_credentials": {func(s *Server) {
			s.On("GET", Root, func(x *Exchange) *Answer {
				if x.Header.Get("X-Auth-Token") == "" && x.Header.Get("Authorization") == "" {
					return Problem(401, "Base.1.8.NoValidSession", "There is no valid session.")
				}
				return x.Next()
			})
		}, 1},
		"R105_json_under_another_type": {func(s *Server) {
			s.On("GET", "", func(x *Exchange) *Answer { return x.Next().With("Content-Type", "text/html") })
		}, 1},
	} {
		row(t, name, func(t *testing.T) {
			r := start(t, c.change)
			for range 3 {
				must(t, r.do(powerOnly))
			}
			same(t, "sessions", r.Counts().Logins, c.sessions)
			r.close()
			same(t, "sessions left", r.Counts().Sessions, 0)
		})
	}

	row(t, "R08_a_session_that_ends_on_the_way", func(t *testing.T) {
		r := start(t)
		r.On("GET", System+"/Processors*", func(x *Exchange) *Answer {
			if x.N == 2 {
				x.server.EndSessions()
			}
			return x.Next()
		})
		found := r.inspect()
		same(t, "cores", found.Hardware.Cores, 64)
		atMost(t, "logins", r.Counts().Logins, 2)
	})

	row(t, "R06_forbidden_is_not_a_wrong_password", func(t *testing.T) {
		r := start(t)
		r.On("POST", Reset, Always(Problem(403, "Base.1.8.InsufficientPrivilege", "The account may not do this.")))
		_, err := r.power(node.ActionOff, bmc.PowerOptions{})
		wantReason(t, err, bmc.Refused)
		must(t, r.do(powerOnly))
	})
}

// TestLearned checks what is kept between two processes.
func TestLearned(t *testing.T) {
	row(t, "R39_learned_is_stable_and_holds_no_secret", func(t *testing.T) {
		r := start(t)
		r.inspect()
		_, err := r.boot(network)
		must(t, err)
		first := bytes.Clone(r.target.Quirks)
		_, err = r.boot(network)
		must(t, err)
		same(t, "what was learned", string(r.target.Quirks), string(first))
		if bytes.Contains(first, []byte(canary)) {
			t.Errorf("it holds a secret: %s", first)
		}
		fresh := attach(t, r.Server, redfish.Options{})
		fresh.target.Quirks = first
		_, err = fresh.boot(networkFor)
		must(t, err)
	})

	for name, kept := range map[string]string{
		"R39_learned_of_another_shape": `[1,2]`, "R39_learned_and_broken": `{"systems":`, "R39_learned_in_vain": `{"system":7,"boot":"x"}`,
	} {
		row(t, name, func(t *testing.T) {
			r := start(t)
			r.target.Quirks = []byte(kept)
			must(t, r.do(powerOnly))
		})
	}

	row(t, "R85_what_was_learned_of_a_system_that_went", func(t *testing.T) {
		r := start(t)
		must(t, r.do(powerOnly))
		kept := r.target.Quirks
		const renamed = "/redfish/v1/Systems/Self"
		d := r.Get(System)
		delete(d, "@odata.id")
		d["Id"] = "Self"
		r.Remove(System)
		r.Put(renamed, d)
		r.Collection("/redfish/v1/Systems", renamed)
		fresh := attach(t, r.Server, redfish.Options{})
		fresh.target.Quirks = kept
		same(t, "system", fresh.identify().SystemID, "Self")
	})
}

// TestStateKinds are further ways in which a machine tells its power, or does not.
func TestStateKinds(t *testing.T) {
	row(t, "R72_powering_off_is_not_off", func(t *testing.T) {
		r := start(t)
		r.On("GET", System, func(x *Exchange) *Answer {
			if n := len(x.server.Requests("POST", Reset)); n > 0 && x.N < 8 {
				return Lie(Doc{"PowerState": "PoweringOff"})(x)
			}
			return x.Next()
		})
		got, err := r.power(node.ActionOff, bmc.PowerOptions{})
		must(t, err)
		same(t, "power", got.Power, node.PowerOff)
		if reads := len(r.Requests("GET", System)); reads < 8 {
			t.Errorf("off after %d reads", reads)
		}
	})

	for name, untold := range map[string]any{"R72_null_is_not_off": nil, "R72_unknown_is_not_off": "Unknown", "R72_nothing_is_not_off": Gone} {
		row(t, name, func(t *testing.T) {
			r := start(t)
			r.On("GET", System, Lie(Doc{"PowerState": untold}))
			if power, err := r.read(); err == nil {
				t.Errorf("the power is told as %q", power)
			}
			if got, err := r.power(node.ActionOff, bmc.PowerOptions{}); err == nil {
				t.Errorf("success: %+v", got)
			}
		})
	}

	row(t, "R69_reads_fail_while_it_goes_off", func(t *testing.T) {
		r := start(t, func(s *Server) { s.Lag = 1 })
		r.On("GET", System, func(x *Exchange) *Answer {
			if n := len(x.server.Requests("POST", Reset)); n > 0 && x.N < 6 {
				return Problem(503, "Base.1.8.GeneralError", "The service is busy.")
			}
			return x.Next()
		})
		got, err := r.power(node.ActionOff, bmc.PowerOptions{})
		must(t, err)
		same(t, "power", got.Power, node.PowerOff)
	})

	row(t, "R69_the_whole_tree_is_away_while_it_goes_off", func(t *testing.T) {
		r := start(t, func(s *Server) { s.Lag = 1 })
		away := func(s *Server) bool { return len(s.Requests("POST", Reset)) > 0 && len(s.Requests("GET", System)) < 6 }
		r.On("GET", "", func(x *Exchange) *Answer {
			switch {
			case key(x.Path) == "": // what people see
				return Say(200, "<html>Welcome</html>").With("Content-Type", "text/html")
			case away(x.server) && key(x.Path) == key(System):
				return notFound(x.Path)
			case away(x.server):
				return Problem(503, "Base.1.8.GeneralError", "The service starts.").With("Retry-After", "10")
			}
			return x.Next()
		})
		got, err := r.power(node.ActionOff, bmc.PowerOptions{})
		must(t, err)
		same(t, "power", got.Power, node.PowerOff)
	})

	row(t, "R62_the_first_on_is_swallowed", func(t *testing.T) {
		r := start(t, state("Off"))
		r.On("POST", Reset, First(1, Always(Say(204, nil))))
		got, err := r.power(node.ActionOn, bmc.PowerOptions{})
		must(t, err)
		same(t, "power", got.Power, node.PowerOn)
	})
}

// TestTaskKinds are further requests that begin a task.
func TestTaskKinds(t *testing.T) {
	const task = "/redfish/v1/TaskService/Tasks/9"
	running, completed := Doc{"TaskState": "Running"}, Doc{"TaskState": "Completed", "TaskStatus": "OK"}
	failed := Doc{"TaskState": "Exception", "TaskStatus": "Critical"}

	row(t, "R67_a_boot_override_is_a_task", func(t *testing.T) {
		r := start(t)
		apply := func() {
			r.Edit(System, Doc{"Boot": Doc{"BootSourceOverrideTarget": "Pxe", "BootSourceOverrideEnabled": "Once"}})
		}
		r.On("PATCH", System, Always(r.Task(task, apply, running, running, completed)))
		_, err := r.boot(network)
		must(t, err)
		wantBoot(t, r.override(), "Pxe", "Once", "UEFI")
		same(t, "changes that were sent", len(r.Requests("PATCH", "")), 1)
	})

	row(t, "R76_a_boot_override's_task_fails", func(t *testing.T) {
		r := start(t)
		r.On("PATCH", System, Always(r.Task(task, nil, running, failed)))
		_, err := r.boot(network)
		wantReason(t, err, bmc.TaskFailed, bmc.BootOverrideNotApplied)
	})

	row(t, "R67_an_insertion_is_a_task", func(t *testing.T) {
		r := start(t)
		apply := func() { r.Edit(Drive, Doc{"Image": image, "Inserted": true, "ConnectedVia": "URI"}) }
		r.On("POST", Insert, Always(r.Task(task, apply, running, running, completed)))
		_, err := r.insert(image)
		must(t, err)
		same(t, "insertions that were sent", len(r.Requests("POST", Insert)), 1)
	})

	row(t, "R76_an_insertion's_task_fails", func(t *testing.T) {
		r := start(t)
		r.On("POST", Insert, Always(r.Task(task, nil, running, failed)))
		_, err := r.insert(image)
		wantReason(t, err, bmc.TaskFailed, bmc.MediaNotAttached)
	})

	row(t, "R67_202_and_nothing_to_follow", func(t *testing.T) {
		r := start(t, func(s *Server) { s.Lag = 3 })
		r.On("POST", Reset, Then(Say(202, nil)))
		got, err := r.power(node.ActionOff, bmc.PowerOptions{})
		must(t, err)
		same(t, "power", got.Power, node.PowerOff)
		same(t, "resets", r.Resets(), []string{"ForceOff"})
	})

	row(t, "R75_a_task_without_end", func(t *testing.T) {
		r := start(t)
		r.On("POST", Reset, Always(r.Task(task, nil, running)))
		_, err := r.power(node.ActionOff, bmc.PowerOptions{})
		wantReason(t, err, bmc.PowerNotReached)
		r.inTime(t)
	})
}

// TestLinkKinds are further forms of references.
func TestLinkKinds(t *testing.T) {
	for name, form := range map[string]func(r *rig, path string) string{
		"R97_absolute_links":              func(r *rig, path string) string { return r.target.Address + path },
		"R97_links_to_another_host":       func(_ *rig, path string) string { return "https://bmc.example" + path },
		"R97_links_with_another_scheme":   func(_ *rig, path string) string { return "http://192.0.2.7" + path },
		"R97_links_with_a_fragment":       func(_ *rig, path string) string { return path + "#" },
		"R97_links_with_a_doubled_slash":  func(_ *rig, path string) string { return path + "//" },
		"R97_links_without_a_first_slash": func(_ *rig, path string) string { return path[1:] },
	} {
		row(t, name, func(t *testing.T) {
			r := start(t)
			for _, d := range []string{Root, System} {
				for property, value := range r.Get(d) {
					if link, ok := value.(Doc); ok && link["@odata.id"] != nil {
						r.Edit(d, Doc{property: Link(form(r, link["@odata.id"].(string)))})
					}
				}
			}
			h := r.inspect().Hardware
			same(t, "cores, disks, ports", []int{h.Cores, len(h.Disks), len(h.NICs)}, []int{64, 2, 2})
		})
	}

	row(t, "R97_a_redirect_takes_no_token_elsewhere", func(t *testing.T) {
		other := Start(t)
		r := start(t)
		r.target.TLS = node.TLSPolicy{Mode: node.TLSInsecure}
		r.On("GET", System, Always(Say(307, nil).With("Location", other.Target().Address+System)))
		if err := r.do(powerOnly); err == nil {
			t.Error("another controller's answer was taken")
		}
		same(t, "requests to the other", len(other.Requests("", "")), 0)
	})

	row(t, "R96_members_that_are_none", func(t *testing.T) {
		r := start(t, func(s *Server) {
			s.Edit(NICs, Doc{"Members": []any{nil, Doc{}, Link(""), Doc{"@odata.id": nil}, "text", Link(NICs + "/1"), Link(NICs + "/2"), Link(NICs + "/gone")}})
		})
		found := r.inspect()
		same(t, "ports", len(found.Hardware.NICs), 2)
		same(t, "source", found.Sources["nics"], "partial")
	})

	row(t, "R96_members_are_the_documents", func(t *testing.T) {
		r := start(t, func(s *Server) {
			s.On("GET", NICs, func(x *Exchange) *Answer {
				a := x.Next()
				a.Body.(Doc)["Members"] = []any{s.Get(NICs + "/1"), s.Get(NICs + "/2")}
				return a
			})
		})
		same(t, "ports", len(r.inspect().Hardware.NICs), 2)
	})
}

// TestMediaKinds are further ways in which a virtual drive fails.
func TestMediaKinds(t *testing.T) {
	twoSlots := func(s *Server) {
		s.Collection(Drives, Drive, Drives+"/2")
		s.Put(Drives+"/2", drive(Drives+"/2", "CD", "DVD"))
	}
	row(t, "R118_only_the_second_slot_works", func(t *testing.T) {
		r := start(t, twoSlots)
		r.On("POST", Insert, Always(Problem(500, "Base.1.8.InternalError", "The request failed.")))
		_, err := r.insert(image)
		must(t, err)
		wantMedia(t, r.Server, Drives+"/2", image)
	})

	row(t, "R116_the_image_stays_after_eject", func(t *testing.T) {
		r := start(t)
		_, err := r.insert("https://images.example/old.iso")
		must(t, err)
		r.On("POST", Eject, func(x *Exchange) *Answer {
			x.server.Edit(Drive, Doc{"Inserted": false, "ConnectedVia": "NotConnected"})
			return Say(204, nil)
		})
		must(t, r.eject())
		_, err = r.insert(image)
		must(t, err)
		wantMedia(t, r.Server, Drive, image)
	})

	row(t, "R116_the_same_image_is_inserted_anew", func(t *testing.T) {
		r := start(t)
		for range 2 {
			_, err := r.insert(image)
			must(t, err)
		}
		same(t, "insertions", len(r.Requests("POST", Insert)), 2)
	})

	row(t, "R114_an_answer_that_is_lost", func(t *testing.T) {
		r := start(t)
		r.On("POST", Insert, First(1, ThenDrop))
		_, err := r.insert(image)
		must(t, err)
		wantMedia(t, r.Server, Drive, image)
	})

	for name, read := range map[string]func(written string, u *url.URL) string{
		"R110_the_image's_own_secret_stays_out_of_errors": func(written string, _ *url.URL) string { return written },
		"R110_it_stays_out_where_it_is_written_anew":      func(_ string, u *url.URL) string { return u.String() },
		"R110_a_value_alone_stays_out_of_errors":          func(_ string, u *url.URL) string { return u.Query().Get("token") },
		"R110_a_password_alone_stays_out_of_errors":       func(_ string, u *url.URL) string { p, _ := u.User.Password(); return p },
	} {
		row(t, name, func(t *testing.T) {
			r := start(t)
			r.On("POST", Insert, func(x *Exchange) *Answer {
				written := x.Body["Image"].(string)
				u, err := url.Parse(written)
				if err != nil || !strings.Contains(read(written, u), canary) {
					t.Errorf("%s was asked for: %v", written, err)
				}
				return Problem(400, "Base.1.8.GeneralError", "Can't read "+read(written, u))
			})
			secret := url.QueryEscape(canary + "/image+key")
			_, err := r.insert("https://reader:" + secret + "@images.example/a.iso?token=" + secret)
			wantReason(t, err, bmc.Refused) // that it tells no secret is checked for every error
		})
	}
}

// TestNothingIsAsked checks that an operation that can't be done sends nothing that changes something.
func TestNothingIsAsked(t *testing.T) {
	row(t, "R65_what_is_no_request_at_all", func(t *testing.T) {
		r := start(t)
		for name, call := range map[string]func(ctx context.Context, m machine) error{
			"a device": func(ctx context.Context, m machine) error {
				_, err := m.SetBootDevice(ctx, bmc.BootOverride{Device: "toaster"})
				return err
			},
			"an action": func(ctx context.Context, m machine) error {
				_, err := m.SetPower(ctx, "explode", bmc.PowerOptions{})
				return err
			},
			"no image": func(ctx context.Context, m machine) error { _, err := m.InsertMedia(ctx, ""); return err },
			"http without a URI": func(ctx context.Context, m machine) error {
				_, err := m.SetBootDevice(ctx, bmc.BootOverride{Device: bmc.BootUEFIHTTP})
				return err
			},
		} {
			if err := r.do(call); err == nil && name != "http without a URI" { // which the machine may know by DHCP
				t.Errorf("%s: no error", name)
			}
		}
		for _, q := range r.Requests("", "") {
			if q.Method != http.MethodGet && key(q.Path) != key(Sessions) && !strings.Contains(q.Raw, "UefiHttp") {
				t.Errorf("%s %s was sent: %s", q.Method, q.Path, q.Raw)
			}
		}
	})
}
