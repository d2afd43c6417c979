package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/better-compute/metal/adapters/httpapi/client"
)

func TestMain(m *testing.M) { Main(m) }

// kernels is where machines fetch what they boot: between the script of their boot server and the token from it. The first one that
// comes has something happen.
func kernels(t *testing.T, then func()) (url string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var first sync.Once
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		first.Do(then)
	})}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		_ = server.Close() // nobody fetches any more
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("the server of kernels: %v", err)
		}
	})
	return "http://" + listener.Addr().String()
}

// Of two agents of a site one serves network boot. It is killed while a machine boots from it, between script and token: the machine
// goes on through the other, with the token that it was promised, and on to ready. An agent that is stopped gives the lease back at
// once.
func TestTheHolderDiesInTheMiddleOfABoot(t *testing.T) {
	killed := make(chan struct{})
	var l *Lab
	var dead *Program
	url := kernels(t, func() {
		dead.Kill()
		close(killed)
	})
	l = Start(t, Options{
		Machines: 1, SiteAgents: 2, RamdiskWithin: 10 * time.Minute, Patience: 10 * time.Minute, SimFlags: []string{"--fetch-kernel"},
		PlaneFlags: []string{"--ramdisk-kernel", url + "/vmlinuz", "--ramdisk-initrd", url + "/initramfs"},
	})
	first := l.BootHolder("")
	programs := l.BootServers(first)
	dead = programs[first]

	node := l.Enroll()[0]
	<-killed
	second := l.BootHolder(first)
	l.WaitState(node, "ready")
	l.checkOneBoot(node, first, second)

	dead.Start()
	l.must(Poll(Patience, "the one that was dead to wait", func() error {
		a, err := l.Client.GetAgent(t.Context(), first)
		if err != nil || !a.Connected || a.Boot == nil || a.Boot.Until != nil {
			return fmt.Errorf("%+v, %w", a.Boot, err)
		}
		return nil
	}))
	if code := programs[second].Stop(); code != 0 {
		t.Errorf("exit %d", code)
	}
	if a, err := l.Client.GetAgent(t.Context(), second); err != nil || a.Boot != nil && a.Boot.Until != nil {
		t.Errorf("an agent that was stopped has the lease: %+v, %v", a.Boot, err)
	}
	if again := l.BootHolder(second); again != first {
		t.Errorf("%s has the lease", again)
	}
	out, err := l.Metalctl("agent", "list", "--site", l.Site)
	l.must(err)
	if strings.Count(out, "until ") != 1 {
		t.Errorf("the list is\n%s", out)
	}
}

// checkOneBoot checks by the log that the machine's boots were one each: the second agent was given what the first had, by an order
// of its own under which it fetched the token; no machine was sent into its ramdisk twice; and no token was used more than once.
func (l *Lab) checkOneBoot(node, first, second string) {
	l.T.Helper()
	fetched := map[string]int{}
	again := 0
	for e, err := range History(l.T.Context(), l.Client, node) {
		l.must(err)
		var data struct {
			Key     string `json:"key"`
			Kind    string `json:"kind"`
			AgentID string `json:"agentId"`
		}
		l.must(json.Unmarshal(e.Data, &data))
		switch {
		case e.Type == "agentcommand.secret.fetched":
			fetched[data.AgentID]++
		case e.Type != "agentcommand.requested" || data.Kind != "boot.entry.set":
		case strings.HasPrefix(data.Key, "bootlease:"):
			again++
		case strings.Contains(data.Key, "entry-2"):
			l.T.Errorf("the machine was sent into its ramdisk again: %s", data.Key)
		}
	}
	if again != 1 || fetched[first] == 0 || fetched[second] == 0 {
		l.T.Errorf("entries were set again %d times; tokens and passwords fetched: %v, by %s and %s", again, fetched, first, second)
	}
	used := 0
	for token, err := range l.Client.JoinTokens(l.T.Context(), "", "", node) {
		l.must(err)
		if token.Uses > 1 {
			l.T.Errorf("a token was used %d times", token.Uses)
		}
		used += token.Uses
	}
	if used == 0 {
		l.T.Error("no token was used")
	}
	after := uint64(0)
	var terms []string
	for e, err := range l.Client.Follow(l.T.Context(), client.Feed{After: &after, Types: []string{"bootlease.*"}}) {
		l.must(err)
		var data struct {
			Term    int `json:"term"`
			Entries int `json:"entries"`
			Missing int `json:"missing"`
		}
		l.must(json.Unmarshal(e.Data, &data))
		terms = append(terms, fmt.Sprintf("%s %d %d %d", strings.TrimPrefix(e.Type, "bootlease."), data.Term, data.Entries, data.Missing))
		if data.Term == 2 && e.Type == "bootlease.completed" {
			break
		}
	}
	if want := []string{"taken 1 0 0", "completed 1 0 0", "taken 2 0 0", "completed 2 1 0"}; !slices.Equal(terms, want) {
		l.T.Errorf("the lease went %q", terms)
	}
}
