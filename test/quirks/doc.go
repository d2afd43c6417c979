// Package quirks proves that the Redfish driver keeps what the faults of real controllers taught: each test runs the
// driver over TLS against a controller of its own that behaves as one of the public reports tells. The names of the
// subtests begin with the row of the list of faults (R01 to R122).
//
// Server is such a controller: documents written by hand, state that changes, and rules that make it err. It errs as
// little as a test asks for, and is strict otherwise: a property that it does not show can't be set, a tag that does not
// match is refused, media do not go into a drive that holds some.
//
// # Captured machines
//
// The driver is also run over trees that were captured from real machines, which are no part of this repository. Each is
// an archive (<name>.tar.gz) that maps a URL path to <path>/index.json. With METAL_TEST_CAPTURES=<directory> the tests
// over them are part of the run, and fail where an archive is missing; without it they do not exist.
//
//	METAL_TEST_CAPTURES=../shared/captures go test ./test/quirks
//
// A relative directory begins at the top of the module.
//
// # Rows without a test here
//
//	R54        the second boot is the proof   the workflow waits for the machine's agent; the driver can't see a boot
//	R71        power sync during an update    the lease of the node is the control plane's, the driver has none
//	R121       off before eject               two calls of the workflow, which orders them
//	R125-R127  accounts and their rotation    the driver changes no accounts
//	R131-R133  IPMI                           another driver
//
// Of R45, R91 and R106 the driver's part is tested: no boot device of ours becomes UefiTarget, an inventory never holds an
// empty MAC, and there is no controller without an address. What is unique is the domain's to say.
package quirks
