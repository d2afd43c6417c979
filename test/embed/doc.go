// Package embed shows what a program does that brings steps, profiles and agent command kinds of its own: the example is
// compiled and run with the tests.
package embed
