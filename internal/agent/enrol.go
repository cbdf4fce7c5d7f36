package agent

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

	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/arc"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/identity"
	"github.com/Azure/AKSFlexNode/internal/state"
	"github.com/Azure/AKSFlexNode/internal/transition"
	"github.com/Azure/AKSFlexNode/internal/wait"
)

// rolesTimeout is how long role assignments may take to have an effect.
const rolesTimeout = 30 * time.Minute

// arc puts together the conversation with Azure Arc.
func (h *home) arc(c config.Config, say func(string, ...any)) arc.Arc {
	return arc.Arc{
		Config: c.Azure, Machine: h.Machine, Options: identity.ARM(c.Azure, c.ProxyFunc()), Say: say,
		Poll: h.Poll, Proxy: c.Proxy.HTTPS, Warn: h.warn,
		Save: func(r arc.Record) error { return h.saved.Save(context.Background(), saved.ArcFile, r) },
	}
}

// enrolledBefore tells whether the machine was enrolled with Arc by an earlier run.
func (h *home) enrolledBefore() bool {
	var record arc.Record
	known, err := h.saved.Load(saved.ArcFile, &record)
	return err == nil && known && record.MachineID != "" && h.saved.Live != nil
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
	known, err := w.saved.Load(saved.ArcFile, &record)
	if err != nil || known && w.enrolledAs(c) && !w.enrolsAgain(ctx, t) {
		return err
	}
	w.view.advance(state.Arc)
	if err := w.installArc(ctx); err != nil {
		w.view.fail()
		return err
	}
	principal, newest, err := w.connectArc(ctx, w.withGiven(c), record)
	if err == nil {
		err = w.waiting(ctx, func(ctx context.Context) error {
			return w.waitAuthorised(ctx, principal, newest)
		})
	}
	if err == nil {
		err = w.dropTokens(c)
	}
	if err == nil {
		err = w.unowned(ctx)
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
func (w *work) connectArc(
	ctx context.Context, c config.Config, record arc.Record,
) (principal string, newest time.Time, err error) {
	a := w.arc(c, func(format string, args ...any) { w.view.doing(fmt.Sprintf(format, args...)) })
	itself := !onboards(c.Azure) && w.arcMachine(ctx, c) != "" &&
		(w.admitted(ctx, c, w.target()) || !assigns(c))
	if itself {
		token, err := w.joinToken(ctx, c)
		return arc.Principal(token), time.Time{}, errors.Join(err, a.Adopt(ctx, record))
	}
	if err = w.loggedIn(ctx, c, "register the machine with Azure Arc"); err != nil {
		return "", time.Time{}, err
	}
	if a.Credential, err = w.manager(c); err != nil {
		return "", time.Time{}, err
	}
	return a.Enrol(ctx, record)
}

// dropTokens removes the tokens that kubelet was given of the identity that the machine had before.
func (w *work) dropTokens(c config.Config) error {
	cache, err := w.tokenCache(c)
	if err != nil {
		return err
	}
	return cache.Forget()
}

// enrolsAgain tells whether a repair has to enrol the machine anew.
func (w *work) enrolsAgain(ctx context.Context, t *transition.Transition) bool {
	chosen := len(t.Things) == 0 || slices.Contains(t.Things, string(arcKey))
	return t.Kind == transition.Repair && chosen && len(w.arcLost(ctx)) > 0
}

// enrolledAs tells whether the applied node was enrolled with the same settings.
func (w *work) enrolledAs(c config.Config) bool {
	return w.saved.Applied != nil && reflect.DeepEqual(w.saved.Applied.Config.Azure.Arc, c.Azure.Arc)
}

// waitAuthorised waits until the cluster lets the Arc identity do what kubelet must. Where somebody
// else has to give it its roles, it says which. The machine's metadata service keeps tokens: one
// from before the newest role assignment is dropped, once, by restarting it.
func (w *work) waitAuthorised(ctx context.Context, principal string, newest time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, rolesTimeout)
	defer cancel()
	at := w.target()
	pauses := wait.Backoff{Base: w.every(2 * time.Second), Max: 15 * time.Second}
	restarted, told := false, assigns(w.config)
	for began := now(); ; {
		token, err := w.joinToken(ctx, w.config)
		if err != nil {
			return err
		}
		if !restarted && issued(token).Before(newest.Truncate(time.Second)) { // tokens have whole seconds
			restarted = true
			w.view.doing("restarting the Arc agent's metadata service, whose token is older than the " +
				"role assignment")
			if err := w.Machine.RestartUnit(ctx, "himdsd.service"); err != nil {
				return err
			}
			continue
		}
		ok, err := w.authorised(ctx, w.config, at, token)
		if err != nil || ok {
			return err
		}
		if !told {
			told = true
			w.note("waiting, for %s at most, until somebody authorises this machine: %s", rolesTimeout,
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
func (h *home) leaveArc(ctx context.Context, c *config.Config, keep bool) error {
	var record arc.Record
	ok, err := h.saved.Load(saved.ArcFile, &record)
	if err != nil || !ok || keep || !record.Connected && len(record.Assignments) == 0 {
		return err
	}
	if c == nil {
		return errors.New("cannot leave Azure Arc: no configuration says as whom; give it with " +
			"--config, or leave the machine there with --keep-arc")
	}
	a := h.arc(*c, func(format string, args ...any) { h.note(format, args...) })
	if err = h.loggedIn(ctx, *c, "leave Azure Arc"); err == nil {
		a.Credential, err = h.manager(*c)
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
