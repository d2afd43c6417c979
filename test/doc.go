// Package test holds what is tested across packages. Its own tests keep the shape of the house: who imports whom, where
// each library lives, what files are called.
package test
