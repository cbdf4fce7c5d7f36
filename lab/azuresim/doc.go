// Package azuresim tests the simulated Azure with Azure's own clients.
package azuresim
