package e2e

import (
	"testing"

	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/adapters/sim"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/test/lab"
)

// wrongPassword is a machine that is handed over with the password of another: the right one is given, and its workflow goes on.
func wrongPassword(t *testing.T, l *lab.Lab, m sim.Listed) {
	right := contract.Credentials{Username: m.BMC.Username, Password: m.BMC.Password}
	m.BMC.Password = "of another machine"
	node := l.EnrollOne(m)
	failed(t, l, node, "enrolling", fault.DriverError, "verify")
	n, err := l.Client.SetBMC(t.Context(), node, contract.BMCChange{Credentials: &right})
	must(t, err)
	if n.BMC == nil || !n.BMC.CredentialsSet || n.Provision != "failed" {
		t.Errorf("it shows %+v in %s", n.BMC, n.Provision)
	}
	_, err = l.Client.RetryWorkflow(t.Context(), l.Workflow(node).ID, contract.Retry{})
	must(t, err)
	l.WaitState(node, "ready")
}
