package stories

import (
	"slices"
	"testing"
)

// The log redacts the secrets of a configuration that arrives while the agent runs, before anything
// else is done with it.
func TestLogLearnsWhatArrives(t *testing.T) {
	const late = "zzzzzz.zzzzzzzzzzzzzzzz"
	followed(t, func(t *testing.T, s *serviceStory, _ string) {
		a := s.agent()
		var known []string
		a.Learn = func(secrets ...string) { known = append(known, secrets...) }
		f := s.following(a, nil)
		offer := s.delivery("8", monitored, func(c map[string]any) {
			c["azure"].(map[string]any)["bootstrapToken"] = map[string]any{"token": late}
		})
		if slices.Contains(known, late) {
			t.Fatal("it is known too early")
		}
		if err := f.Receive(t.Context(), offer.Bundle); err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(known, late) {
			t.Error("the log would show the secret")
		}
	})
}
