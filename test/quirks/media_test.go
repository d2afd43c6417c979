package quirks

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/better-compute/metal/adapters/bmc"
)

const image = "https://images.example/ramdisk.iso"

// wantMedia checks what a virtual drive holds.
func wantMedia(t *testing.T, s *Server, path string, want any) {
	t.Helper()
	if got := s.Get(path); got["Image"] != want || got["Inserted"] != (want != nil) {
		t.Errorf("%s holds %v, inserted: %v; want %v", path, got["Image"], got["Inserted"], want)
	}
}

// TestMediaParameters is R110, R111, R114 and R122: what a drive wants to be told.
func TestMediaParameters(t *testing.T) {
	// Each is how a controller tells that a parameter is missing.
	shapes := map[string]func(parameter string) *Answer{
		"message_id_and_args": func(p string) *Answer {
			return Problem(400, "Base.1.8.ActionParameterMissing", "The action InsertMedia requires the parameter "+p+" to be present.", "InsertMedia", p)
		},
		"property_missing": func(p string) *Answer {
			return Problem(400, "Base.1.5.PropertyMissing", "The property "+p+" is a required property and must be included.", p)
		},
		"the_code_itself": func(p string) *Answer {
			return Say(400, Doc{"error": Doc{"code": "Base.1.0.ActionParameterMissing", "message": "The parameter " + p + " is missing."}})
		},
		"only_text": func(p string) *Answer {
			return Problem(400, "Base.1.8.GeneralError", "The request failed because "+p+" is not specified.")
		},
		"related_properties": func(p string) *Answer {
			return Say(400, Doc{"error": Doc{"code": "Base.1.8.GeneralError", "message": "See ExtendedInfo.", "@Message.ExtendedInfo": Doc{
				"MessageId": "Base.1.8.PropertyMissing", "Message": "A property is missing.", "RelatedProperties": []any{"#/" + p}}}})
		},
	}
	for shape, missing := range shapes {
		for _, needed := range []string{"TransferProtocolType", "TransferMethod", "UserName"} {
			row(t, "R110_"+needed+"_"+shape, func(t *testing.T) {
				r := start(t)
				r.On("POST", Insert, func(x *Exchange) *Answer {
					if _, ok := x.Body[needed]; !ok {
						return missing(needed)
					}
					return x.Next()
				})
				_, err := r.insert(image)
				must(t, err)
				wantMedia(t, r.Server, Drive, image)
				atMost(t, "insertions that were tried", len(r.Requests("POST", Insert)), 5)
			})
		}
	}

	row(t, "R110_all_of_them_one_after_the_other", func(t *testing.T) {
		r := start(t)
		r.On("POST", Insert, func(x *Exchange) *Answer {
			for _, p := range []string{"TransferProtocolType", "TransferMethod", "UserName", "Password"} {
				if _, ok := x.Body[p]; !ok {
					return shapes["message_id_and_args"](p)
				}
			}
			return x.Next()
		})
		_, err := r.insert(image)
		must(t, err)
		last := r.Bodies("POST", Insert)[len(r.Bodies("POST", Insert))-1]
		same(t, "protocol", last["TransferProtocolType"], any("HTTPS"))
		if strings.Contains(last["UserName"].(string)+last["Password"].(string), canary) || last["UserName"] == Username {
			t.Error("the controller's own credentials were sent for the image")
		}
	})

	row(t, "R110_what_was_learned_is_kept", func(t *testing.T) {
		r := start(t)
		r.On("POST", Insert, func(x *Exchange) *Answer {
			if _, ok := x.Body["TransferProtocolType"]; !ok {
				return shapes["message_id_and_args"]("TransferProtocolType")
			}
			return x.Next()
		})
		for range 2 {
			_, err := r.insert(image)
			must(t, err)
		}
		same(t, "insertions that were tried", len(r.Requests("POST", Insert)), 3)
	})

	row(t, "R110_a_refusal_of_another_kind", func(t *testing.T) {
		r := start(t)
		r.On("POST", Insert, Always(Problem(400, "Base.1.8.ResourceAtUriUnauthorized", "The image can't be read.")))
		_, err := r.insert(image)
		wantReason(t, err, bmc.Refused, bmc.MediaNotAttached)
		atMost(t, "insertions that were tried", len(r.Requests("POST", Insert)), 3)
	})

	row(t, "R111_only_the_image_first", func(t *testing.T) {
		r := start(t)
		r.On("POST", Insert, func(x *Exchange) *Answer {
			for name := range x.Body {
				if name != "Image" {
					return Problem(400, "Base.1.8.ActionParameterNotSupported", "The parameter "+name+" is not supported.", name, "InsertMedia")
				}
			}
			return x.Next()
		})
		_, err := r.insert(image)
		must(t, err)
		same(t, "what was sent", slices.Collect(maps.Keys(r.Bodies("POST", Insert)[0])), []string{"Image"})
	})

	row(t, "R114_eject_has_a_body", func(t *testing.T) {
		r := start(t) // without one it answers 415
		_, err := r.insert(image)
		must(t, err)
		must(t, r.eject())
		wantMedia(t, r.Server, Drive, nil)
		sent := r.Requests("POST", Eject)
		same(t, "the body", sent[len(sent)-1].Raw, "{}")
	})

	row(t, "R122_dvd_only", func(t *testing.T) {
		r := start(t, func(s *Server) { s.Edit(Drive, Doc{"MediaTypes": []any{"DVD"}}) })
		_, err := r.insert(image)
		must(t, err)
		wantMedia(t, r.Server, Drive, image)
	})

	row(t, "R122_the_type_is_required", func(t *testing.T) {
		r := start(t, func(s *Server) { s.Edit(Drive, Doc{"MediaTypes": []any{"DVD"}}) })
		r.On("POST", Insert, func(x *Exchange) *Answer {
			if x.Body["MediaType"] != "DVD" {
				return shapes["message_id_and_args"]("MediaType")
			}
			return x.Next()
		})
		_, err := r.insert(image)
		must(t, err)
		wantMedia(t, r.Server, Drive, image)
	})
}

// TestMediaDrives is section 7 of the list, as far as it is about which drive is taken, and how.
func TestMediaDrives(t *testing.T) {
	noActions := func(s *Server) { s.Edit(Drive, Doc{"Actions": Gone}) }
	for name, change := range map[string]func(s *Server){
		"R112_no_action": noActions,
		"R112_the_action_answers_404": func(s *Server) {
			s.On("POST", Insert, Always(Problem(404, "Base.1.8.ActionNotSupported", "There is no such action.")))
			s.On("POST", Eject, Always(Problem(404, "Base.1.8.ActionNotSupported", "There is no such action.")))
		},
		"R112_the_action_answers_405": func(s *Server) {
			s.On("POST", Insert, Always(Problem(405, "Base.1.8.OperationNotAllowed", "The method is not allowed.")))
			s.On("POST", Eject, Always(Problem(405, "Base.1.8.OperationNotAllowed", "The method is not allowed.")))
		},
	} {
		row(t, name, func(t *testing.T) {
			r := start(t, change, func(s *Server) {
				s.On("PATCH", Drive, func(x *Exchange) *Answer {
					if x.Body["Image"] != nil && x.Body["Inserted"] != true {
						return Problem(400, "Base.1.8.PropertyMissing", "The property Inserted is missing.", "Inserted")
					}
					return x.Next()
				})
			})
			_, err := r.insert(image)
			must(t, err)
			wantMedia(t, r.Server, Drive, image)
			must(t, r.eject())
			if r.Get(Drive)["Inserted"] != false {
				t.Error("it is still inserted")
			}
		})
	}

	empty := map[string]*Answer{
		"R115_eject_of_an_empty_drive_400": Problem(400, "IDRAC.2.8.VRM0009", "No virtual media is attached."),
		"R115_eject_of_an_empty_drive_404": Problem(404, "Base.1.8.ResourceMissingAtURI", "There is no media."),
		"R115_eject_of_an_empty_drive_500": Problem(500, "IDRAC.2.8.VRM0009", "No virtual media is attached."),
	}
	for name, refusal := range empty {
		row(t, name, func(t *testing.T) {
			r := start(t)
			r.On("POST", Eject, Always(refusal))
			must(t, r.eject())
			_, err := r.insert(image)
			must(t, err)
			wantMedia(t, r.Server, Drive, image)
		})
	}

	row(t, "R115_a_drive_that_does_not_let_go", func(t *testing.T) {
		r := start(t)
		_, err := r.insert(image)
		must(t, err)
		r.On("POST", Eject, Always(Problem(400, "Base.1.8.GeneralError", "The request failed.")))
		if err := r.eject(); err == nil {
			t.Error("success with the media still there")
		}
	})

	row(t, "R116_a_stale_image_is_ejected_first", func(t *testing.T) {
		r := start(t, func(s *Server) {
			s.Edit(Drive, Doc{"Image": image, "Inserted": true, "ConnectedVia": "NotConnected"})
		})
		_, err := r.insert(image)
		must(t, err)
		var order []string
		for _, q := range r.Requests("POST", Drive+"/Actions/*") {
			order = append(order, q.Path[strings.LastIndex(q.Path, ".")+1:])
		}
		same(t, "order", order, []string{"EjectMedia", "InsertMedia"})
		same(t, "connected", r.Get(Drive)["ConnectedVia"], any("URI"))
	})

	row(t, "R116_another_image_is_read_back", func(t *testing.T) {
		r := start(t)
		r.On("GET", Drive, func(x *Exchange) *Answer {
			if len(x.server.Requests("POST", Insert)) == 0 {
				return x.Next()
			}
			return Lie(Doc{"Image": "https://images.example/old.iso"})(x)
		})
		_, err := r.insert(image)
		wantReason(t, err, bmc.MediaNotAttached)
	})

	const under = System + "/VirtualMedia"
	row(t, "R118_under_the_system_only", func(t *testing.T) {
		r := start(t, func(s *Server) {
			s.Edit(Manager, Doc{"VirtualMedia": Gone})
			s.Remove(Drives, Drive)
			s.Edit(System, Doc{"VirtualMedia": Link(under)})
			s.Collection(under, under+"/1")
			s.Put(under+"/1", drive(under+"/1", "CD", "DVD"))
		})
		_, err := r.insert(image)
		must(t, err)
		wantMedia(t, r.Server, under+"/1", image)
		must(t, r.eject())
		wantMedia(t, r.Server, under+"/1", nil)
	})

	row(t, "R118_under_both", func(t *testing.T) {
		r := start(t, func(s *Server) {
			s.Edit(System, Doc{"VirtualMedia": Link(under)})
			s.Collection(under, under+"/1", under+"/2")
			s.Put(under+"/1", drive(under+"/1", "CD", "DVD", "USBStick"))
			s.Put(under+"/2", drive(under+"/2", "CD", "DVD", "USBStick"))
		})
		_, err := r.insert(image)
		must(t, err)
		held := 0
		for _, path := range []string{Drive, under + "/1", under + "/2"} {
			if r.Get(path)["Image"] == image {
				held++
			}
		}
		same(t, "drives that hold the image", held, 1)
		must(t, r.eject())
		for _, path := range []string{Drive, under + "/1", under + "/2"} {
			wantMedia(t, r.Server, path, nil)
		}
	})

	row(t, "R118_a_drive_for_discs_among_others", func(t *testing.T) {
		r := start(t, func(s *Server) {
			s.Edit(Drive, Doc{"MediaTypes": []any{"Floppy", "USBStick"}})
			s.Collection(Drives, Drive, Drives+"/2")
			s.Put(Drives+"/2", drive(Drives+"/2", "CD", "DVD"))
		})
		got, err := r.insert(image)
		must(t, err)
		wantMedia(t, r.Server, Drives+"/2", image)
		same(t, "slot", got.Slot, "2")
	})

	row(t, "R120_it_attaches_after_a_while", func(t *testing.T) {
		r := start(t)
		r.On("GET", Drive, func(x *Exchange) *Answer {
			if len(x.server.Requests("POST", Insert)) == 0 || x.N < 6 {
				return Lie(Doc{"Image": nil, "Inserted": false, "ConnectedVia": "NotConnected"})(x)
			}
			return x.Next()
		})
		got, err := r.insert(image)
		must(t, err)
		same(t, "media", got, bmc.Media{Slot: "1", Image: image, Inserted: true, Connected: "URI"})
	})

	row(t, "R120_it_never_attaches", func(t *testing.T) {
		r := start(t)
		r.On("GET", Drive, Lie(Doc{"Image": nil, "Inserted": false, "ConnectedVia": "NotConnected"}))
		_, err := r.insert(image)
		wantReason(t, err, bmc.MediaNotAttached)
	})

	row(t, "R118_no_drives", func(t *testing.T) {
		r := start(t, func(s *Server) { s.Edit(Manager, Doc{"VirtualMedia": Gone}) })
		_, err := r.insert(image)
		wantReason(t, err, bmc.Unsupported)
	})
}
