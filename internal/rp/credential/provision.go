package credential

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	api "github.com/Azure/AKSFlexNode/api/flexnode/v20260501preview"
	"github.com/Azure/AKSFlexNode/internal/rp/flexnode"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// provision creates the Secret of a pending credential and then, with one change, writes its bundle
// and makes the credential Live.
func (w worker) provision(ctx context.Context, x subject) error {
	c := x.row.Value
	if c.TokenID != "" {
		told := ""
		token, err := w.token(x.key, c)
		if err == nil {
			told, err = w.tokens.Create(ctx, c, x.key, token)
		}
		switch {
		case errors.Is(err, ErrTaken):
			return w.redraw(ctx, x)
		case err != nil:
			told = cmp.Or(told, "The bootstrap token cannot be created; see the provider's log for details.")
			return errors.Join(err, w.problem(ctx, x.key, told), w.abandon(ctx, x))
		}
		w.Store.Did("Secret made")
	}
	err := w.undo(ctx, x, w.enable(ctx, x))
	if err == nil {
		w.Audit.Info("credential issued", "credential", x.key, "node", c.Node,
			"token", c.TokenID != "", "expires", c.Expires)
	}
	return err
}

// redraw gives a credential another token, because a Secret has the id of the first one.
func (w worker) redraw(ctx context.Context, x subject) error {
	was := x.row.Value.TokenID
	err := w.update(ctx, "token drawn again", x.key, func(v *store.View, x subject) error {
		c := x.row.Value
		if c.State != store.Pending || c.TokenID != was {
			return nil
		}
		w.drawToken(v, x.key, &c)
		w.Store.Tokens.Delete(v, c.Cluster+"/"+was)
		return w.Store.Credentials.Put(v, x.key, c)
	})
	return cmp.Or(err, errMoved)
}

func (w worker) enable(ctx context.Context, made subject) error {
	return w.update(ctx, "credential live", made.key, func(v *store.View, x subject) error {
		c := x.row.Value
		if !x.wanted || c.State != store.Pending || c.TokenID != made.row.Value.TokenID ||
			x.node.Value.Assigned == 0 {
			return errMoved
		}
		if err := w.deliver(v, x.key, &c, x.node.Value); err != nil {
			return err
		}
		c.State, c.Since, c.Problem = store.Live, w.now(), ""
		v.Fail(w.Store.Credentials.Put(v, x.key, c))
		n := x.node.Value
		if n.State != api.Creating && n.State != api.Updating {
			return nil
		}
		n.State, n.Reason = "", ""
		return w.Store.Nodes.Put(v, x.node.Key, n)
	})
}

// undo calls abandon if an error means that another process has changed the credential.
func (w worker) undo(ctx context.Context, made subject, err error) error {
	if errors.Is(err, errMoved) || errors.Is(err, store.ErrFenced) {
		return errors.Join(err, w.abandon(ctx, made))
	}
	return err
}

// abandon removes the results for a credential that another process has ended, which cannot have
// seen them. It keeps the Secret of one that a machine is joining with.
func (w worker) abandon(ctx context.Context, made subject) error {
	x, err := w.get(ctx, made.key)
	if err != nil {
		return err
	}
	if state := x.row.Value.State; state != store.Pending && state != store.Live {
		err = w.Delivery.Remove(ctx, made.key)
	}
	if x.row.Exists() && x.row.Value.TokenID == made.row.Value.TokenID {
		return err
	}
	if made.row.Value.TokenID != "" {
		err = errors.Join(err, w.tokens.Remove(ctx, made.row.Value))
	}
	return err
}

// rerender updates a live credential to the configuration that its node is offered now.
func (w worker) rerender(ctx context.Context, x subject) error {
	if x.row.Value.Config == x.node.Value.Assigned {
		return nil
	}
	put := false
	err := w.update(ctx, "bundle rendered again", x.key, func(v *store.View, x subject) error {
		c := x.row.Value
		if !x.wanted || c.State != store.Live {
			if put {
				return errMoved
			}
			return nil
		}
		was := c.Config
		put = true
		if err := w.deliver(v, x.key, &c, x.node.Value); err != nil || c.Config == was {
			return err
		}
		return w.Store.Credentials.Put(v, x.key, c)
	})
	return w.undo(ctx, x, err)
}

// deliver delivers the configuration of a node at the URL of its credential.
func (s *Service) deliver(v *store.View, key string, c *store.Credential, n flexnode.Node) error {
	r, secret, err := s.revision(v, c.Node, n)
	if err != nil || c.State == store.Live && r.Version == c.Config {
		return err
	}
	token, err := s.token(key, *c)
	if err != nil {
		return err
	}
	enrolment := s.enrolmentSecret(n.UID, flexnode.LastOf(key))
	text, err := s.bundle(v, n, r, enrolment, flexnode.Grants{ClientSecret: secret, Token: token})
	if err != nil {
		return err
	}
	c.Config = r.Version
	return s.Delivery.Put(v, key, text, r.Version, c.Expires)
}

// bundle returns the configuration of a revision with secrets, as it is handed out. enrolment is
// the enrolment secret in it; "" for none.
func (s *Service) bundle(
	v *store.View, n flexnode.Node, r flexnode.Revision, enrolment string, g flexnode.Grants,
) ([]byte, error) {
	config, err := s.Store.Config(v.Context(), r, g)
	if err != nil {
		return nil, err
	}
	bundle := flexnode.Bundle(config, api.BundleResource{
		ID: n.ID, UID: n.UID, ConfigVersion: strconv.FormatInt(r.Version, 10),
	})
	bundle.Resource.Epoch, bundle.Signature = s.Signature(r.Signed)
	if bundle.EnrolmentSecret = enrolment; enrolment != "" {
		bundle.Root = s.Keys.Root
	}
	text, _ := json.MarshalIndent(bundle, "", "  ") // what was decoded can be encoded
	return text, nil
}

// revision returns the revision for a machine that joins now, with its client secret: the offered
// one or, if the secret of that is not kept any more, the desired one.
func (s *Service) revision(
	v *store.View, nodeKey string, n flexnode.Node,
) (flexnode.Revision, string, error) {
	history := s.Store.History.Row(v, nodeKey).Value
	r := store.RevisionIn(v, history, n.Assigned)
	if r != nil && r.SecretVersion == 0 {
		return *r, "", nil
	}
	secret, version, err := s.SecretIn(v, nodeKey)
	if err != nil {
		return flexnode.Revision{}, "", err
	}
	if r == nil || r.SecretVersion != version {
		r = store.RevisionIn(v, history, n.Revision)
	}
	if r == nil || r.SecretVersion != 0 && r.SecretVersion != version {
		return flexnode.Revision{}, "", fmt.Errorf(
			"internal error: revision %d of %s, or its secret, is not kept", n.Assigned, nodeKey)
	}
	if r.SecretVersion == 0 {
		secret = ""
	}
	return *r, secret, nil
}
