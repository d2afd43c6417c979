package embed_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/better-compute/metal/adapters/eventstore/memory"
	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/agent"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/pool"
	"github.com/better-compute/metal/domain/principal"
	"github.com/better-compute/metal/domain/profile"
	"github.com/better-compute/metal/domain/profile/builtin"
	"github.com/better-compute/metal/processmanagers/provision"
	"github.com/better-compute/metal/processmanagers/steps"
	"github.com/better-compute/metal/processmanagers/workflow"
)

// nicFirmware is the payload of an agent command kind of one's own: the agent on the machine has a handler of the same name.
type nicFirmware struct {
	Branch string `json:"branch"`
}

// Check lists what is wrong with a payload.
func (f *nicFirmware) Check() []fault.Issue {
	if f.Branch == "" {
		return []fault.Issue{{Path: "branch", Message: "is needed"}}
	}
	return nil
}

// ownKinds are the agent command kinds that the program brings.
func ownKinds() []agentcommand.Kind {
	return []agentcommand.Kind{{
		Name: "acme.nicFirmware", RunsOn: []agentcommand.Role{agentcommand.RoleRamdisk}, Destructive: true,
		Payload: func() agentcommand.Payload { return &nicFirmware{} },
	}}
}

// approval is the input of a step of one's own.
type approval struct {
	Ticket string `json:"ticket" doc:"that the change was approved under"`
}

// ownSteps are the steps that the program brings: one that runs here, and one that an agent carries out.
func ownSteps(approved func(ticket string) (bool, error)) []steps.Step {
	return []steps.Step{
		steps.Define(profile.Spec{ID: "acme.approval", Timeout: time.Hour, Summary: "Waits until a change was approved."},
			func(_ context.Context, _ *steps.Context, in approval) (any, error) {
				yes, err := approved(in.Ticket) // may be asked again after a crash
				if err != nil {
					return nil, fault.Wrap(err, fault.Unavailable, "the change tracker is away")
				}
				if !yes {
					return nil, steps.NotReady(30 * time.Second)
				}
				return map[string]string{"ticket": in.Ticket}, nil
			}),
		steps.Agent(profile.Spec{
			ID: "acme.nicFirmware", RunsOn: profile.OnRamdisk, Command: "acme.nicFirmware", Timeout: 20 * time.Minute,
			Summary: "Brings the NIC to a firmware branch.",
		}, steps.Hooks[nicFirmware]{}),
	}
}

// ownProfile uses both.
const ownProfile = `{
	"id": "acme-host", "version": 1, "target": "metal", "role": "host",
	"steps": [
		{"use": "acme.approval", "id": "approval", "with": {"ticket": "CHG-7"}},
		{"use": "acme.nicFirmware", "id": "nic", "with": {"branch": "22.41"}, "when": "rack=7", "retries": 1}
	]
}`

// Example wires a control plane with steps, a profile and an agent command kind of the program's own, and deploys a machine
// with them. Nothing is registered behind the program's back: each list is handed over where it is used.
func Example() {
	kinds, err := agentcommand.Join(agentcommand.Kinds, ownKinds())
	check(err)
	asked := 0
	catalog, err := steps.NewCatalog(kinds, steps.Shipped(), ownSteps(func(string) (bool, error) {
		asked++
		return asked > 1, nil
	}))
	check(err)
	profiles, err := builtin.Profiles()
	check(err)
	own, err := profile.Parse([]byte(ownProfile))
	check(err)

	registry, err := commands.Registry()
	check(err)
	log := memory.New(registry)
	service := commands.New(log, everyone{}, vault{}, time.Now, kinds...)
	check(service.UseProfiles(catalog, append(profiles, own), nil))

	// metald hands the two process managers to processmanagers.NewWorkers with the table of wake-ups. Here they are called by
	// hand: by the node's id, as often as there is something to do.
	ports := steps.Ports{Nodes: workflow.Nodes{Service: service}}
	managers := []func(context.Context, string) (time.Duration, error){
		provision.New(service, catalog, ports, time.Now, slog.Default()).Reconcile,
		workflow.New(service, catalog, ports, time.Now, slog.Default()).Reconcile,
	}
	machine := ready(log)
	_, err = service.Deploy(context.Background(), operator(), machine, node.Profile{ID: "acme-host", Version: 1})
	check(err)
	for range 4 {
		for _, reconcile := range managers {
			_, err := reconcile(context.Background(), machine.String())
			check(err)
		}
		answer(log, service)
	}

	now, _, err := service.Node(context.Background(), machine)
	check(err)
	fmt.Println("the node is", now.Provision)
	ran, _, err := service.Workflow(context.Background(), now.LastWorkflow)
	check(err)
	for _, step := range ran.Steps {
		fmt.Println(step.ID, step.State, string(step.Result))
	}
	// Output:
	// nic firmware goes to 22.41
	// the node is deployed
	// approval succeeded {"ticket":"CHG-7"}
	// nic succeeded {"from":"22.36"}
}

// answer stands in for the agent in the ramdisk.
func answer(log event.Store, service *commands.Service) {
	ctx := context.Background()
	events, _, err := log.ReadAll(ctx, 0, []string{agentcommand.Requested{}.EventType()}, 100)
	check(err)
	for _, r := range events {
		asked := r.Event.(agentcommand.Requested)
		if c, _, err := service.AgentCommand(ctx, asked.AgentCommand); err != nil || c.Status.Settled() {
			continue
		}
		var payload nicFirmware
		check(json.Unmarshal(asked.Payload, &payload))
		fmt.Println("nic firmware goes to", payload.Branch)
		who := agent.Of(asked.Node)
		_, err := service.HandOutAgentCommand(ctx, operator(), asked.AgentCommand, who, "boot-1")
		check(err)
		_, err = service.SettleAgentCommand(ctx, operator(), asked.AgentCommand, agentcommand.Settle{
			Agent: who, BootID: "boot-1", Status: agentcommand.Succeeded, Result: json.RawMessage(`{"from": "22.36"}`),
		})
		check(err)
	}
}

// ready puts a machine into the log that was enrolled, inspected and wiped.
func ready(log event.Store) id.Node {
	n, in := id.Of[id.Node](uuid.Must(uuid.NewV7())), id.Of[id.Pool](uuid.Must(uuid.NewV7()))
	_, err := log.Append(context.Background(), pool.StreamOf(in), 0, event.Meta{}, pool.Created{
		Pool: in, Name: "rack7", Policy: pool.Policy{Agent: pool.AgentRequired},
	})
	check(err)
	_, err = log.Append(context.Background(), node.StreamOf(n), 0, event.Meta{}, node.Enrolled{
		Node: n, Pool: in, Name: "rack7-unit1", Labels: map[string]string{"rack": "7"},
		BMC: node.BMC{Driver: "redfish", Address: "https://10.0.0.10", TLS: node.TLSPolicy{Mode: node.TLSInsecure}},
	}, node.Moved{To: node.Ready})
	check(err)
	return n
}

func operator() commands.Call {
	return commands.Call{Actor: commands.Actor{System: true}, Command: uuid.Must(uuid.NewV7())}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// everyone may do everything: a real program hands over adapters/authz.
type everyone struct{}

func (everyone) Allow(commands.Actor, principal.Action, commands.Resource) error { return nil }

// vault keeps nothing: a real program hands over the sealed store.
type vault struct{}

func (vault) Put(_ context.Context, of uuid.UUID, _ []byte) (node.SecretRef, error) {
	return node.SecretRef("secret:" + of.String()), nil
}
func (vault) Delete(context.Context, node.SecretRef) error { return nil }
func (vault) Mint(of uuid.UUID) string                     { return of.String() }

// What is defined twice is refused when the program is wired, whoever came first: a step that took the name of disk.wipe would
// make every release look wiped.
func TestDuplicatesAreRefused(t *testing.T) {
	kinds, err := agentcommand.Join(agentcommand.Kinds, ownKinds())
	check(err)
	mine := ownSteps(nil)
	shadow := steps.Agent(profile.Spec{
		ID: "disk.wipe", RunsOn: profile.OnRamdisk, Command: "acme.nicFirmware", Timeout: time.Minute,
	}, steps.Hooks[nicFirmware]{})
	shipped, err := builtin.Profiles()
	check(err)
	for what, wire := range map[string]func() error{
		"a kind": func() error { _, err := agentcommand.Join(kinds, ownKinds()); return err },
		"a shipped kind": func() error {
			_, err := agentcommand.Join(agentcommand.Kinds, []agentcommand.Kind{{
				Name: agentcommand.DiskWipe, RunsOn: agentcommand.Roles, Payload: ownKinds()[0].Payload,
			}})
			return err
		},
		"a step":         func() error { _, err := steps.NewCatalog(kinds, steps.Shipped(), mine, mine); return err },
		"a shipped step": func() error { _, err := steps.NewCatalog(kinds, steps.Shipped(), []steps.Step{shadow}); return err },
		"a step whose kind nobody has": func() error {
			_, err := steps.NewCatalog(agentcommand.Kinds, steps.Shipped(), mine)
			return err
		},
		"a profile": func() error {
			catalog, err := steps.NewCatalog(kinds, steps.Shipped(), mine)
			check(err)
			service := commands.New(nil, everyone{}, vault{}, time.Now, kinds...)
			return service.UseProfiles(catalog, append(shipped, shipped[0]), nil)
		},
	} {
		if err := wire(); fault.CodeOf(err) != fault.InvalidConfig {
			t.Errorf("%s twice: %v", what, err)
		}
	}
}
