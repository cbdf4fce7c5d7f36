package inspect

import (
	"context"
	"errors"
	"io/fs"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/wait"
)

// arcMachine is a machine whose Arc agent takes its time.
type arcMachine struct {
	Reader
	takes time.Duration
	says  string
	asked int
}

func (m *arcMachine) ReadFile(string) ([]byte, error) { return nil, fs.ErrNotExist }

func (m *arcMachine) Run(
	ctx context.Context, _ time.Duration, _ []byte, _ ...string,
) ([]byte, error) {
	m.asked++
	if !wait.Sleep(ctx, m.takes) {
		return nil, ctx.Err()
	}
	return []byte(m.says), nil
}

// An Arc agent that hangs holds no check up for longer than an answer may take, and is not asked by
// each of them. One that is quick is, and a machine that has to be enrolled is looked at each time.
func TestSlowArcAgent(t *testing.T) {
	const lost = `{"status": "Expired"}`
	for name, tt := range map[string]struct {
		machine arcMachine
		asked   int
		takes   time.Duration
		err     error
	}{
		"hangs": {arcMachine{takes: time.Hour}, 2, AnswerTimeout, context.DeadlineExceeded},
		"quick": {arcMachine{says: lost}, 21, 0, nil},
		"lost":  {arcMachine{takes: 2 * arcSlow, says: lost}, 21, 2 * arcSlow, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := &tt.machine
			h := &Node{Env: &Env{Reader: m}, Saved: saved.New(m)}
			c := config.Config{Azure: config.Azure{Arc: &config.Arc{}}}
			for i := range 21 { // twenty minutes of checks
				began := time.Now()
				atOnce(t.Context(), func(ctx context.Context) {
					if is := arcEvidence(ctx, h, c); !errors.Is(is.Err, tt.err) {
						t.Errorf("%s: the error is %v", name, is.Err)
					}
				})
				if took := time.Since(began); i == 0 && took != tt.takes {
					t.Errorf("%s: it took %s", name, took)
				}
				time.Sleep(time.Minute - time.Since(began))
			}
			if m.asked != tt.asked {
				t.Errorf("%s: asked %d times", name, m.asked)
			}
		})
	}
}
