package flexnode

import (
	"fmt"
	"slices"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
)

// What an agent may say of its node.
const (
	maxConditions = 32
	maxText       = 1024
	maxVersion    = 64
)

// CheckReport checks what an agent says of its node.
func CheckReport(r api.Report) Problems {
	var problems Problems
	if len(r.Conditions) > maxConditions {
		problems.add("conditions", "There are %d conditions; at most %d are kept.",
			len(r.Conditions), maxConditions)
	}
	if !isConfigVersion(r.AppliedConfigVersion) {
		problems.add("appliedConfigVersion", "This is not a configVersion.")
	}
	if len(r.AgentVersion) > maxVersion {
		problems.add("agentVersion", "This is longer than %d characters.", maxVersion)
	}
	for i, c := range r.Conditions {
		at := fmt.Sprintf("conditions[%d].", i)
		if !isConditionType(c.Type) {
			problems.add(at+"type",
				"A condition's type is 1 to 63 letters and digits, a letter first.")
		}
		if !slices.Contains([]string{"True", "False", "Unknown"}, c.Status) {
			problems.add(at+"status", "A condition's status is True, False or Unknown.")
		}
		if len(c.Reason) > maxText || len(c.Message) > maxText {
			problems.add(at+"message", "Reason and message have at most %d characters.", maxText)
		}
	}
	return problems
}
