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
	Connectivity      string            `json:"connectivity"`
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
