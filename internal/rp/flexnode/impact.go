package flexnode

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/Azure/AKSFlexNode/internal/config"
)

// Change lists the settings for which an agent must restart or drain to get from one configuration
// to another. The same settings with the same new values are the same change, on whatever node.
type Change struct {
	// ID names it by its content; "" is one that neither restarts nor drains.
	ID string `json:"id"`
	// Settings lists the settings that differ, as path=value, in order, at most maxSettings.
	Settings []string `json:"settings,omitempty"`
}

// ChangeOf returns the change from one configuration to another.
func ChangeOf(from, to map[string]any) Change {
	var c Change
	for _, d := range config.Disturbing(from, to) {
		value := ""
		if d.To != nil {
			value = *d.To
		}
		c.Settings = append(c.Settings, d.Path+"="+value)
	}
	if len(c.Settings) == 0 {
		return c
	}
	sum := sha256.Sum256([]byte(strings.Join(c.Settings, "\n")))
	c.ID, c.Settings = hex.EncodeToString(sum[:6]), c.Settings[:min(len(c.Settings), maxSettings)]
	for i, s := range c.Settings {
		c.Settings[i] = strings.ToValidUTF8(s[:min(len(s), maxSetting)], "")
	}
	return c
}
