package change

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/arc"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/state"
	"github.com/Azure/AKSFlexNode/internal/transition"
	"github.com/Azure/AKSFlexNode/internal/wait"
)

// rolesTimeout is how long role assignments may take to have an effect.
const rolesTimeout = 30 * time.Minute

// newArc puts together the conversation with Azure Arc.
func newArc(h *Home, c config.Config, say func(string, ...any)) arc.Arc {
	a := inspect.ArcAgent(h.Node, c)
	a.Restart, a.Say, a.Poll = h.Agent.Machine.RestartUnit, say, h.Poll
	a.Save = func(r arc.Record) error { return h.Store.Save(context.Background(), saved.ArcFile, r) }
	return a
}

// enrol makes the machine an Arc machine whose identity is authorised in the cluster. Downloads go
// on meanwhile. A machine that is enrolled as configured is not asked about again, unless it is to
// be made again what it was.
func (w *work) enrol(ctx context.Context, t *transition.Transition) error {
	c := w.config
	if c.Azure.AuthMode() != config.AuthArc {
		return nil
	}
	var record arc.Record
	known, err := w.Saved.Load(saved.ArcFile, &record)
	if err != nil || known && enrolledAs(w, c) && !enrolsAgain(ctx, w, t) {
		return err
	}
	w.view.advance(state.Arc)
	if err := installArc(ctx, w); err != nil {
		w.view.fail()
		return err
	}
	principal, newest, err := connectArc(ctx, w, withGiven(w.Home, c), record)
	if err == nil {
		err = w.waiting(ctx, func(ctx context.Context) error {
			return waitAuthorised(ctx, w, principal, newest)
		})
	}
	if err == nil {
		err = dropTokens(w, c)
	}
	if err == nil {
		err = unowned(ctx, w)
	}
	if err != nil {
		w.view.fail()
		return err
	}
	w.view.finish(c.Azure.Arc.MachineName + " is connected and authorised")
	return nil
}

// connectArc connects the machine, unless it is connected and nobody is needed to authorise it, and
// returns its identity's object id and when its newest role was assigned.
func connectArc(
	ctx context.Context, w *work, c config.Config, record arc.Record,
) (principal string, newest time.Time, err error) {
	a := newArc(w.Home, c, func(format string, args ...any) {
		w.view.doing(fmt.Sprintf(format,
			args...))
	})
	itself := !onboards(c.Azure) && inspect.ArcMachineID(ctx, w.Home.Node, c) != "" &&
		(admitted(ctx, w.Home, c, w.target()) || !assigns(c))
	if itself {
		token, err := inspect.JoinToken(ctx, w.Home.Node, c)
		return arc.Principal(token), time.Time{}, errors.Join(err, a.Adopt(ctx, record))
	}
	if err = loggedIn(ctx, w.Home, c, "register the machine with Azure Arc"); err != nil {
		return "", time.Time{}, err
	}
	if a.Credential, err = manager(w.Home, c); err != nil {
		return "", time.Time{}, err
	}
	return a.Enrol(ctx, record)
}

// dropTokens removes the tokens that kubelet was given of the identity that the machine had before.
func dropTokens(w *work, c config.Config) error {
	cache, err := inspect.TokenCache(w.Home.Node, c)
	if err != nil {
		return err
	}
	return cache.Forget()
}

// enrolsAgain tells whether a repair has to enrol the machine anew.
func enrolsAgain(ctx context.Context, w *work, t *transition.Transition) bool {
	chosen := len(t.Things) == 0 || slices.Contains(t.Things, string(inspect.ArcKey))
	return t.Kind == transition.Repair && chosen && len(inspect.ArcLost(ctx, w.Home.Node)) > 0
}

// enrolledAs tells whether the applied node was enrolled with the same settings.
func enrolledAs(w *work, c config.Config) bool {
	return w.Saved.Applied != nil && reflect.DeepEqual(w.Saved.Applied.Config.Azure.Arc, c.Azure.Arc)
}

// waitAuthorised waits until the cluster lets the Arc identity do what kubelet must. Where somebody
// else has to give it its roles, it says which. The machine's metadata service keeps tokens: one
// from before the newest role assignment is dropped, once, by restarting it.
func waitAuthorised(ctx context.Context, w *work, principal string, newest time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, rolesTimeout)
	defer cancel()
	at := w.target()
	pauses := wait.Backoff{Base: w.Every(2 * time.Second), Max: 15 * time.Second}
	restarted, told := false, assigns(w.config)
	for began := inspect.Now(); ; {
		token, err := inspect.JoinToken(ctx, w.Home.Node, w.config)
		if err != nil {
			return err
		}
		if !restarted && issued(token).Before(newest.Truncate(time.Second)) { // tokens have whole seconds
			restarted = true
			w.view.doing("restarting the Arc agent's metadata service, whose token is older than the " +
				"role assignment")
			if err := w.Agent.Machine.RestartUnit(ctx, "himdsd.service"); err != nil {
				return err
			}
			continue
		}
		ok, err := inspect.Authorised(ctx, w.Home.Node, w.config, at, token)
		if err != nil || ok {
			return err
		}
		if !told {
			told = true
			w.Note("waiting, for %s at most, until somebody authorises this machine: %s", rolesTimeout,
				lacking(w.config, principal))
		}
		waited := time.Since(began).Truncate(time.Second)
		w.view.doing(fmt.Sprintf("waiting for the role assignments to have an effect (%s)", waited))
		if !wait.Sleep(ctx, pauses.Next()) {
			return fmt.Errorf("cannot use the identity of the Arc machine: the cluster did not authorise "+
				"it within %s; %s", waited, lacking(w.config, principal))
		}
	}
}

// issued is when a token was issued; the zero time when it does not say (RFC 7519, section 4.1.6).
func issued(token string) time.Time {
	var claims struct {
		IssuedAt int64 `json:"iat"`
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(payload, &claims) != nil {
		return time.Time{}
	}
	return time.Unix(claims.IssuedAt, 0)
}

// leaveArc takes back what was done in Azure Arc. What somebody else had done before remains.
func leaveArc(ctx context.Context, h *Home, c *config.Config, keep bool) error {
	var record arc.Record
	ok, err := h.Saved.Load(saved.ArcFile, &record)
	if err != nil || !ok || keep || !record.Connected && len(record.Assignments) == 0 {
		return err
	}
	if c == nil {
		return errors.New("cannot leave Azure Arc: no configuration says as whom; give it with " +
			"--config, or leave the machine there with --keep-arc")
	}
	a := newArc(h, *c, func(format string, args ...any) { h.Note(format, args...) })
	if err = loggedIn(ctx, h, *c, "leave Azure Arc"); err == nil {
		a.Credential, err = manager(h, *c)
	}
	if err == nil {
		err = a.Leave(ctx, record)
	}
	if err != nil {
		return fmt.Errorf("%w\nrun unbootstrap again when that is mended, with --config if it is "+
			"another identity that may do it now, or leave the machine in Azure Arc with --keep-arc", err)
	}
	return nil
}
