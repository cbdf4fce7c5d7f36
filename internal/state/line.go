package state

// Line is one change. For drift, Expected is what the applied configuration says and Found what is.
type Line struct {
	Step     Step   `json:"step"`
	Key      Key    `json:"key"`
	Action   string `json:"action"`
	Expected string `json:"expected"`
	Found    string `json:"found"`
}

// Lines returns a plan as people and programs read it.
func Lines(plan Plan) []Line {
	list := make([]Line, len(plan))
	for i, c := range plan {
		list[i] = Line{
			Step: c.Step, Key: c.To.Key(), Action: Describe(c),
			Expected: Show(c.To), Found: Show(c.From),
		}
		if c.Restart {
			list[i].Found = "restart pending"
		}
	}
	return list
}
