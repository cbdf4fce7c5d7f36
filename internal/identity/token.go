package identity

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/internal/wait"
)

// Cache hands out one identity's tokens to many short processes: kubelet calls for a token every
// time one has grown old. A token is kept in a file that only root reads; one process at a time
// asks the issuer; and while the issuer is down the last token is handed out as long as it is good.
type Cache struct {
	Dir string // holds the files; it is made, 0700
	// Key tells identities and their secrets apart (see the function Key). Each key has a file of
	// its own, so that a node that goes back to its former secret finds the token that it had.
	Key   string
	Scope string // names the resource that the token is for
	// Credential is asked for only when no token is kept that can still be handed out.
	Credential func() (Credential, error)
	Need       Need // explains why there is no token
	// Warn receives why a token could not be kept, which is no reason not to hand it out.
	Warn func(error)
	Now  func() time.Time // the clock
	// Boot returns the id of the present boot, and how long ago it began (Uptime).
	Boot func() (id string, since time.Duration)
}

// Credential gets tokens from an issuer; azidentity makes them.
type Credential = azcore.TokenCredential

// Token is a bearer token.
type Token struct {
	Value   string    `json:"token"`
	Expires time.Time `json:"expires"`
	Refresh time.Time `json:"refresh"` // when it is time for another one
	Key     string    `json:"key"`
	// Issued is when the token came by the wall clock; a clock set back since then is before it.
	Issued time.Time `json:"issued"`
	// Boot is the boot in which the token was asked for, and Uptime how long after its start.
	Boot   string        `json:"boot"`
	Uptime time.Duration `json:"uptime"`
}

const (
	margin     = 30 * time.Second // the time that a token must still be valid to be handed out
	retryAfter = 20 * time.Second // when the issuer is asked again after it has failed
	// lockPoll is the interval at which a process asks whether the lock is free.
	lockPoll = 5 * time.Millisecond
)

// The names in Dir.
const filePrefix, fileSuffix, tempPrefix, lockFile = "token-", ".json", ".token-", "token.lock"

// fileName is where the token of a key is kept. The file itself says the whole key.
func fileName(key string) string { return filePrefix + key[:min(16, len(key))] + fileSuffix }

func (c Cache) file() string { return filepath.Join(c.Dir, fileName(c.Key)) }

// Token returns a token that is good for a while.
func (c Cache) Token(ctx context.Context) (Token, error) {
	kept, ok := c.kept()
	if ok && c.Now().Before(kept.Refresh) {
		return kept, nil
	}
	unlock, err := c.lock(ctx, ok)
	defer unlock()
	if errors.Is(err, errBusy) {
		return kept, nil // it is still valid, and another process fetches the next one
	}
	if ctx.Err() != nil && !ok {
		if err == nil {
			err = fmt.Errorf("cannot get a token: %w", ctx.Err())
		}
		return Token{}, err
	}
	c.warn(err)
	if kept, ok = c.kept(); ok && c.Now().Before(kept.Refresh) {
		return kept, nil
	}
	boot, up := c.Boot() // before the question: a token is never younger than it seems
	fresh, err := ask(ctx, c.Credential, c.Scope, c.Need, c.Now)
	if err != nil && ok {
		kept.Refresh = c.Now().Add(retryAfter)
		c.warn(c.keep(kept))
		return kept, nil
	}
	if err != nil {
		return Token{}, err
	}
	fresh.Key, fresh.Boot, fresh.Uptime = c.Key, boot, up
	c.warn(c.keep(fresh))
	return fresh, nil
}

// Clean removes the tokens of all keys but its own and those given, and what a process that was
// killed has left over. A directory that does not exist is clean.
func (c Cache) Clean(keep ...string) error {
	entries, err := os.ReadDir(c.Dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot read the directory of the tokens: %w", err)
	}
	// A temporary file may be one that another process is writing, under the lock.
	unlock, busy := c.lock(context.Background(), true)
	defer unlock()
	names := []string{fileName(c.Key)}
	for _, key := range keep {
		names = append(names, fileName(key))
	}
	var errs []error
	for _, e := range entries {
		name := e.Name()
		token := strings.HasPrefix(name, filePrefix) && strings.HasSuffix(name, fileSuffix)
		temporary := strings.HasPrefix(name, tempPrefix) && busy == nil
		if !temporary && (!token || slices.Contains(names, name)) {
			continue
		}
		err := os.Remove(filepath.Join(c.Dir, name))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fmt.Errorf("cannot remove an old token: %w", err))
		}
	}
	return errors.Join(errs...)
}

func (c Cache) warn(err error) {
	if err != nil {
		c.Warn(err)
	}
}

func (c Cache) kept() (Token, bool) {
	data, err := os.ReadFile(c.file())
	if err != nil {
		return Token{}, false
	}
	var t Token
	if json.Unmarshal(data, &t) != nil || t.Key != c.Key {
		return Token{}, false
	}
	return t, c.good(t)
}

// good reports whether a kept token can still be handed out. The wall clock may have been set since
// the token came, so its age in boot time and its own claims must agree.
func (c Cache) good(t Token) bool {
	now, said := c.Now(), ClaimsOf(t.Value).Expires
	boot, up := c.Boot()
	end := now.Add(margin)
	return !t.Issued.After(now) && end.Before(t.Expires) &&
		boot == t.Boot && up-t.Uptime+margin < t.Expires.Sub(t.Issued) &&
		(said <= 0 || float64(end.Unix()) < said)
}

// keep writes the token whole, readable by root from its first byte.
func (c Cache) keep(t Token) error {
	data, err := json.Marshal(t)
	if err != nil {
		return fmt.Errorf("internal error: %w", err)
	}
	temp, err := os.CreateTemp(c.Dir, tempPrefix+"*") // 0600 (os.CreateTemp)
	if err == nil {
		_, err = temp.Write(data)
		if err = errors.Join(err, temp.Close()); err == nil {
			err = os.Rename(temp.Name(), c.file())
		}
		if err != nil {
			os.Remove(temp.Name())
		}
	}
	if err != nil {
		return fmt.Errorf("cannot keep the token: %w", err)
	}
	return nil
}

var errBusy = errors.New("another process has the lock")

// lock makes this the one process that asks the issuer. With try it does not wait. Where there can
// be no lock, the error says why. unlock is to be called in any case.
func (c Cache) lock(ctx context.Context, try bool) (unlock func(), err error) {
	nothing := func() {}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nothing, fmt.Errorf("cannot keep the token: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(c.Dir, lockFile), os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW,
		0o600)
	if err != nil {
		return nothing, fmt.Errorf("cannot lock the token: %w", err)
	}
	unlock = func() { f.Close() }
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return unlock, nil
		case !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR):
			return unlock, fmt.Errorf("cannot lock the token: %w", err)
		case try:
			return unlock, errBusy
		}
		if !wait.Sleep(ctx, lockPoll) {
			return unlock, fmt.Errorf("cannot wait for the token that another process is getting: %w",
				ctx.Err())
		}
	}
}

const issuerTimeout = 45 * time.Second // bounds one conversation with the issuer

// Fresh gets one token from the issuer itself, past every cache that can be bypassed, and keeps it
// nowhere: it proves that a credential works now. It has a deadline of its own. credential makes
// the credential, a new one for each call, since those of azidentity hold a cache.
//
// A managed identity's tokens are also kept for the whole process by azidentity's library, which is
// bypassed here, and by the metadata service of the machine (IMDS, or Arc's HIMDS), which cannot be
// bypassed: it hands out the same token for hours. Its secret never changes under a node, though.
func Fresh(ctx context.Context, credential func() (Credential, error), scope string,
	need Need) (Token, error) {
	return ask(ctx, credential, scope, need, time.Now)
}

func ask(ctx context.Context, credential func() (Credential, error), scope string, need Need,
	clock func() time.Time) (Token, error) {
	ctx, cancel := context.WithTimeout(ctx, issuerTimeout)
	defer cancel()
	issuer, err := credential()
	if err != nil {
		return Token{}, err
	}
	options := policy.TokenRequestOptions{Scopes: []string{scope}}
	if _, ok := issuer.(*azidentity.ManagedIdentityCredential); ok {
		// With claims the library does not read its cache. The metadata services get no claims.
		options.Claims = "{}"
	}
	got, err := issuer.GetToken(ctx, options)
	if err == nil && got.Token == "" {
		err = errors.New("the issuer's answer holds no token")
	}
	if err != nil {
		return Token{}, Explain(err, need)
	}
	now, expires := clock(), got.ExpiresOn
	if life, ok := ClaimsOf(got.Token).lifetime(); ok && now.Add(life).Before(expires) {
		expires = now.Add(life)
	}
	refresh := now.Add(expires.Sub(now) * 2 / 3)
	if soon := got.RefreshOn; !soon.IsZero() && soon.Before(refresh) {
		refresh = soon
	}
	return Token{Value: got.Token, Expires: expires, Refresh: refresh, Issued: now}, nil
}

// Uptime returns the id of the present boot and how long ago it began, with the time that the
// machine slept. No process can set that clock.
func Uptime() (id string, since time.Duration) {
	data, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // without it, ids are all the same
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) != nil {
		return "", 0
	}
	return strings.TrimSpace(string(data)), time.Duration(t.Nano())
}

// Claims holds the claims of a JWT: whom it is for, and its own time in Unix seconds (RFC 7519,
// 4.1). They are zero for a token that is no JWT.
type Claims struct {
	ObjectID string  `json:"oid"`
	Issued   float64 `json:"iat"`
	Expires  float64 `json:"exp"`
}

// ClaimsOf reads a token's claims, without a look at its signature.
func ClaimsOf(token string) (c Claims) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return Claims{}
	}
	data, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(data, &c) != nil {
		return Claims{}
	}
	return c
}

// lifetime returns how long the token is good in all; ok is false where it does not say.
func (c Claims) lifetime() (life time.Duration, ok bool) {
	life = time.Duration((c.Expires - c.Issued) * float64(time.Second))
	return life, c.Issued > 0 && life > 0
}

// WriteExec writes a token as an ExecCredential of client.authentication.k8s.io. info is the
// environment's KUBERNETES_EXEC_INFO, which says in which version; "" means v1. The time given as
// the token's end is when it is to be replaced, so that it is early.
func WriteExec(w io.Writer, t Token, info string) error {
	version := "client.authentication.k8s.io/v1"
	if info != "" {
		var asked struct {
			APIVersion string `json:"apiVersion"`
		}
		if err := json.Unmarshal([]byte(info), &asked); err != nil {
			return fmt.Errorf("cannot read KUBERNETES_EXEC_INFO: %w", err)
		}
		if asked.APIVersion != version && asked.APIVersion != version+"beta1" {
			return fmt.Errorf("cannot answer in %q: only v1 and v1beta1 of "+
				"client.authentication.k8s.io are known", asked.APIVersion)
		}
		version = asked.APIVersion
	}
	until := t.Refresh
	if t.Expires.Before(until) {
		until = t.Expires
	}
	return json.NewEncoder(w).Encode(map[string]any{
		"apiVersion": version, "kind": "ExecCredential", "status": map[string]any{
			"token": t.Value, "expirationTimestamp": until.UTC().Truncate(time.Second),
		}})
}
