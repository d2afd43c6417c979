package schema

import "embed"

// Policies is the folder policies: what decides who may do what, in Cedar (https://docs.cedarpolicy.com), and the schema
// that an operator's own policies are checked against.
//
//go:embed policies/*.cedar policies/*.cedarschema
var Policies embed.FS
