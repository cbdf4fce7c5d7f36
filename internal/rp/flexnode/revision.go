package flexnode

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/config"
)

// Revision is one configuration of a node, rendered once and never changed. It has no secrets. Its
// text is three layers, one over the other: the settings that the operator of the provider gives
// every node, the facts that the cluster's nodes receive, and the node's own settings. The first
// two are shared by many nodes and named by their content.
type Revision struct {
	// Version is the configVersion: max(now in Unix seconds, the previous one + 1).
	Version  int64  `json:"version"`
	Defaults string `json:"defaults,omitempty"`
	Facts    string `json:"facts"`
	// Own is canonical JSON: compact, with sorted names.
	Own json.RawMessage `json:"own"`
	// Desired holds the owner's settings of that time, without secrets.
	Desired *Desired `json:"desired,omitempty"`
	// SecretVersion is the version of the client secret that goes with it; 0 is none.
	SecretVersion int64     `json:"secretVersion,omitempty"`
	Created       time.Time `json:"created"`
	// By is its author, Why is "put", WhyFacts or "rollback", Repeats the version rolled back to.
	By       string `json:"by,omitempty"`
	Why      string `json:"why"`
	Repeats  int64  `json:"repeats,omitempty"`
	Renderer string `json:"renderer,omitempty"` // version of the program
	// Signed proves to agents that the provider has made the revision.
	Signed *Signed `json:"signed,omitempty"`
	// Content is Content of a new revision's configuration; nil for one that was read.
	Content []byte `json:"-"`
}

// Signed is a signature of a revision or tombstone by a key of the ring, in an epoch.
type Signed struct {
	Epoch     int64  `json:"epoch"`
	Time      int64  `json:"time"` // Unix seconds
	Key       string `json:"key"`
	Signature []byte `json:"signature"`
}

// WhyFacts is the Why of a revision made because the cluster's facts have changed.
const WhyFacts = "facts"

// ShownVersion returns a configVersion as callers see it; "" for none.
func ShownVersion(version int64) string {
	if version == 0 {
		return ""
	}
	return strconv.FormatInt(version, 10)
}

// NextVersion returns the configVersion after a previous one.
func NextVersion(previous int64, now time.Time) int64 { return max(now.Unix(), previous+1) }

// ContentID returns the id of a layer, a digest of its content.
func ContentID(content []byte) string {
	return fmt.Sprintf("%.16x", sha256.Sum256(content))
}

// ShownRevision returns a revision of a node as callers see it. applied is the one that runs.
func ShownRevision(n Node, r *Revision, applied int64) api.Revision {
	return api.Revision{
		ConfigVersion: ShownVersion(r.Version), Repeats: ShownVersion(r.Repeats),
		Created: r.Created, CreatedBy: r.By, Reason: r.Why, Desired: r.Version == n.Revision,
		Assigned: r.Version == n.Assigned, Applied: r.Version == applied, Failed: r.Version == n.Failed,
	}
}

// listedChanges limits the changed paths of a revision in a list.
const listedChanges = 20

// Summarize adds the changes of a revision to it: their number and first paths.
func Summarize(r *api.Revision, changes []api.Change) {
	r.ChangeCount = len(changes)
	for _, c := range changes[:min(len(changes), listedChanges)] {
		r.Changed = append(r.Changed, c.Path)
	}
}

// ReadDiff reads the versions in a diff request; 0 for one that the caller leaves open.
func ReadDiff(ask api.DiffRequest) (from, to int64, problems Problems) {
	from, to = readVersion("from", ask.From, &problems), readVersion("to", ask.To, &problems)
	return from, to, problems
}

// ReadRollback reads the version in a rollback request.
func ReadRollback(ask api.RollbackRequest) (to int64, problems Problems) {
	to = readVersion("configVersion", ask.ConfigVersion, &problems)
	problems.unless(ask.ConfigVersion != "", "configVersion",
		"The configVersion to roll back to is required.")
	return to, problems
}

func readVersion(at, text string, problems *Problems) int64 {
	if text == "" {
		return 0
	}
	version, err := strconv.ParseInt(text, 10, 64)
	if err != nil || version <= 0 {
		problems.add(at, "'%s' is not a configVersion.", shorten(text))
		return 0
	}
	return version
}

// Diff returns the differences between two configurations, ordered by path (node.labels["a.b/c"]),
// and the disruption of pods that they cause. A list is one value.
func Diff(from, to map[string]any) api.Diff {
	diff := api.Diff{Disruption: config.DisruptsNothing, Changes: []api.Change{}}
	for _, d := range config.Differences(from, to) {
		one := config.DisruptionOf(d, to)
		if one == config.Drain || diff.Disruption == config.DisruptsNothing {
			diff.Disruption = one
		}
		diff.Changes = append(diff.Changes,
			api.Change{Path: d.Path, From: d.From, To: d.To, Disruption: one})
	}
	return diff
}

// Change lists the settings for which an agent must restart or drain to get from one configuration
// to another. The same settings with the same new values are the same change, on whatever node.
type Change struct {
	// ID is a digest of its content; "" for a change that neither restarts nor drains.
	ID string `json:"id"`
	// Settings lists the settings that differ, as path=value, in order, at most maxSettings.
	Settings []string `json:"settings,omitempty"`
}

// ChangeOf returns the change from one configuration to another.
func ChangeOf(from, to map[string]any) Change {
	var c Change
	for _, d := range config.Disturbing(from, to) {
		c.Settings = append(c.Settings, d.Path+"="+*cmp.Or(d.To, new("")))
	}
	if len(c.Settings) == 0 {
		return c
	}
	c.ID = fmt.Sprintf("%.6x", sha256.Sum256([]byte(strings.Join(c.Settings, "\n"))))
	c.Settings = c.Settings[:min(len(c.Settings), maxSettings)]
	for i, s := range c.Settings {
		c.Settings[i] = strings.ToValidUTF8(s[:min(len(s), maxSetting)], "")
	}
	return c
}
