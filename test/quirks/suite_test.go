package quirks

import (
	"net/http"
	"testing"

	"github.com/better-compute/metal/adapters/bmc/bmctest"
	"github.com/better-compute/metal/adapters/bmc/redfish"
)

// personalities are controllers that a driver must not tell from a plain one, each with several quirks at one time.
var personalities = map[string]func(s *Server){
	"plain": func(*Server) {},
	// An iDRAC of some age: bare tags, drives under the system, and a login that answers with another host's name.
	"idrac": func(s *Server) {
		const under = System + "/VirtualMedia"
		s.Edit(Root, Doc{"Vendor": "Dell"})
		s.Edit(Manager, Doc{"VirtualMedia": Gone})
		s.Edit(System, Doc{"Manufacturer": "Dell Inc.", "VirtualMedia": Link(under)})
		s.Collection(under, under+"/1")
		s.Put(under+"/1", drive(under+"/1", "CD", "DVD"))
		s.On(http.MethodPost, Sessions, func(x *Exchange) *Answer {
			a := x.Next()
			return a.With("Location", "https://idrac.example"+a.Header.Get("Location"))
		})
		s.On(http.MethodGet, System, func(x *Exchange) *Answer {
			a := x.Next().With("ETag", "")
			a.Body.(Doc)["@odata.etag"] = "1718082924"
			return a
		})
		s.On(http.MethodPatch, System, Guarded(412, `"1718082924"`))
	},
	// AMI's firmware: the boot override in a settings object, reset types behind a link, power that takes its time.
	"ami": func(s *Server) {
		const info = System + "/ResetActionInfo"
		s.Edit(Root, Doc{"Vendor": "AMI"})
		s.WithSettings(overrideSettings())
		s.Edit(System, Doc{"Actions": Doc{"#ComputerSystem.Reset": Doc{
			"ResetType@Redfish.AllowableValues": Gone, "@Redfish.ActionInfo": info}}})
		s.Put(info, Doc{"Parameters": []any{Doc{"Name": "ResetType", "AllowableValues": []any{"On", "ForceOff", "ForceRestart", "GracefulShutdown"}}}})
		s.On(http.MethodPatch, System, Always(futureState))
		s.Lag = 2
	},
	// Supermicro's: what a change leaves out is reset, and the virtual drive is a USB one that wants no more than the image.
	"supermicro": func(s *Server) {
		s.Edit(Root, Doc{"Oem": Doc{"Supermicro": Doc{}}})
		s.Edit(System, Doc{"Manufacturer": "Supermicro", "Boot": Doc{
			"BootSourceOverrideTarget@Redfish.AllowableValues": []any{"None", "Pxe", "Hdd", "Cd", "UsbCd", "BiosSetup", "UefiHttp"}}})
		resetsWhatIsLeftOut(s, System)
	},
	// A controller that shows each resource only after it answered 401, closed the connection and answered 503, and that
	// forgets its sessions again and again.
	"shaky": func(s *Server) {
		for path := range s.docs {
			s.On(http.MethodGet, path, func(x *Exchange) *Answer {
				switch {
				case x.N == 1 && path != Root:
					return Problem(401, "Base.1.8.NoValidSession", "There is no valid session.")
				case x.N == 2:
					return Drop(x)
				case x.N == 3:
					return Problem(503, "Base.1.8.GeneralError", "The service is busy.")
				}
				return x.Next()
			})
		}
		s.On(http.MethodGet, "", func(x *Exchange) *Answer {
			if x.N%150 == 0 {
				x.server.EndSessions()
			}
			return x.Next()
		})
	},
}

// TestSuite runs what every driver passes against each of the personalities.
func TestSuite(t *testing.T) {
	for name, change := range personalities {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bmctest.Run(t, func(t *testing.T) bmctest.Subject {
				s := New(t)
				s.Machine()
				change(s)
				s.Run()
				r := attach(t, s, redfish.Options{})
				return bmctest.Subject{Driver: r.driver, Target: r.target, Image: image}
			})
		})
	}
}
