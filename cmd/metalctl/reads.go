package main

import (
	"github.com/spf13/cobra"
)

// addReads adds everything that only looks.
func addReads(root *cobra.Command, a *app) {
	get := &cobra.Command{
		Use: "get", Short: "Show one thing", GroupID: groupReads, Long: withExits("Shows one thing, by its id.", remoteExits),
	}
	get.AddCommand(newGetNode(a), newGetTenant(a), newGetSite(a), newGetPool(a), newGetPrincipal(a))
	list := &cobra.Command{
		Use: "list", Short: "List things", GroupID: groupReads,
		Long: withExits("Lists things, newest first: those that the credential may see.", remoteExits),
	}
	list.AddCommand(newListNodes(a, "list "), newListTenants(a), newListSites(a), newListPools(a), newListPrincipals(a))
	nodes := newListNodes(a, "")
	nodes.Short, nodes.GroupID = "Short for list nodes", groupReads
	root.AddCommand(get, list, nodes)
	root.AddCommand(newWorkflow(a), newAgent(a), newProfile(a), newImage(a))
	for _, cmd := range []*cobra.Command{
		newWatch(a), newHistory(a), newWhy(a), newAttestation(a), newReplay(a), newEvents(a), newDoctor(a), newAudit(a),
	} {
		cmd.GroupID = groupReads
		root.AddCommand(cmd)
	}
}
