package identity

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"golang.org/x/sys/unix"

	"github.com/Azure/AKSFlexNode/internal/wait"
)

// Cache provides one identity's tokens to many short processes: kubelet runs one whenever a token
// has grown old. A token is kept in a file that only root can read; one process at a time asks the
// issuer; while the issuer is down, the last token is used as long as it is valid.
type Cache struct {
	Dir string // the directory of the files, created with mode 0700
	// Key distinguishes identities and their secrets (see the function Key). Each key has its own
	// file, so that a node that goes back to its old secret finds its old token.
	Key        string
	Scope      string                     // the resource that the token is for
	Credential func() (Credential, error) // called only if no valid token is cached
	Need       Need                       // explains a missing token
	Warn       func(error)                // receives the error of caching a returned token
	Now        func() time.Time           // the clock
	// Boot returns the id of the current boot, and the time since its start (Uptime).
	Boot func() (id string, since time.Duration)
}

// Credential gets tokens from an issuer; azidentity creates them.
type Credential = azcore.TokenCredential

// Token is a bearer token.
type Token struct {
	Value   string    `json:"token"`
	Expires time.Time `json:"expires"`
	Refresh time.Time `json:"refresh"` // when to request another one
	Key     string    `json:"key"`
	// Issued is the wall-clock time of its arrival; a clock that was set back since is before it.
	Issued time.Time `json:"issued"`
	// Boot is the boot in which the token was requested, and Uptime the time since its start.
	Boot   string        `json:"boot"`
	Uptime time.Duration `json:"uptime"`
}

const margin = 30 * time.Second // the min remaining validity of a returned token

// The names in Dir.
const filePrefix, fileSuffix, tempPrefix, lockFile = "token-", ".json", ".token-", "token.lock"

// fileName returns the name of a key's file, which is shortened. The file holds the whole key.
func fileName(key string) string { return filePrefix + key[:min(16, len(key))] + fileSuffix }

func (c Cache) file() string { return filepath.Join(c.Dir, fileName(c.Key)) }

// Token returns a token that is valid for a while.
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
		return Token{}, cmp.Or(err, fmt.Errorf("cannot get a token: %w", ctx.Err()))
	}
	c.warn(err)
	if kept, ok = c.kept(); ok && c.Now().Before(kept.Refresh) {
		return kept, nil
	}
	boot, up := c.Boot() // before the request: a token is never younger than it seems
	fresh, err := ask(ctx, c.Credential, c.Scope, c.Need, c.Now)
	if err != nil && ok {
		kept.Refresh = c.Now().Add(20 * time.Second) // the issuer gets a pause
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

// Clean removes the tokens of all other keys and what killed processes left, if Dir exists.
func (c Cache) Clean() error {
	entries, err := os.ReadDir(c.Dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot read the directory of the tokens: %w", err)
	}
	// A temporary file may belong to another process, which is writing it under the lock.
	unlock, busy := c.lock(context.Background(), true)
	defer unlock()
	var errs []error
	for _, e := range entries {
		name := e.Name()
		token := strings.HasPrefix(name, filePrefix) && strings.HasSuffix(name, fileSuffix)
		temporary := strings.HasPrefix(name, tempPrefix) && busy == nil
		if !temporary && (!token || name == fileName(c.Key)) {
			continue
		}
		if err := os.Remove(filepath.Join(c.Dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
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
	var t Token
	data, err := os.ReadFile(c.file())
	if err != nil || json.Unmarshal(data, &t) != nil || t.Key != c.Key {
		return Token{}, false
	}
	return t, c.good(t)
}

// good reports whether a cached token is still valid. The wall clock may have been set since it
// arrived, so its age in boot time and its own claims must agree.
func (c Cache) good(t Token) bool {
	now, said := c.Now(), ClaimsOf(t.Value).Expires
	boot, up := c.Boot()
	end := now.Add(margin)
	return !t.Issued.After(now) && end.Before(t.Expires) &&
		boot == t.Boot && up-t.Uptime+margin < t.Expires.Sub(t.Issued) &&
		(said <= 0 || float64(end.Unix()) < said)
}

// keep writes the token atomically, to a file that only root can ever read.
func (c Cache) keep(t Token) error {
	data, err := json.Marshal(t)
	if err != nil {
		return fmt.Errorf("internal error: %w", err)
	}
	temp := filepath.Join(c.Dir, tempPrefix+"new") // under the lock
	err = os.WriteFile(temp, data, 0o600)
	if err == nil {
		err = os.Rename(temp, c.file())
	}
	if err != nil {
		return fmt.Errorf("cannot keep the token: %w", err)
	}
	return nil
}

var errBusy = errors.New("another process has the lock")

// lock makes this the only process that asks the issuer. With try it does not wait. If there is no
// lock, it returns the reason. The caller must call unlock in any case.
func (c Cache) lock(ctx context.Context, try bool) (unlock func(), err error) {
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return func() {}, fmt.Errorf("cannot keep the token: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(c.Dir, lockFile), os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return func() {}, fmt.Errorf("cannot lock the token: %w", err)
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
		if !wait.Sleep(ctx, 5*time.Millisecond) {
			return unlock, fmt.Errorf("cannot wait for the token that another process is getting: %w",
				ctx.Err())
		}
	}
}

const issuerTimeout = 45 * time.Second // bounds one conversation with the issuer

// Fresh gets one token from the issuer, bypasses caches if possible, and stores it nowhere: it
// proves that a credential works now. It has its own deadline. credential must return a new
// credential each time, since those of azidentity hold a cache.
//
// A managed identity's tokens are also cached for the whole process by azidentity's library, which
// Fresh bypasses, and by the machine's metadata service (IMDS, or Arc's HIMDS), which it cannot:
// that returns the same token for hours. Its secret never changes under a node, though.
func Fresh(ctx context.Context, credential func() (Credential, error), scope string,
	need Need) (Token, error) {
	return ask(ctx, credential, scope, need, time.Now)
}

// Propagation is the time that all servers of Entra ID need to know a new credential; up to 18 s
// were seen. Tests shorten it.
var Propagation = time.Minute

// Proved calls fresh again while the issuer refuses the credential, for Propagation.
func Proved(ctx context.Context, fresh func() (Token, error)) (Token, error) {
	for end := time.Now().Add(Propagation); ; {
		token, err := fresh()
		if !Refused(err) || time.Now().After(end) || !wait.Sleep(ctx, Propagation/12) {
			return token, err
		}
	}
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
	now, expires, claims := clock(), got.ExpiresOn, ClaimsOf(got.Token)
	life := time.Duration((claims.Expires - claims.Issued) * float64(time.Second))
	if claims.Issued > 0 && life > 0 && now.Add(life).Before(expires) {
		expires = now.Add(life)
	}
	refresh := now.Add(expires.Sub(now) * 2 / 3)
	if soon := got.RefreshOn; !soon.IsZero() && soon.Before(refresh) {
		refresh = soon
	}
	return Token{Value: got.Token, Expires: expires, Refresh: refresh, Issued: now}, nil
}

// Uptime returns the current boot's id and age, with suspend: a clock that no process can set.
func Uptime() (id string, since time.Duration) {
	data, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // without it, ids are all the same
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) != nil {
		return "", 0
	}
	return strings.TrimSpace(string(data)), time.Duration(t.Nano())
}

// Claims holds the claims of a JWT: its subject, and its own times in Unix seconds (RFC 7519, 4.1).
// They are zero for any other token.
type Claims struct {
	ObjectID string  `json:"oid"`
	Issued   float64 `json:"iat"`
	Expires  float64 `json:"exp"`
}

// ClaimsOf reads a token's claims without verifying its signature.
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

// WriteExec writes a token as an ExecCredential of client.authentication.k8s.io. info is the
// environment's KUBERNETES_EXEC_INFO, which selects the version; "" means v1. The expiration in it
// is the time to replace the token, and so early.
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
	return json.NewEncoder(w).Encode(map[string]any{
		"apiVersion": version, "kind": "ExecCredential", "status": map[string]any{
			"token": t.Value, "expirationTimestamp": t.Refresh.UTC().Truncate(time.Second),
		}})
}
