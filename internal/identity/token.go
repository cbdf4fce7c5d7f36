package identity

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"golang.org/x/sys/unix"
)

// Cache hands out one identity's tokens to many short processes: kubelet calls for a token every time one has grown old. A token is
// kept in a file that only root reads; one process at a time asks the issuer; and while the issuer is down the last token is
// handed out as long as it is good.
type Cache struct {
	// Dir holds the files; it is made, 0700.
	Dir string
	// Key tells identities apart: a token that was kept under another one is not used.
	Key string
	// Scope is what the token is for.
	Scope string
	// Credential is asked for only when no good token is kept.
	Credential func() (Credential, error)
	// Need explains why there is no token.
	Need Need
	// Warn is told why a token could not be kept, which is no reason not to hand it out; nil tells nobody.
	Warn func(error)
	// Now is the clock; nil is the real one.
	Now func() time.Time
}

// Credential gets tokens from an issuer; azidentity makes them.
type Credential = azcore.TokenCredential

// Token is a bearer token.
type Token struct {
	Value   string    `json:"token"`
	Expires time.Time `json:"expires"`
	// Refresh is when it is time for another one.
	Refresh time.Time `json:"refresh"`
	Key     string    `json:"key"`
}

const (
	// margin is how long a token must still be good to be handed out.
	margin = 30 * time.Second
	// retryAfter is when the issuer is asked again after it has failed.
	retryAfter = 20 * time.Second
	// issuerTimeout bounds one conversation with the issuer.
	issuerTimeout = 45 * time.Second
)

func (c Cache) now() time.Time {
	if c.Now == nil {
		return time.Now()
	}
	return c.Now()
}

func (c Cache) file() string { return filepath.Join(c.Dir, "token.json") }

// Token returns a token that is good for a while.
func (c Cache) Token(ctx context.Context) (Token, error) {
	kept, ok := c.kept()
	if ok && c.now().Before(kept.Refresh) {
		return kept, nil
	}
	unlock, err := c.lock(ctx, ok)
	if errors.Is(err, errBusy) {
		return kept, nil // it is still good, and somebody fetches the next one
	}
	if ctx.Err() != nil {
		return Token{}, err
	}
	c.warn(err)
	defer unlock()
	if kept, ok = c.kept(); ok && c.now().Before(kept.Refresh) {
		return kept, nil
	}
	fresh, err := c.fetch(ctx)
	if err != nil && ok {
		kept.Refresh = c.now().Add(retryAfter)
		c.warn(c.keep(kept))
		return kept, nil
	}
	if err != nil {
		return Token{}, err
	}
	c.warn(c.keep(fresh))
	return fresh, nil
}

func (c Cache) warn(err error) {
	if err != nil && c.Warn != nil {
		c.Warn(err)
	}
}

// kept returns the token on file, if it is ours and still good.
func (c Cache) kept() (Token, bool) {
	data, err := os.ReadFile(c.file())
	if err != nil {
		return Token{}, false
	}
	var t Token
	if json.Unmarshal(data, &t) != nil || t.Key != c.Key {
		return Token{}, false
	}
	return t, c.now().Add(margin).Before(t.Expires)
}

func (c Cache) fetch(ctx context.Context) (Token, error) {
	ctx, cancel := context.WithTimeout(ctx, issuerTimeout)
	defer cancel()
	credential, err := c.Credential()
	if err != nil {
		return Token{}, err
	}
	got, err := credential.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{c.Scope}})
	if err != nil {
		return Token{}, Explain(err, c.Need)
	}
	now := c.now()
	t := Token{Value: got.Token, Expires: got.ExpiresOn, Refresh: now.Add(got.ExpiresOn.Sub(now) * 2 / 3), Key: c.Key}
	if soon := got.RefreshOn; !soon.IsZero() && soon.Before(t.Refresh) {
		t.Refresh = soon
	}
	return t, nil
}

// keep writes the token whole, readable by root from its first byte.
func (c Cache) keep(t Token) error {
	data, err := json.Marshal(t)
	if err != nil {
		return fmt.Errorf("internal error: %w", err)
	}
	temp, err := os.CreateTemp(c.Dir, ".token-*") // 0600 (os.CreateTemp)
	if err != nil {
		return fmt.Errorf("cannot keep the token: %w", err)
	}
	_, err = temp.Write(data)
	err = errors.Join(err, temp.Close())
	if err == nil {
		err = os.Rename(temp.Name(), c.file())
	}
	if err != nil {
		os.Remove(temp.Name())
		return fmt.Errorf("cannot keep the token: %w", err)
	}
	return nil
}

// errBusy tells that another process has the lock.
var errBusy = errors.New("another process has the lock")

// lock makes this the one process that asks the issuer. With try it does not wait. Where there can be no lock, the error says why,
// and unlock does nothing.
func (c Cache) lock(ctx context.Context, try bool) (unlock func(), err error) {
	nothing := func() {}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nothing, fmt.Errorf("cannot keep the token: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(c.Dir, "token.lock"), os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nothing, fmt.Errorf("cannot lock the token: %w", err)
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return func() { f.Close() }, nil
		case !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR):
			f.Close()
			return nothing, fmt.Errorf("cannot lock the token: %w", err)
		case try:
			f.Close()
			return nothing, errBusy
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nothing, fmt.Errorf("cannot wait for the token that another process is getting: %w", ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
}
