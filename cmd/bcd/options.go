package main

import "github.com/better-compute/metal/cmd/program"

// environment: an option may be given as a flag, or as BCD_<NAME>; the flag wins. Secrets are given as files.
const environment program.Environment = "BCD_"
