package contract

import "time"

// NewImage is a version of an image to be registered.
type NewImage struct {
	Tenant    string `json:"tenantId"`
	Name      string `json:"name"`
	Version   string `json:"version"`
	Digest    string `json:"digest" doc:"sha256:<hex> of the file as served"`
	Bytes     int64  `json:"bytes" doc:"of the file as served"`
	Format    string `json:"format" doc:"raw or qcow2, alone or with .gz, .xz or .zst"`
	URL       string `json:"url" doc:"http or https, without credentials"`
	Signature []byte `json:"signature" doc:"over the 32 bytes of the digest, base64: Ed25519, or ASN.1 ECDSA on P-256"`
	Public    bool   `json:"public,omitempty" doc:"every tenant may deploy it; the root tenant's to say"`
}

// Image is one version of an image in a tenant's catalog. It never changes.
type Image struct {
	ID           string    `json:"imageId"`
	Tenant       string    `json:"tenantId"`
	Public       bool      `json:"public" doc:"every tenant may deploy it"`
	Name         string    `json:"name"`
	ImageVersion string    `json:"imageVersion"`
	Digest       string    `json:"digest" doc:"sha256:<hex> of the file as served"`
	Bytes        int64     `json:"bytes"`
	Format       string    `json:"format"`
	URL          string    `json:"url"`
	Signer       string    `json:"signer" doc:"the name, among the tenant's signers, of the key that signed it"`
	Withdrawn    bool      `json:"withdrawn"`
	Reason       string    `json:"reason,omitempty" doc:"of the withdrawal"`
	RegisteredAt time.Time `json:"registeredAt"`
	Version      uint64    `json:"version" doc:"what If-Match compares"`
	Position     uint64    `json:"position"`
	UpdatedAt    time.Time `json:"updatedAt"`
}
