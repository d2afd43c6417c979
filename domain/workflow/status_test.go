package workflow_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/better-compute/metal/domain/workflow"
)

var update = flag.Bool("update", false, "write the generated documents")

const statusDocument = "../../schema/workflow-states.md"

func TestTheTableIsWhole(t *testing.T) {
	for _, status := range []workflow.Status{
		workflow.Pending, workflow.Running, workflow.Paused, workflow.Failing, workflow.Cancelling, workflow.Succeeded,
		workflow.Failed, workflow.Cancelled,
	} {
		row := workflow.InfoOf(status)
		if row.Meaning == "" {
			t.Errorf("%s is not in the table", status)
		}
		if row.Terminal && status.Active() {
			t.Errorf("%s is terminal and active", status)
		}
	}
}

func TestStatusDocumentIsCurrent(t *testing.T) {
	want := statusMarkdown()
	if *update {
		if err := os.WriteFile(statusDocument, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(statusDocument)
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%s is not what the table says (%v): go test ./domain/workflow -run Document -update", statusDocument, err)
	}
}

func statusMarkdown() []byte {
	var b bytes.Buffer
	b.WriteString("# Workflow states\n\nGenerated from `domain/workflow/status.go` by its test. Do not edit.\n\n")
	b.WriteString("| state | terminal | legal | meaning |\n|---|---|---|---|\n")
	for _, row := range workflow.StatusTable {
		verbs := make([]string, len(row.Legal))
		for i, v := range row.Legal {
			verbs[i] = "`" + string(v) + "`"
		}
		terminal, legal := "", "–"
		if row.Terminal {
			terminal = "yes"
		}
		if len(verbs) > 0 {
			legal = strings.Join(verbs, ", ")
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", row.Status, terminal, legal, row.Meaning)
	}
	b.WriteString("\nAny other verb is `INVALID_STATE`, with the state, the verb and the legal verbs in the details.\n")
	return b.Bytes()
}
