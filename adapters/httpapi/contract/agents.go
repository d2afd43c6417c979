package contract

import "time"

// NewJoinToken is a token to be made, with which agents join.
type NewJoinToken struct {
	Role    string            `json:"role" doc:"site, node, discovery or provisioned"`
	Site    string            `json:"siteId,omitempty" doc:"role site: the site whose agent joins"`
	Pool    string            `json:"poolId,omitempty" doc:"role node: the pool that the new node is put into"`
	Node    string            `json:"nodeId,omitempty" doc:"roles discovery and provisioned: the node that is joined as"`
	TTL     int               `json:"ttlSeconds,omitempty" minimum:"1" doc:"how long it is good; left out: an hour"`
	MaxUses int               `json:"maxUses,omitempty" minimum:"1" doc:"how many agents may join with it; left out: one"`
	Expect  *JoinExpect       `json:"expect,omitempty" doc:"what machine it is for: any other is refused, the token unspent"`
	Labels  map[string]string `json:"labels,omitempty" doc:"role node: of the new node"`
}

// JoinExpect is the machine that a token is for. What is left out is not looked at.
type JoinExpect struct {
	MACs        []string `json:"macs,omitempty" doc:"one of the machine's must be among them"`
	ProductUUID string   `json:"productUuid,omitempty"`
	Serial      string   `json:"serial,omitempty"`
	GPUUUID     string   `json:"gpuUuid,omitempty"`
}

// JoinToken is a token with which agents join. The token itself is given when it is made, and never again.
type JoinToken struct {
	ID        string      `json:"joinTokenId"`
	Token     string      `json:"token,omitempty" doc:"only in the answer to its creation"`
	Gateway   string      `json:"gateway,omitempty" doc:"URL at which agents join; only beside the token"`
	CASHA256  string      `json:"caSha256,omitempty" doc:"of the authority's certificate, by which agents know the gateway; beside the token"`
	Role      string      `json:"role"`
	Tenant    string      `json:"tenantId"`
	Site      string      `json:"siteId"`
	Pool      string      `json:"poolId,omitempty"`
	Node      string      `json:"nodeId,omitempty"`
	Expect    *JoinExpect `json:"expect,omitempty"`
	ExpiresAt time.Time   `json:"expiresAt"`
	MaxUses   int         `json:"maxUses"`
	Uses      int         `json:"uses"`
	Revoked   bool        `json:"revoked"`
	Version   uint64      `json:"version"`
	Position  uint64      `json:"position"`
	UpdatedAt time.Time   `json:"updatedAt"`
}

// Agent is an agent with its last sign of life.
type Agent struct {
	ID          string     `json:"agentId"`
	Tenant      string     `json:"tenantId"`
	Site        string     `json:"siteId"`
	Node        string     `json:"nodeId,omitempty"`
	Role        string     `json:"role" doc:"site, ramdisk or node: of its newest session"`
	Name        string     `json:"name,omitempty"`
	Software    string     `json:"softwareVersion,omitempty"`
	BootID      string     `json:"bootId,omitempty"`
	MACs        []string   `json:"macs,omitempty" doc:"as it claimed when it joined"`
	ProductUUID string     `json:"productUuid,omitempty"`
	Serial      string     `json:"serial,omitempty"`
	JoinedAt    time.Time  `json:"joinedAt"`
	SessionAt   *time.Time `json:"sessionAt,omitempty"`
	LastContact *time.Time `json:"lastContact,omitempty"`
	Connected   bool       `json:"connected" doc:"heard of lately, and not gone on purpose"`
	Doing       []string   `json:"doing,omitempty" doc:"ids of the agent commands that it works on"`
	Boot        *AgentBoot `json:"boot,omitempty" doc:"of a site's agent that serves network boot, or would"`
	Revoked     string     `json:"revoked,omitempty" doc:"why its certificates were taken"`
}

// AgentBoot is the boot server of a site's agent.
type AgentBoot struct {
	URL   string     `json:"url" doc:"where machines reach it"`
	Until *time.Time `json:"until,omitempty" doc:"it has the boot lease of its site, until then if it is not heard of; absent: it waits"`
}
