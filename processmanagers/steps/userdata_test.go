package steps_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"

	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/profile"
	"github.com/better-compute/metal/processmanagers/steps"
)

// render gives the stored document.
func (w *world) render(kind, template string) (string, error) {
	w.t.Helper()
	w.profile.UserData = &profile.UserData{Kind: kind, Template: template}
	result, err := w.run("userdata.render", ``)
	if err != nil {
		return "", err
	}
	var told map[string]string
	w.decode(result, &told)
	if told["kind"] != kind || !strings.HasPrefix(told["joinTokenId"], "jtk_") || len(told) != 3 {
		w.t.Errorf("result %s", result)
	}
	if kept := w.until[told["userDataRef"]].Sub(w.now); kept < 26*time.Hour || kept > 48*time.Hour {
		w.t.Errorf("the document, with a token that is good for two hours, is kept for %v", kept)
	}
	return w.secrets[told["userDataRef"]], nil
}

func (w *world) agentJSON() string {
	return `{"gateway":"https://gw.example:8443","caSha256":"` + strings.Repeat("ca", 32) + `","token":"` + theToken + `-1","nodeId":"` +
		w.node.ID.String() + `"}`
}

func TestCloudInit(t *testing.T) {
	w := newWorld(t)
	text, err := w.render("cloud-init", "")
	wants(t, "render", err, "", "")
	if !strings.HasPrefix(text, "#cloud-config\n") {
		t.Fatalf("%s", text)
	}
	var doc struct {
		Hostname   string
		WriteFiles []struct{ Path, Owner, Permissions, Content string } `yaml:"write_files"`
		RunCmd     [][]string                                           `yaml:"runcmd"`
	}
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if want := strings.ReplaceAll(w.node.ID.String(), "_", "-"); doc.Hostname != want {
		t.Errorf("hostname %q", doc.Hostname)
	}
	files := map[string]string{}
	for _, f := range doc.WriteFiles {
		files[f.Path] = f.Permissions + " " + f.Content
	}
	if got := files["/etc/bcd/agent.json"]; got != "0600 "+w.agentJSON() {
		t.Errorf("agent.json: %s", got)
	}
	if got := files["/etc/bcd/agent.sha256"]; got != "0644 "+strings.Repeat("ab", 32) {
		t.Errorf("agent.sha256: %s", got)
	}
	unit := files["/etc/systemd/system/bcd.service"]
	if !strings.HasPrefix(unit, "0644 [Unit]\n") || !strings.HasSuffix(unit, "WantedBy=multi-user.target\n") {
		t.Errorf("unit:\n%s", unit)
	}
	if diff := cmp.Diff([][]string{{"/usr/local/sbin/bcd-install"}}, doc.RunCmd); diff != "" {
		t.Errorf("runcmd:\n%s", diff)
	}
	if len(w.minted) != 1 || w.minted[0].Role != "provisioned" || w.minted[0].TTL.Hours() != 2 {
		t.Errorf("minted %+v", w.minted)
	}
	w.config.AgentURL, w.config.AgentSHA = "", ""
	text, err = w.render("cloud-init", "")
	if wants(t, "without a download", err, "", ""); strings.Contains(text, "runcmd") {
		t.Errorf("something is run:\n%s", text)
	}
}

func TestIgnition(t *testing.T) {
	w := newWorld(t)
	text, err := w.render("ignition", "")
	wants(t, "render", err, "", "")
	var doc struct {
		Ignition struct{ Version string }
		Storage  struct {
			Files []struct {
				Path     string
				Mode     int
				Contents struct {
					Source       string
					Verification struct{ Hash string }
				}
			}
		}
		Systemd struct {
			Units []struct {
				Name    string
				Enabled bool
			}
		}
	}
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	if doc.Ignition.Version != "3.4.0" || len(doc.Systemd.Units) != 1 || !doc.Systemd.Units[0].Enabled {
		t.Errorf("%s", text)
	}
	for _, f := range doc.Storage.Files {
		switch f.Path {
		case "/etc/bcd/agent.json":
			encoded, _ := strings.CutPrefix(f.Contents.Source, "data:;base64,")
			plain, err := base64.StdEncoding.DecodeString(encoded)
			if err != nil || string(plain) != w.agentJSON() || f.Mode != 0o600 {
				t.Errorf("agent.json %o: %s, %v", f.Mode, plain, err)
			}
		case "/usr/local/bin/bcd":
			if f.Contents.Source != w.config.AgentURL || f.Contents.Verification.Hash != "sha256-"+w.config.AgentSHA {
				t.Errorf("bcd: %+v", f)
			}
		}
	}
}

func TestTemplatesOfTheProgram(t *testing.T) {
	w := newWorld(t)
	w.config.Templates = map[string]steps.Template{
		"talos.yaml": steps.Text("host: {{hostname}}\ntoken: {{ joinToken }}\nurl: {{controlPlaneUrl}}\n"),
		"broken":     steps.Func(func(steps.Variables) ([]byte, error) { return nil, errors.New("broken") }),
	}
	text, err := w.render("talos", "talos.yaml")
	wants(t, "render", err, "", "")
	want := "host: " + strings.ReplaceAll(w.node.ID.String(), "_", "-") + "\ntoken: " + theToken + "-1\nurl: https://gw.example:8443\n"
	if text != want {
		t.Errorf("%s", text)
	}
	_, err = w.render("talos", "")
	wants(t, "a kind without a template", err, fault.InvalidConfig, "")
	_, err = w.render("cloud-init", "nobody.yaml")
	wants(t, "a name that nobody registered", err, fault.InvalidConfig, "")
	if _, err = w.render("talos", "broken"); err == nil || fault.CodeOf(err) != fault.Internal {
		t.Errorf("broken: %v", err)
	}
	w.profile.UserData = nil
	_, err = w.run("userdata.render", ``)
	wants(t, "no user data", err, fault.InvalidConfig, "")
	w.config.AgentSHA = ""
	_, err = w.render("cloud-init", "")
	wants(t, "an agent that can't be checked", err, fault.InvalidConfig, "")
	w.config.AgentURL, w.config.CASHA256 = "", ""
	_, err = w.render("ignition", "")
	wants(t, "a gateway that can't be checked", err, fault.InvalidConfig, "")
}

func TestRenderTemplate(t *testing.T) {
	values := map[string]string{"a": "1", "b": "x{y}", "line": "x\ny", "open": "{{a}}", "none": "", "para": "x\u2029y"}
	for text, want := range map[string]string{
		"": "", "plain } {": "plain } {", "{{a}}-{{ b }}": "1-x{y}", "{{a}}{{a}}": "11", "}}": "}}",
	} {
		got, err := steps.RenderTemplate(text, values)
		if err != nil || string(got) != want {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	for text, code := range map[string]fault.Code{
		"{{c}}": fault.InvalidConfig, "{{none}}": fault.InvalidConfig, "{{a": fault.InvalidConfig, "{{}}": fault.InvalidConfig,
		"{{line}}": fault.InvalidInput, "{{open}}": fault.InvalidInput, "{{para}}": fault.InvalidInput,
	} {
		if got, err := steps.RenderTemplate(text, values); fault.CodeOf(err) != code {
			t.Errorf("%q: %q, %v, want %s", text, got, err, code)
		}
	}
}
