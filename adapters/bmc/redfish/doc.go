// Package redfish drives management controllers that speak Redfish, as they are rather than as the standard has them.
//
// Each operation discovers what the controller offers, chooses, sends, reads back and judges: what counts is what was read
// back, never what the controller answered. What worked is remembered in a small document (Learned) that shortens the next
// invocation; it holds no secret.
//
// Requests go through gofish's client over a transport of our own (wire.go), which bounds sizes, times and the number of
// requests at once, and keeps what gofish drops of a refused request. Documents are read leniently (document.go): real ones
// break the schemas' types. Sessions are made once per controller and credentials, shared, and logged out when idle.
package redfish
