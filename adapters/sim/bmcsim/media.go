package bmcsim

import (
	"encoding/json"
	"net/http"
	"path"
	"slices"
)

func (s *Service) mediaPath() string {
	if s.p.mediaAtSystem {
		return s.base + "/VirtualMedia"
	}
	return s.mgr + "/VirtualMedia"
}

func (s *Service) slotPath(i int) string { return s.mediaPath() + "/" + s.p.slots[i].id }

func (s *Service) addMedia() {
	var paths []string
	for i := range s.p.slots {
		at := s.slotPath(i)
		paths = append(paths, at)
		s.add(at, &resource{doc: func(state State) doc { return s.mediaDoc(i, state.Media[i]) }})
		s.add(at+"/Actions/VirtualMedia.InsertMedia", &resource{post: func(c call) answer { return s.insert(i, c) }})
		s.add(at+"/Actions/VirtualMedia.EjectMedia", &resource{post: func(call) answer { return s.eject(i) }})
	}
	s.collection(s.mediaPath(), "VirtualMedia", paths...)
}

func (s *Service) mediaDoc(i int, m Media) doc {
	at := s.slotPath(i)
	actions := doc{"#VirtualMedia.InsertMedia": doc{"target": s.id(at + "/Actions/VirtualMedia.InsertMedia")}}
	if m.Inserted || !s.p.noEject {
		actions["#VirtualMedia.EjectMedia"] = doc{"target": s.id(at + "/Actions/VirtualMedia.EjectMedia")}
	}
	d := doc{
		"@odata.id": s.id(at), "@odata.type": "#VirtualMedia.v1_4_0.VirtualMedia", "Id": s.p.slots[i].id, "Name": "Virtual Media",
		"MediaTypes": s.p.slots[i].types, "Inserted": m.Inserted, "Image": nil, "ImageName": nil, "WriteProtected": m.ReadOnly,
		"ConnectedVia": "NotConnected", "Actions": actions,
	}
	if m.Inserted {
		d["Image"], d["ImageName"], d["ConnectedVia"] = m.Image, path.Base(m.Image), "URI"
	}
	return d
}

// mediaFields are the parameters of InsertMedia.
var mediaFields = []string{
	"Image", "Inserted", "WriteProtected", "MediaType", "TransferMethod", "TransferProtocolType", "UserName", "Password",
}

func (s *Service) insert(i int, c call) answer {
	for name := range c.set {
		if !slices.Contains(mediaFields, name) || s.p.mediaStrict && name != "Image" {
			return refuse(http.StatusBadRequest, "ActionParameterUnknown", "The parameter is not known.", "InsertMedia", name)
		}
	}
	var body struct {
		Image          string
		WriteProtected *bool
	}
	if err := json.Unmarshal(c.body, &body); err != nil || body.Image == "" {
		return refuse(http.StatusBadRequest, "ActionParameterMissing", "Image is missing.", "InsertMedia", "Image")
	}
	if s.board.State().Media[i].Inserted {
		return refuse(http.StatusConflict, "ResourceInUse", "The drive holds another image.")
	}
	s.board.SetMedia(i, Media{Image: body.Image, Inserted: true, ReadOnly: body.WriteProtected == nil || *body.WriteProtected})
	return empty()
}

func (s *Service) eject(i int) answer {
	if !s.board.State().Media[i].Inserted {
		return refuse(http.StatusBadRequest, "ResourceNotFound", "There is nothing in the drive.")
	}
	s.board.SetMedia(i, Media{})
	return empty()
}
