// Package packaging holds the files that are installed with the programs: systemd units and example
// configurations.
package packaging

import (
	"bytes"
	"compress/gzip"
	"embed"
)

// Files holds the systemd units, the provider's user, the example configurations of the agent that
// docs/reference/configuration.md shows, and the setting with which unattended-upgrades upgrades
// our packages.
//
//go:embed examples systemd sysusers.d unattended-upgrades
var Files embed.FS

// AgentUnit is the name of the agent's unit, in the directory systemd of Files.
const AgentUnit = "aks-flex-node-agent.service"

// Gzip compresses data as gzip -9n does.
func Gzip(data []byte) []byte {
	var out bytes.Buffer
	z, _ := gzip.NewWriterLevel(&out, gzip.BestCompression) // it is a level
	_, _ = z.Write(data)                                    // a buffer takes everything
	_ = z.Close()
	return out.Bytes()
}

// Project is the main module, whose programs are packaged.
const Project = "github.com/Azure/AKSFlexNode"
