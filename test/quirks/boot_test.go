package quirks

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/better-compute/metal/adapters/bmc"
)

var (
	network    = bmc.BootOverride{Device: bmc.BootNetwork}
	networkFor = bmc.BootOverride{Device: bmc.BootNetwork, Persistent: true}
)

// wantBoot checks what a controller holds.
func wantBoot(t *testing.T, boot Doc, target, enabled, mode string) {
	t.Helper()
	for name, want := range map[string]string{"Target": target, "Enabled": enabled, "Mode": mode} {
		if got := boot["BootSourceOverride"+name]; want != "" && got != want {
			t.Errorf("BootSourceOverride%s is %v; want %s", name, got, want)
		}
	}
}

// sentBoot lists the properties of Boot that changes of a resource named, each change sorted.
func sentBoot(s *Server, path string) (sent [][]string) {
	for _, body := range s.Bodies("PATCH", path) {
		boot, _ := body["Boot"].(Doc)
		sent = append(sent, slices.Sorted(maps.Keys(boot)))
	}
	return sent
}

// futureState is how AMI's firmware refuses a change at the system itself.
var futureState = Problem(400, "Ami.1.0.OperationSupportedInFutureStateURI",
	"Operation is not supported on the current state. Use the future state URI /redfish/v1/Systems/1/Settings.", Settings)

// overrideSettings is the Boot of a settings object in which the override can be set.
func overrideSettings() Doc {
	return Doc{
		"BootSourceOverrideEnabled": "Disabled", "BootSourceOverrideTarget": "None", "BootSourceOverrideMode": "UEFI", "HttpBootUri": nil,
		"BootSourceOverrideTarget@Redfish.AllowableValues": []any{"None", "Pxe", "Hdd", "Cd", "BiosSetup", "UefiHttp"},
	}
}

// TestBootSettings is section 3 of the list, as far as it is about where the override is set.
func TestBootSettings(t *testing.T) {
	row(t, "R35_allowed_targets_stand_in_the_settings", func(t *testing.T) {
		r := start(t, func(s *Server) {
			s.Edit(System, Doc{"Boot": Doc{"BootSourceOverrideTarget@Redfish.AllowableValues": Gone}})
			settings := overrideSettings()
			settings["BootSourceOverrideTarget@Redfish.AllowableValues"] = []any{"None", "Pxe", "UsbCd"}
			s.WithSettings(settings)
			s.On("PATCH", System, Always(futureState))
		})
		_, err := r.boot(bmc.BootOverride{Device: bmc.BootCD})
		must(t, err)
		wantBoot(t, r.Get(Settings)["Boot"].(Doc), "UsbCd", "Once", "")
	})

	row(t, "R35_allowed_targets_stand_nowhere", func(t *testing.T) {
		r := start(t, func(s *Server) {
			s.Edit(System, Doc{"Boot": Doc{"BootSourceOverrideTarget@Redfish.AllowableValues": Gone}})
		})
		_, err := r.boot(network)
		must(t, err)
		wantBoot(t, r.override(), "Pxe", "Once", "UEFI")
	})

	row(t, "R36_the_future_state", func(t *testing.T) {
		r := start(t, func(s *Server) {
			s.WithSettings(overrideSettings())
			s.On("PATCH", System, Always(futureState))
		})
		got, err := r.boot(network)
		must(t, err)
		same(t, "target", got.Target, "Pxe")
		wantBoot(t, r.Get(Settings)["Boot"].(Doc), "Pxe", "Once", "")
		sent := len(r.Requests("PATCH", System))
		_, err = r.boot(networkFor) // what was learned is kept
		must(t, err)
		same(t, "changes at the system after it was learned", len(r.Requests("PATCH", System)), sent)
	})

	row(t, "R36_the_refusal_alone_names_the_settings", func(t *testing.T) {
		r := start(t, func(s *Server) {
			s.WithSettings(overrideSettings())
			s.Edit(System, Doc{"@Redfish.Settings": Gone})
			s.On("PATCH", System, Always(futureState))
		})
		_, err := r.boot(network)
		must(t, err)
		wantBoot(t, r.Get(Settings)["Boot"].(Doc), "Pxe", "Once", "")
	})

	for name, settings := range map[string]Doc{
		"R37_settings_for_the_order_only": {"BootOrder": []any{"Boot0000"}},
		"R37_settings_for_the_mode_only":  {"BootSourceOverrideMode": "UEFI"},
		"R37_settings_without_boot":       nil,
	} {
		row(t, name, func(t *testing.T) {
			r := start(t, func(s *Server) {
				s.WithSettings(settings)
				if settings == nil {
					s.Edit(Settings, Doc{"Boot": Gone})
				}
				s.On("PATCH", Settings, func(x *Exchange) *Answer {
					boot, _ := x.Body["Boot"].(Doc)
					for property := range boot {
						if _, ok := settings[property]; !ok {
							return Problem(400, "Base.1.8.PropertyNotWritable", "The property is read-only.", property)
						}
					}
					return x.Next()
				})
			})
			_, err := r.boot(network)
			must(t, err)
			wantBoot(t, r.override(), "Pxe", "Once", "UEFI")
			for _, q := range r.Requests("PATCH", Settings) {
				if q.Status >= 400 {
					t.Errorf("%s was sent to the settings", q.Raw)
				}
			}
		})
	}

	row(t, "R37_the_mode_goes_to_the_settings_alone", func(t *testing.T) {
		r := start(t, func(s *Server) {
			s.Edit(System, Doc{"Boot": Doc{"BootSourceOverrideMode": "Legacy"}})
			s.WithSettings(Doc{"BootSourceOverrideMode": "Legacy"})
			s.On("PATCH", System, func(x *Exchange) *Answer {
				if _, ok := x.Body["Boot"].(Doc)["BootSourceOverrideMode"]; ok {
					return Problem(400, "Base.1.8.PropertyNotWritable", "The property is read-only.", "BootSourceOverrideMode")
				}
				return x.Next()
			})
		})
		_, err := r.boot(bmc.BootOverride{Device: bmc.BootNetwork, Mode: bmc.BootUEFI})
		must(t, err)
		wantBoot(t, r.override(), "Pxe", "Once", "")
		wantBoot(t, r.Get(Settings)["Boot"].(Doc), "", "", "UEFI")
		same(t, "changes that were refused", r.refused("PATCH"), 0)
	})

	row(t, "R53_the_uri_stands_in_the_settings", func(t *testing.T) {
		const uri = "https://boot.example/ipxe.efi"
		r := start(t, func(s *Server) {
			s.Edit(System, Doc{"Boot": Doc{"HttpBootUri": Gone}})
			s.WithSettings(Doc{"HttpBootUri": nil})
		})
		_, err := r.boot(bmc.BootOverride{Device: bmc.BootUEFIHTTP, HTTPURI: uri})
		must(t, err)
		same(t, "the settings' URI", r.Get(Settings)["Boot"].(Doc)["HttpBootUri"], any(uri))
		wantBoot(t, r.override(), "UefiHttp", "Once", "UEFI")
	})
}

// resetsWhatIsLeftOut lets a change of the boot override reset those of its properties that it does not name.
func resetsWhatIsLeftOut(s *Server, system string) {
	s.On("PATCH", system, func(x *Exchange) *Answer {
		boot, _ := x.Body["Boot"].(Doc)
		for name, value := range map[string]any{"BootSourceOverrideMode": "Legacy", "BootSourceOverrideEnabled": "Once"} {
			if _, ok := boot[name]; boot != nil && !ok {
				boot[name] = value
			}
		}
		return x.Next()
	})
}

// TestBootFields is section 3, as far as it is about which properties are sent.
func TestBootFields(t *testing.T) {
	for _, vendor := range []string{"Supermicro", "ASRockRack", "AMI"} {
		row(t, "R39_"+vendor+"_resets_what_is_left_out", func(t *testing.T) {
			r := start(t, func(s *Server) {
				s.Edit(System, Doc{"Manufacturer": vendor})
				s.Edit(Root, Doc{"Vendor": vendor})
				resetsWhatIsLeftOut(s, System)
			})
			_, err := r.boot(networkFor)
			must(t, err)
			wantBoot(t, r.override(), "Pxe", "Continuous", "UEFI")
		})
	}

	for name, mode := range map[string]bmc.BootMode{"R40_no_mode_where_none_is_shown": "", "R40_not_even_where_it_is_asked": bmc.BootUEFI} {
		row(t, name, func(t *testing.T) {
			r := start(t, func(s *Server) {
				s.Edit(System, Doc{"Manufacturer": "Supermicro", "Boot": Doc{
					"BootSourceOverrideMode": Gone, "BootSourceOverrideMode@Redfish.AllowableValues": Gone}})
			})
			_, err := r.boot(bmc.BootOverride{Device: bmc.BootNetwork, Mode: mode})
			must(t, err)
			same(t, "what was sent", sentBoot(r.Server, System), [][]string{{"BootSourceOverrideEnabled", "BootSourceOverrideTarget"}})
		})
	}

	row(t, "R41_nothing_is_sent_that_was_not_asked", func(t *testing.T) {
		r := start(t, func(s *Server) { s.Edit(System, Doc{"Boot": Doc{"HttpBootUri": Gone}}) })
		_, err := r.boot(network)
		must(t, err)
		for _, body := range r.Bodies("PATCH", System) {
			same(t, "properties of the change", slices.Collect(maps.Keys(body)), []string{"Boot"})
			for name, value := range body["Boot"].(Doc) {
				if value == "" || value == nil {
					t.Errorf("%s is sent empty", name)
				}
			}
		}
	})

	for name, lists := range map[string]struct {
		allowed []any
		vendor  string
		want    string // empty: it is unsupported
	}{
		"R50_cd":                       {[]any{"Pxe", "Cd"}, "Plain", "Cd"},
		"R50_cd_and_usbcd":             {[]any{"Pxe", "Cd", "UsbCd"}, "Supermicro", "UsbCd"},
		"R50_x10":                      {[]any{"Pxe", "CD/DVD", "UsbCd", "UefiUsbCd"}, "Supermicro", "UsbCd"},
		"R50_uefi_usb_cd_only":         {[]any{"Pxe", "UefiUsbCd"}, "Plain", "UefiUsbCd"},
		"R50_no_cd_at_all_is_not_sent": {[]any{"Pxe", "Hdd"}, "Plain", ""},
	} {
		row(t, name, func(t *testing.T) {
			r := start(t, func(s *Server) {
				s.Edit(System, Doc{"Manufacturer": lists.vendor, "Boot": Doc{
					"BootSourceOverrideTarget@Redfish.AllowableValues": lists.allowed}})
			})
			got, err := r.boot(bmc.BootOverride{Device: bmc.BootCD})
			if lists.want == "" {
				wantReason(t, err, bmc.Unsupported)
				same(t, "changes that were sent", len(r.Requests("PATCH", "")), 0)
				return
			}
			must(t, err)
			same(t, "target", got.Target, lists.want)
		})
	}

	row(t, "R45_no_device_is_a_uefi_target", func(t *testing.T) {
		r := start(t, func(s *Server) {
			s.Edit(System, Doc{"Boot": Doc{"BootSourceOverrideTarget@Redfish.AllowableValues": []any{
				"None", "Pxe", "Hdd", "Cd", "BiosSetup", "UefiHttp", "UefiTarget"}}})
		})
		for _, device := range bmc.BootDevices {
			_, err := r.boot(bmc.BootOverride{Device: device, Persistent: true, HTTPURI: map[bmc.BootDevice]string{
				bmc.BootUEFIHTTP: "https://boot.example/a.efi"}[device]})
			must(t, err)
			if r.override()["BootSourceOverrideTarget"] == "UefiTarget" {
				t.Errorf("%s became UefiTarget", device)
			}
		}
	})
}

// TestBootResult is section 3, as far as it is about what really came of a change.
func TestBootResult(t *testing.T) {
	for name, c := range map[string]struct {
		lie         Doc
		wanted, got string
	}{
		"R42_another_mode":   {Doc{"BootSourceOverrideMode": "Legacy"}, "UEFI", "Legacy"},
		"R42_not_enabled":    {Doc{"BootSourceOverrideEnabled": "Disabled"}, "Once", "Disabled"},
		"R42_for_ever":       {Doc{"BootSourceOverrideEnabled": "Continuous"}, "Once", "Continuous"},
		"R42_another_target": {Doc{"BootSourceOverrideTarget": "Hdd"}, "Pxe", "Hdd"},
	} {
		row(t, name, func(t *testing.T) {
			r := start(t)
			r.On("GET", System, func(x *Exchange) *Answer {
				if len(x.server.Requests("PATCH", System)) == 0 {
					return x.Next()
				}
				return Lie(Doc{"Boot": c.lie})(x)
			})
			_, err := r.boot(bmc.BootOverride{Device: bmc.BootNetwork, Mode: bmc.BootUEFI})
			wantReason(t, err, bmc.BootOverrideNotApplied)
			if detail(err, "wanted") == "" || detail(err, "found") == "" {
				t.Errorf("the error does not tell what was wanted and found: %v", err)
			}
			atMost(t, "changes that were sent", len(r.Requests("PATCH", "")), 4)
		})
	}

	row(t, "R43_refused_but_set", func(t *testing.T) {
		r := start(t)
		r.On("PATCH", System, Then(Problem(400, "IDRAC.1.6.SYS410", "Unable to complete the operation.")))
		got, err := r.boot(network)
		must(t, err)
		same(t, "target", got.Target, "Pxe")
		same(t, "changes that were sent", len(r.Requests("PATCH", System)), 1)
	})

	row(t, "R43_accepted_with_an_error_in_the_body", func(t *testing.T) {
		r := start(t)
		refused := Problem(400, "IDRAC.1.6.SYS444", "Unable to complete the operation.")
		r.On("PATCH", System, Always(Say(200, refused.Body)))
		_, err := r.boot(network)
		wantReason(t, err, bmc.BootOverrideNotApplied, bmc.Refused)
	})

	row(t, "R44_only_once", func(t *testing.T) {
		r := start(t, func(s *Server) {
			s.Edit(System, Doc{"Boot": Doc{"BootSourceOverrideEnabled@Redfish.AllowableValues": []any{"Once", "Disabled"}}})
		})
		got, err := r.boot(networkFor)
		must(t, err)
		wantBoot(t, r.override(), "Pxe", "Once", "UEFI")
		if got.Persistent || got.Note == "" {
			t.Errorf("the result does not tell that it is once only: %+v", got)
		}
		same(t, "requests that were refused", refusals(r.Server), 0)
	})

	row(t, "R44_only_once_and_untold", func(t *testing.T) {
		r := start(t, func(s *Server) {
			s.Edit(System, Doc{"Boot": Doc{"BootSourceOverrideEnabled@Redfish.AllowableValues": Gone}})
		})
		r.On("PATCH", System, func(x *Exchange) *Answer {
			if x.Body["Boot"].(Doc)["BootSourceOverrideEnabled"] == "Continuous" {
				return Problem(400, "Base.1.8.PropertyValueNotInList", "The value is not in the list.", "Continuous", "BootSourceOverrideEnabled")
			}
			return x.Next()
		})
		got, err := r.boot(networkFor)
		must(t, err)
		wantBoot(t, r.override(), "Pxe", "Once", "UEFI")
		if got.Persistent || got.Note == "" {
			t.Errorf("the result does not tell that it is once only: %+v", got)
		}
	})

	row(t, "R47_the_device_flips_the_mode", func(t *testing.T) {
		r := start(t)
		r.On("PATCH", System, func(x *Exchange) *Answer {
			a := x.Next()
			if x.N == 1 { // the new device takes the mode with it
				x.server.Edit(System, Doc{"Boot": Doc{"BootSourceOverrideMode": "Legacy"}})
			}
			return a
		})
		_, err := r.boot(network)
		must(t, err)
		wantBoot(t, r.override(), "Pxe", "Once", "UEFI")
	})

	post := Problem(400, "IDRAC.2.8.UnableToModifyDuringSystemPOST", "The setting can't be changed while the system is in POST.")
	row(t, "R48_during_post", func(t *testing.T) {
		r := start(t)
		r.On("PATCH", System, First(3, Always(post)))
		_, err := r.boot(network)
		if err != nil { // told to come back is as good as waiting
			wantReason(t, err, bmc.NotReady)
			for range 3 {
				r.clock.turn(10 * time.Minute)
				_, err = r.boot(network)
			}
		}
		must(t, err)
		wantBoot(t, r.override(), "Pxe", "Once", "UEFI")
	})

	row(t, "R48_during_a_post_without_end", func(t *testing.T) {
		r := start(t)
		r.On("PATCH", System, Always(post))
		_, err := r.boot(network)
		wantReason(t, err, bmc.NotReady)
	})

	// The list of jobs is where an iDRAC has it; the job is one that a reboot carries out.
	pending := func(s *Server) {
		const jobs = Manager + "/Oem/Dell/Jobs"
		s.Edit(Root, Doc{"Vendor": "Dell", "Oem": Doc{"Dell": Doc{"ServiceTag": "ABC1234"}}})
		s.Edit(System, Doc{"Manufacturer": "Dell Inc."})
		s.Edit(Manager, Doc{"Links": Doc{"Oem": Doc{"Dell": Doc{"Jobs": Link(jobs)}}}})
		s.Collection(jobs, jobs+"/JID_1")
		s.Put(jobs+"/JID_1", Doc{"Id": "JID_1", "Name": "Configure: BIOS.Setup.1-1", "JobType": "BIOSConfiguration", "JobState": "Scheduled"})
	}
	committed := Problem(400, "IDRAC.2.8.SYS011", "Pending configuration values are already committed, unable to perform another set operation.")
	row(t, "R49_a_pending_job_is_ours", func(t *testing.T) {
		r := start(t, pending)
		r.On("PATCH", System, Then(committed))
		_, err := r.boot(network)
		must(t, err)
	})

	row(t, "R49_a_pending_job_is_in_the_way", func(t *testing.T) {
		r := start(t, pending)
		r.On("PATCH", System, Always(committed))
		_, err := r.boot(network)
		wantReason(t, err, bmc.NotReady)
	})
}

// refusals is how many requests were answered with an error.
func refusals(s *Server) (n int) {
	for _, q := range s.Requests("", "") {
		if q.Status >= 400 {
			n++
		}
	}
	return n
}
