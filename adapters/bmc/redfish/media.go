package redfish

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/stmcginnis/gofish/schemas"

	"github.com/better-compute/metal/adapters/bmc"
	"github.com/better-compute/metal/domain/fault"
)

// How long virtual media may take to be attached, in polls.
const mediaPolls = 15

// untold is how many looks without a connection are enough for an image that is in the drive: about ten seconds.
const untold = 8

// slowSlots is how many drives may take an image without showing it, before it is the image's fault.
const slowSlots = 2

// slot is one virtual drive.
type slot struct {
	path   string
	doc    document
	tag    string
	insert string // the action's target; empty: by PATCH only
	eject  string
}

func newSlot(path string, doc document, a *answer) slot {
	return slot{
		path: path, doc: doc, tag: a.etag(),
		insert: localPath(doc.text("Actions", "#VirtualMedia.InsertMedia", "target")),
		eject:  localPath(doc.text("Actions", "#VirtualMedia.EjectMedia", "target")),
	}
}

// rank orders slots: optical before others, those with an action before those without. Zero: no optical drive.
func (s slot) rank() int {
	types := s.doc.texts("MediaTypes")
	var n int
	switch {
	case slices.Contains(types, string(schemas.CDVirtualMediaType)):
		n = 4
	case slices.Contains(types, string(schemas.DVDVirtualMediaType)), len(types) == 0:
		n = 2
	default:
		return 0
	}
	if s.insert != "" {
		n++
	}
	return n
}

// holds reports whether something may be in the drive: some controllers tell of an image that was taken out long ago.
func (s slot) holds() bool {
	image := s.doc.text("Image")
	return s.full() || (image != "" && !strings.EqualFold(image, "none"))
}

// full reports whether something is in the drive; a controller that does not tell is asked for its image.
func (s slot) full() bool {
	in, known := s.doc.flag("Inserted")
	image := s.doc.text("Image")
	return in || (!known && image != "" && !strings.EqualFold(image, "none"))
}

// shows reports whether the controller tells that this image is in the drive.
func (s slot) shows(image string) bool {
	in, known := s.doc.flag("Inserted")
	if known && !in {
		return false
	}
	return sameImage(s.doc.text("Image"), image) || (s.doc.text("Image") == "" && known && in)
}

// connected reports whether the host sees the drive; controllers that do not tell are believed.
func (s slot) connected() bool {
	return s.doc.text("ConnectedVia") != string(schemas.NotConnectedConnectedVia)
}

// sameImage compares as controllers repeat: without credentials, without the scheme, or the file's name alone.
func sameImage(got, want string) bool {
	if got == want {
		return true
	}
	g, err := url.Parse(got)
	w, werr := url.Parse(want)
	if err != nil || werr != nil || got == "" {
		return false
	}
	if g.Host == "" {
		return path.Clean("/"+g.Path) == path.Clean("/"+w.Host+w.Path) || path.Clean("/"+g.Path) == path.Clean(w.Path) ||
			g.Path == path.Base(w.Path)
	}
	return strings.EqualFold(g.Host, w.Host) && g.Path == w.Path && (g.RawQuery == w.RawQuery || g.RawQuery == "")
}

// media is the slot for people, without what of the image's address may be secret.
func (s slot) media() bmc.Media {
	in, _ := s.doc.flag("Inserted")
	image := s.doc.text("Image")
	if u, err := url.Parse(image); err == nil && (u.User != nil || u.RawQuery != "") {
		u.User, u.RawQuery = nil, ""
		image = u.String()
	}
	return bmc.Media{Slot: lastName(s.path), Image: image, Inserted: in, Connected: s.doc.text("ConnectedVia")}
}

// slots lists the drives for optical media, best first: those of the system, then those of its managers. Some controllers
// have them in one place only, and only some of them work.
func (m *machine) slots(ctx context.Context) ([]slot, error) {
	if known := m.known().Media; known != "" {
		doc, a, err := m.c.get(ctx, known)
		if err == nil {
			return []slot{newSlot(known, doc, a)}, nil
		}
		if statusOf(err) != http.StatusNotFound {
			return nil, err
		}
		m.learn(func(f *facts) { f.Media, f.Insert, f.InsertBy = "", nil, "" })
	}
	collections, err := m.mediaCollections(ctx)
	if err != nil {
		return nil, err
	}
	var out []slot
	var failed error
	seen := map[string]bool{}
	for _, path := range collections {
		links, err := m.c.members(ctx, path)
		if err != nil {
			failed = err
		}
		for _, l := range links {
			if seen[canonical(l)] {
				continue
			}
			seen[canonical(l)] = true
			doc, a, err := m.c.get(ctx, l)
			if err != nil {
				failed = err
				continue
			}
			if s := newSlot(l, doc, a); s.rank() > 0 {
				out = append(out, s)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b slot) int { return b.rank() - a.rank() })
	switch {
	case len(out) > 0:
		return out, nil
	case failed != nil && statusOf(failed) != http.StatusNotFound:
		return nil, failed
	}
	return nil, broken(bmc.Unsupported, "the controller has no virtual drive for optical media")
}

func (m *machine) mediaCollections(ctx context.Context) ([]string, error) {
	sys, _, err := m.system(ctx)
	if err != nil {
		return nil, err
	}
	var out []string
	if l := sys.link("VirtualMedia"); l != "" {
		out = append(out, l)
	}
	managers, err := m.managers(ctx, sys)
	if err != nil && len(out) == 0 {
		return nil, err
	}
	for _, path := range managers {
		doc, _, err := m.c.get(ctx, path)
		if err != nil {
			if len(out) == 0 && statusOf(err) != http.StatusNotFound {
				return nil, err
			}
			continue
		}
		if l := doc.link("VirtualMedia"); l != "" {
			out = append(out, l)
		}
	}
	return out, nil
}

// InsertMedia puts the image into the first drive that takes it. What is there goes first, also where the controller only
// thinks that there is something: it tells of images that were taken out long ago.
func (m *machine) InsertMedia(ctx context.Context, image string) (bmc.Media, error) {
	u, err := url.Parse(image)
	if err != nil || u.Scheme == "" || u.Host == "" {
		return bmc.Media{}, broken(bmc.Unsupported, "an image is an absolute URL")
	}
	defer m.c.hide(secretParts(image, u)...)()
	all, err := m.slots(ctx)
	if err != nil {
		return bmc.Media{}, err
	}
	var failed error
	slow := 0
	for _, s := range all {
		emptied := true
		if s.holds() {
			_, err := m.empty(ctx, s)
			if err != nil && ctx.Err() != nil {
				return bmc.Media{}, err
			}
			emptied = err == nil
		}
		err := m.insert(ctx, s, image)
		if occupied(err) {
			_, _, _ = m.eject(ctx, s) // it does not tell what it holds; whether this helped, the next answer tells
			err = m.insert(ctx, s, image)
		}
		var in slot
		if err == nil || passing(err) {
			in, err = m.awaitImage(ctx, s, image, emptied)
		}
		if err == nil {
			m.learn(func(f *facts) { f.Media = s.path })
			return in.media(), nil
		}
		if ctx.Err() != nil {
			return bmc.Media{}, notAttached(in, err)
		}
		failed = notAttached(in, err)
		if reasonOf(err) == bmc.TaskFailed || fault.CodeOf(err) == fault.Timeout {
			if slow++; slow == slowSlots {
				break // no drive is to blame
			}
			if _, err := m.empty(ctx, s); err != nil && ctx.Err() != nil {
				return bmc.Media{}, failed
			}
		}
	}
	m.learn(func(f *facts) { f.Media = "" }) // the next attempt looks at all of them
	return bmc.Media{}, failed
}

// occupied reports a refusal because something is in the drive already.
func occupied(err error) bool {
	var e *fault.Error
	if reasonOf(err) != bmc.Refused || !errors.As(err, &e) {
		return false
	}
	text, _ := e.Details["message"].(string)
	return containsWord(text, "already")
}

func notAttached(s slot, err error) error {
	if s.doc == nil || fault.CodeOf(err) != fault.Timeout {
		return err
	}
	return broken(bmc.MediaNotAttached, "the controller took the image and does not show it in the drive").
		WithDetail("slot", lastName(s.path)).WithDetail("found", s.media())
}

// awaitSlot reads a drive until it is as wanted; the time for that is a fault TIMEOUT, with the drive as last seen.
func (m *machine) awaitSlot(ctx context.Context, s slot, done func(slot) bool) (slot, error) {
	wait, cancel := context.WithTimeout(ctx, mediaPolls*m.c.d.o.Poll)
	defer cancel()
	var last slot
	for p := m.c.d.pace(); ; {
		now, err := m.readSlot(ctx, s.path)
		switch {
		case err == nil:
			if last = now; done(last) {
				return last, nil
			}
		case ctx.Err() != nil:
			return last, ended(ctx)
		case !passing(err):
			return last, err
		}
		if p.wait(wait, 0) != nil {
			return last, ended(wait)
		}
	}
}

// awaitImage waits until the host sees the image. Some controllers never tell that it does: there an image counts that
// came into an empty drive and stayed.
func (m *machine) awaitImage(ctx context.Context, s slot, image string, emptied bool) (slot, error) {
	looks := 0
	return m.awaitSlot(ctx, s, func(s slot) bool {
		if !s.shows(image) {
			return false
		}
		looks++
		return s.connected() || (emptied && looks > untold)
	})
}

// EjectMedia empties every drive for optical media.
func (m *machine) EjectMedia(ctx context.Context) error {
	all, err := m.slots(ctx)
	if reasonOf(err) == bmc.Unsupported {
		return nil // where there is no drive nothing is in it
	}
	if err != nil {
		return err
	}
	for _, s := range all {
		if !s.holds() {
			continue
		}
		last, err := m.empty(ctx, s)
		if err != nil {
			if fault.CodeOf(err) == fault.Timeout && last.doc != nil {
				return broken(bmc.Refused, "the drive still holds its image").WithDetail("found", last.media())
			}
			return err
		}
	}
	return nil
}

// empty ejects. An error from a drive that turns out empty is none.
func (m *machine) empty(ctx context.Context, s slot) (slot, error) {
	a, r, err := m.eject(ctx, s)
	var failed error
	switch {
	case err != nil && !passing(err):
		return slot{}, err
	case err == nil && a.failed():
		failed = m.c.refusal(r, a)
	case err == nil:
		failed = m.c.settle(ctx, a)
	}
	if failed != nil && (a.status == 401 || a.status == 403) {
		return slot{}, failed
	}
	if failed != nil && !transient(a) {
		now, err := m.readSlot(ctx, s.path)
		if err != nil || !now.full() {
			return slot{}, err
		}
		return now, failed
	}
	return m.awaitSlot(ctx, s, func(s slot) bool { return !s.full() })
}

func (m *machine) readSlot(ctx context.Context, path string) (slot, error) {
	doc, a, err := m.c.get(ctx, path)
	if err != nil {
		return slot{}, err
	}
	return newSlot(path, doc, a), nil
}

// eject sends the action, with the empty object that some insist on, or takes the image out by PATCH.
func (m *machine) eject(ctx context.Context, s slot) (*answer, request, error) {
	if s.eject != "" {
		r := request{method: http.MethodPost, path: s.eject, body: struct{}{}}
		a, err := m.c.do(ctx, r)
		if err != nil || (a.status != 404 && a.status != 405 && a.status != 501) {
			return a, r, err
		}
		if now, err := m.readSlot(ctx, s.path); err != nil || !now.full() {
			return a, r, err
		}
	}
	r := request{method: http.MethodPatch, path: s.path}
	a, err := m.c.patch(ctx, s.path, map[string]any{"Image": nil, "Inserted": false}, s.tag)
	return a, r, err
}
