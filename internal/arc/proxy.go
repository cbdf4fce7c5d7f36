package arc

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// proxySetting is the setting of azcmagent; the URL is http://host:port (azcmagent config).
const proxySetting = "proxy.url"

// setProxy gives the Arc agent the configured proxy. One that was set by others is kept; ours is
// taken away when it is no longer configured. A URL with a user in it is not set: azcmagent takes
// it only as an argument, and those are seen by every user of the machine.
func (a Arc) setProxy(ctx context.Context, r *Record) error {
	want := a.Proxy.Reveal()
	if u, err := url.Parse(want); err != nil || u.User != nil {
		a.Warn("the Arc agent is not given the proxy, because its URL holds a user or a password "+
			"and azcmagent takes it only as an argument, which every user of this machine can "+
			"see; configure it yourself (azcmagent config set %s)", proxySetting)
		want = ""
	}
	if want == "" && r.Proxy == "" {
		return nil
	}
	is, err := a.proxy(ctx)
	if err != nil || is == want {
		return err
	}
	if is != "" && is != r.Proxy {
		a.Warn("the Arc agent has another proxy than the configured one, and keeps it")
		return nil
	}
	// The old one is cleared before the new one is recorded: what is there is always known as ours.
	if err := a.clearProxy(ctx, r); err != nil || want == "" {
		return err
	}
	r.Proxy = want
	if err := a.Save(*r); err != nil {
		return err
	}
	if _, err := a.azcmagent(ctx, "config", "set", proxySetting, want); err != nil {
		return fmt.Errorf("cannot give the Arc agent the proxy: %w", err)
	}
	return nil
}

// clearProxy takes away the proxy that we have given the agent, if it still has that one.
func (a Arc) clearProxy(ctx context.Context, r *Record) error {
	if r.Proxy == "" {
		return nil
	}
	is, err := a.proxy(ctx)
	if errors.Is(err, ErrNotInstalled) {
		is, err = "", nil
	}
	if err == nil && is == r.Proxy {
		_, err = a.azcmagent(ctx, "config", "clear", proxySetting)
	}
	if err != nil {
		return fmt.Errorf("cannot take the proxy away from the Arc agent: %w", err)
	}
	r.Proxy = ""
	return a.Save(*r)
}

// proxy is the proxy that the Arc agent has; "" when it has none, or azcmagent shows no URL.
func (a Arc) proxy(ctx context.Context) (string, error) {
	out, err := a.azcmagent(ctx, "config", "get", proxySetting)
	if err != nil {
		return "", err
	}
	if text := strings.TrimSpace(string(out)); strings.HasPrefix(text, "http") {
		return text, nil
	}
	return "", nil
}
