package contract

import (
	"encoding/json"
	"time"

	"github.com/better-compute/metal/domain/node"
)

// Enrollment hands over a machine with a management controller.
type Enrollment struct {
	Pool            string            `json:"poolId" doc:"the pool that it joins"`
	Name            string            `json:"name,omitempty" doc:"up to 100 characters; left out: the node's id"`
	Labels          map[string]string `json:"labels,omitempty" doc:"up to 64"`
	BMC             BMCAccess         `json:"bmc"`
	MACs            []string          `json:"macs,omitempty" doc:"of the ports that may boot from the network, in any form"`
	HardwareProfile string            `json:"hardwareProfile,omitempty" doc:"over the pool's"`
}

// BMCAccess is how to reach a management controller.
type BMCAccess struct {
	Driver      string      `json:"driver,omitempty" doc:"left out: redfish"`
	Address     string      `json:"address" doc:"a host, host:port or https URL" example:"https://10.0.0.10"`
	Credentials Credentials `json:"credentials"`
	TLS         *TLSPolicy  `json:"tls,omitempty" doc:"left out: pin on first use"`
}

// BMCChange says how a management controller is reached from now on; what is left out stays.
type BMCChange struct {
	Address     string       `json:"address,omitempty" doc:"a host, host:port or https URL; only while nothing is under way on the machine"`
	Credentials *Credentials `json:"credentials,omitempty"`
	TLS         *TLSPolicy   `json:"tls,omitempty"`
}

// Credentials are kept sealed and never given again.
type Credentials struct {
	Username string `json:"username" writeOnly:"true"`
	Password string `json:"password" writeOnly:"true"`
}

// TLSPolicy says how a controller's certificate is trusted.
type TLSPolicy struct {
	Mode        string `json:"mode,omitempty" doc:"pin-on-first-use (default), pinned, system-ca, ca or insecure"`
	Fingerprint string `json:"fingerprint,omitempty" doc:"with mode pinned: SHA-256 of the certificate, hexadecimal"`
	CA          string `json:"ca,omitempty" doc:"with mode ca: a PEM certificate"`
}

// Deploy pins a version of a profile.
type Deploy struct {
	Profile string `json:"profileId"`
	Version int    `json:"profileVersion"`
}

// Wipe says how the disks are made empty.
type Wipe struct {
	Method string `json:"wipe,omitempty" doc:"none (undeploy only), quick (default), secure-erase or crypto-erase"`
}

// Reason says why, in up to 512 characters.
type Reason struct {
	Reason string `json:"reason,omitempty"`
}

// Power asks for a power action.
type Power struct {
	Action string `json:"action" doc:"on, off, graceful, cycle or reset"`
}

// Certificate names the certificate of a management controller.
type Certificate struct {
	Fingerprint string `json:"fingerprint" doc:"its SHA-256, 64 lower-case hex digits"`
}

// Maintenance turns maintenance on or off.
type Maintenance struct {
	On     bool   `json:"on"`
	Reason string `json:"reason,omitempty"`
}

// Node is a machine as callers see it. It holds no credential. With query fields, only those fields are there.
type Node struct {
	ID                string            `json:"nodeId"`
	Tenant            string            `json:"tenantId"`
	Site              string            `json:"siteId"`
	Pool              string            `json:"poolId"`
	Name              string            `json:"name"`
	Labels            map[string]string `json:"labels,omitempty"`
	Provision         string            `json:"provisionState"`
	Role              string            `json:"role,omitempty"`
	Maintenance       bool              `json:"maintenance"`
	MaintenanceReason string            `json:"maintenanceReason,omitempty"`
	Cordoned          bool              `json:"cordoned"`
	CordonReason      string            `json:"cordonReason,omitempty"`
	Schedulable       bool              `json:"schedulable" doc:"the state allows work; no maintenance or cordon forbids it"`
	Connectivity      string            `json:"connectivity" doc:"connected, disconnected or unknown: of the machine's agent, now"`
	Agent             *NodeAgent        `json:"agent,omitempty" doc:"absent: none ever joined, or it was revoked"`
	Power             string            `json:"power" doc:"on, off or unknown, as last observed"`
	PowerAction       string            `json:"powerAction,omitempty" doc:"asked for and not yet observed"`
	PowerError        *node.Failure     `json:"powerError,omitempty" doc:"why the newest power action came to nothing"`
	BMC               *BMC              `json:"bmc,omitempty" doc:"absent: adopted without one"`
	MACs              []string          `json:"macs" nullable:"false"`
	Hardware          *node.Inventories `json:"hardware,omitempty"`
	HardwareProfile   string            `json:"hardwareProfile,omitempty" doc:"over the pool's"`
	Profile           *node.Profile     `json:"profile,omitempty" doc:"of the deploy"`
	Workflow          string            `json:"workflowId,omitempty" doc:"the active one"`
	RescueUp          bool              `json:"rescueUp,omitempty"`
	Unrescuing        bool              `json:"unrescuing,omitempty"`
	FailedFrom        string            `json:"failedFrom,omitempty"`
	LastError         *node.Failure     `json:"lastError,omitempty"`
	ReleaseUnverified bool              `json:"releaseUnverified,omitempty" doc:"ready without a verified wipe, by policy"`
	WipeVerified      bool              `json:"wipeVerified" doc:"of every disk, since they were last written"`
	Version           uint64            `json:"version" doc:"what If-Match compares"`
	Position          uint64            `json:"position" doc:"of the newest event in this view"`
	UpdatedAt         time.Time         `json:"updatedAt"`
}

// BMC is what a caller sees of a management controller.
type BMC struct {
	Driver         string          `json:"driver"`
	Address        string          `json:"address"`
	TLS            BMCTLS          `json:"tls"`
	CredentialsSet bool            `json:"credentialsSet"`
	Fingerprint    string          `json:"fingerprint,omitempty" doc:"of the certificate that was pinned when it was first seen"`
	System         string          `json:"system,omitempty" doc:"which of the controller's systems the machine is"`
	Quirks         json.RawMessage `json:"quirks,omitempty" doc:"what its driver learned about it"`
}

// BMCTLS says how a controller's certificate is trusted.
type BMCTLS struct {
	Mode        string `json:"mode"`
	Fingerprint string `json:"fingerprint,omitempty"`
}

// NodeAgent is the agent of a machine: in its ramdisk, or in its installed OS.
type NodeAgent struct {
	ID          string     `json:"agentId"`
	Role        string     `json:"role" doc:"ramdisk or node: where it ran last"`
	LastContact *time.Time `json:"lastContact,omitempty"`
}

// Attestation is the newest wipe of a machine's disks that an agent attested, with all that is needed to check it.
type Attestation struct {
	Node         string         `json:"nodeId"`
	Method       string         `json:"method" doc:"as asked: quick, secure-erase or crypto-erase"`
	Disks        []AttestedDisk `json:"disks" nullable:"false"`
	RecordedAt   time.Time      `json:"recordedAt"`
	Position     uint64         `json:"position" doc:"of node.wipe.attested in the log"`
	Stands       bool           `json:"stands" doc:"nothing was put on the disks since, by all that the control plane did"`
	Complete     bool           `json:"complete" doc:"it stands, and covers every disk of the latest inventory, each read back"`
	Workflow     string         `json:"workflowId"`
	AgentCommand string         `json:"agentCommandId"`
	Agent        string         `json:"agentId"`
	BootID       string         `json:"bootId" doc:"of the ramdisk that did it"`
	Certificate  string         `json:"certificate" doc:"SHA-256 of the agent's certificate, hexadecimal"`
	PublicKey    []byte         `json:"publicKey,omitempty" doc:"of the certificate: Ed25519, base64"`
	NotBefore    *time.Time     `json:"notBefore,omitempty" doc:"of the certificate"`
	NotAfter     *time.Time     `json:"notAfter,omitempty"`
	SignedAt     time.Time      `json:"signedAt" doc:"by the agent's clock"`
	Signed       []byte         `json:"signed" doc:"what was signed, rebuilt from the log, base64; schema/agent-protocol.md says how"`
	SignedDigest string         `json:"signedDigest" doc:"SHA-256 of signed, hexadecimal"`
	ResultDigest string         `json:"resultDigest" doc:"SHA-256 of the agent's result as stored, hexadecimal"`
	Signature    []byte         `json:"signature" doc:"Ed25519 over signed, base64"`
	Verified     bool           `json:"verified" doc:"checked now: the signature holds, and the disks are those of the signed result"`
	Problem      string         `json:"problem,omitempty" doc:"why it is not verified"`
}

// AttestedDisk is what a wipe did to one disk.
type AttestedDisk struct {
	Path     string `json:"path,omitempty" doc:"as the kernel named it then"`
	WWN      string `json:"wwn,omitempty"`
	Model    string `json:"model,omitempty"`
	Serial   string `json:"serial,omitempty"`
	Bytes    int64  `json:"bytes,omitempty"`
	Method   string `json:"method" doc:"as done"`
	By       string `json:"by,omitempty" doc:"what did it, such as nvme-format, ata-security-erase or overwrite"`
	ReadBack bool   `json:"readBack" doc:"fixed and sampled blocks were read back empty"`
	Reason   string `json:"reason,omitempty" doc:"why not"`
}
