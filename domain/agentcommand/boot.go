package agentcommand

// LeaseLost is why an order about network boot ended whose agent lost the boot lease of its site. Nothing is lost with it: it is
// asked for again, of the agent that has the lease now.
const LeaseLost = "the agent that had it has lost the boot lease of its site"

// Boots reports whether a kind is for the agent with the boot lease of a site alone.
func (k KindName) Boots() bool { return k == BootEntrySet || k == BootEntryClear }

// AgentLost is why an order ended whose agent is not heard of any more, while another one of its site is. It changed nothing, and
// is asked for again, of the other one.
const AgentLost = "the agent that had it is not heard of any more; another one of its site is asked"
