package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"testing"

	"github.com/better-compute/metal/adapters/disk"
	"github.com/better-compute/metal/adapters/httpapi/client"
	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/adapters/sim"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/test/lab"
)

// Six machines with the controllers of several makers live a whole life, from a cable to a proof that nothing is left. What is
// claimed is looked up on the machines themselves.
func TestLife(t *testing.T) {
	t.Parallel() // with the other tests that wait for machines
	l := lab.Start(t, lab.Options{Machines: 6})
	nodes := l.Enroll()
	for _, n := range nodes {
		isReady(t, l, n)
	}
	for _, n := range nodes {
		l.Deploy(n)
	}
	secrets := planted(l)
	for _, n := range nodes {
		isDeployed(t, l, n)
		secrets = append(secrets, lab.Secret{What: "a token of an installed agent", Value: installedToken(t, l, n)})
	}
	for _, n := range nodes {
		l.Undeploy(n, "secure-erase")
	}
	for _, n := range nodes {
		l.WaitState(n, "ready")
		isReady(t, l, n)
	}
	for _, n := range nodes {
		_, err := l.Client.Retire(t.Context(), n, contract.Wipe{})
		must(t, err)
	}
	for _, n := range nodes {
		isRetired(t, l, n)
	}
	l.Keeps(secrets, answers(t, l, nodes))
	l.Verify()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// isReady waits for it and looks at the machine: off, and every byte of every disk is zero.
func isReady(t *testing.T, l *lab.Lab, n string) {
	t.Helper()
	if got := l.WaitState(n, "ready"); !got.WipeVerified || got.Power != "off" || got.Profile != nil {
		t.Errorf("%s is ready and shows %+v", n, got)
	}
	isEmpty(t, l, n)
	signedFor(t, l, n)
}

func isEmpty(t *testing.T, l *lab.Lab, n string) {
	t.Helper()
	m := l.Machine(l.MachineOf(n))
	if m.View.Power != node.PowerOff {
		t.Errorf("%s is %s", m.Name, m.View.Power)
	}
	for i := range m.Disks {
		if at := slices.IndexFunc(l.Disk(m.Name, i), func(b byte) bool { return b != 0 }); at >= 0 {
			t.Errorf("disk %d of %s has something left at %d", i, m.Name, at)
		}
	}
}

// signedFor looks at the newest wipe in the log: the machine signed for every disk that it has.
func signedFor(t *testing.T, l *lab.Lab, n string) {
	t.Helper()
	var newest []byte
	for e, err := range lab.History(t.Context(), l.Client, n) {
		must(t, err)
		if e.Type == "node.wipe.attested" {
			newest = e.Data
		}
	}
	if newest == nil {
		t.Errorf("%s is ready, and no wipe is in its history", n)
		return
	}
	var wipe node.WipeAttested
	must(t, json.Unmarshal(newest, &wipe))
	disks := l.Machine(l.MachineOf(n)).Disks
	if !wipe.Signed || wipe.Certificate == "" || len(wipe.Disks) != len(disks) {
		t.Errorf("%s: %+v", n, wipe)
	}
	for i, d := range wipe.Disks {
		if !d.ReadBack || d.Disk.Serial != disks[i].Serial {
			t.Errorf("%s: %+v", n, d)
		}
	}
}

// isDeployed waits for it and looks at the machine: the image is on its first disk, its OS runs, and the agent in it has joined.
func isDeployed(t *testing.T, l *lab.Lab, n string) {
	t.Helper()
	got := l.WaitState(n, "deployed")
	if got.Role != "host" || got.Profile == nil || got.Profile.ID != "image-host" || !got.Schedulable {
		t.Errorf("%s is deployed and shows %+v", n, got)
	}
	name := l.MachineOf(n)
	m := l.Machine(name)
	if m.View.Running != sim.OS || m.View.OS != lab.OSName || m.Disks[0].OS != lab.OSName {
		t.Errorf("%s runs %+v", name, m.View)
	}
	image := sim.OSImage(int(l.Image.Bytes), lab.OSName)
	content := func(b []byte) []byte { return b[16<<10:] } // before that is room for what the OS writes itself
	if written := l.Disk(name, 0)[:len(image)]; !bytes.Equal(content(written), content(image)) {
		t.Errorf("the first disk of %s does not hold the image", name)
	}
	agents, err := client.Collect(l.Client.Agents(t.Context(), "", n, "node", client.AtPosition(got.Position)), 0)
	must(t, err)
	if len(agents) != 1 || !agents[0].Connected || agents[0].BootID != m.View.BootID {
		t.Errorf("the agent of %s is %+v, its boot %s", name, agents, m.View.BootID)
	}
}

func isRetired(t *testing.T, l *lab.Lab, n string) {
	t.Helper()
	got := l.WaitState(n, "retired")
	if got.BMC != nil && got.BMC.CredentialsSet {
		t.Errorf("%s is retired, and the credentials of its BMC are kept", n)
	}
	isEmpty(t, l, n)
	agents, err := client.Collect(l.Client.Agents(t.Context(), "", n, "", client.AtPosition(got.Position)), 0)
	must(t, err)
	for _, a := range agents {
		if a.Revoked == "" || a.Connected {
			t.Errorf("%s is retired, and its agent %+v", n, a)
		}
	}
	of, err := id.Parse[id.Node](n)
	must(t, err)
	wipes := 0
	for _, o := range l.Orders(l.MachineOf(n)) {
		if o.Kind == agentcommand.DiskWipe && o.Done {
			wipes++
		}
	}
	if wipes != 3 { // commissioned, released, retired
		t.Errorf("%s was wiped %d times", of, wipes)
	}
}

// planted is every secret that went in.
func planted(l *lab.Lab) []lab.Secret {
	secrets := []lab.Secret{{What: "the administrator's token", Value: l.Token}, {What: "the site's join token", Value: l.JoinToken}}
	for _, m := range l.Machines() {
		secrets = append(secrets, lab.Secret{What: "the BMC's password of " + m.Name, Value: m.BMC.Password})
	}
	return secrets
}

// installedToken is the join token in the user data that was written to a machine.
func installedToken(t *testing.T, l *lab.Lab, n string) string {
	t.Helper()
	name := l.MachineOf(n)
	m := l.Machine(name)
	onDisk := disk.NewMemory(m.Disks[0].Info, disk.Means{})
	if _, err := onDisk.WriteAt(l.Disk(name, 0), 0); err != nil {
		t.Fatal(err)
	}
	config, err := sim.ReadAgentConfig(onDisk)
	must(t, err)
	return config.Token
}

// answers is what the API tells of everything.
func answers(t *testing.T, l *lab.Lab, nodes []string) map[string][]byte {
	t.Helper()
	paths := []string{
		"/v1/nodes", "/v1/workflows", "/v1/agents", "/v1/join-tokens", "/v1/profiles", "/v1/images", "/v1/doctor", "/metrics", "/v1/tenants",
		"/v1/pools", "/v1/sites", "/v1/principals",
	}
	for _, n := range nodes {
		paths = append(paths, "/v1/nodes/"+n, "/v1/nodes/"+n+"/history", "/v1/nodes/"+n+"/replay", "/v1/nodes/"+n+"/workflows",
			"/v1/workflows/"+l.Workflow(n).ID)
	}
	all := map[string][]byte{}
	for _, path := range paths {
		r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, l.URL()+path, nil)
		must(t, err)
		r.Header.Set("Authorization", "Bearer "+l.Token)
		answer, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
		must(t, err)
		text, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close() // it was read
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Errorf("%s: %s, %v", path, answer.Status, err)
		}
		all["the answer of "+path] = text
	}
	return all
}
