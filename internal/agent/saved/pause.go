package saved

import "time"

// PauseFile is the pause of a machine, below StateDir.
const PauseFile = "pause.json"

// Pause is a time in which the agent begins no change and no repair by itself.
type Pause struct {
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until"`
	Reason string    `json:"reason,omitempty"`
}

// Pause returns the pause at a time; nil for none.
func (r Records) Pause(now time.Time) (*Pause, error) {
	var p Pause
	found, err := r.Load(PauseFile, &p)
	if err != nil || !found || !now.Before(p.Until) {
		return nil, err
	}
	return &p, nil
}
