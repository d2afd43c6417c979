// Package netns runs the site agent's network boot on a network of its own, made of network namespaces: real programs, real
// ports, a real DHCP client. It needs root, so it has the build tag netns and is no part of the default tests: make
// test-machine runs it, and it fails where it can't run.
package netns
