// Package chaos lets the control plane die, lose races and be aborted at every single append of a workflow, one after the
// other, and checks that it ends as if nothing had happened.
package chaos
