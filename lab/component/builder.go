package component

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Builder builds components into a cache.
type Builder struct {
	// Cache is an absolute directory, created if missing.
	Cache string
	// Go is the go command; empty means the one in PATH.
	Go  string
	Log *slog.Logger
	// Progress, if not nil, is called by Build, one call at a time.
	Progress func(Event)
}

// Phase is a stage of Build.
type Phase string

// The phases of a build. A cached component has only the phase Cached.
const (
	Cached    Phase = "cached"
	Waiting   Phase = "waiting for another build"
	Building  Phase = "building"
	Finished  Phase = "built"
	Verifying Phase = "verifying"
)

// Event reports the progress of a build.
type Event struct {
	Component Component
	Phase     Phase
	// Downloaded and Compiled count modules and packages that are not in Go's caches.
	Downloaded, Compiled int
	// Elapsed is the time since Build was called.
	Elapsed time.Duration
}

// String formats the event as one line.
func (e Event) String() string {
	line := fmt.Sprintf("%s %s %s", e.Component.Name, e.Component.Version, e.Phase)
	if e.Phase == Building && e.Downloaded+e.Compiled > 0 {
		line += fmt.Sprintf(": %d modules downloaded, %d packages compiled", e.Downloaded, e.Compiled)
	}
	if e.Phase == Finished {
		line += fmt.Sprintf(" in %s", e.Elapsed.Round(time.Second))
	}
	return line
}

// CacheDir returns $FLEXLAB_CACHE, or flexlab in the user's cache directory.
func CacheDir() (string, error) {
	if dir := os.Getenv("FLEXLAB_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("cannot find the cache directory: %w; set FLEXLAB_CACHE", err)
	}
	return filepath.Join(dir, "flexlab"), nil
}

// Build returns the directory with a component's programs and extras, which it builds unless it is
// in the cache. A later build never uses the remains of a killed one. Concurrent builds of the same
// component wait for the first.
func (b Builder) Build(ctx context.Context, c Component) (string, error) {
	r := &run{builder: b, component: c, start: time.Now()}
	dir, err := b.dir(ctx, c)
	if err != nil {
		return "", err
	}
	built := false
	fill := func(work string) error {
		built = true
		return r.fill(ctx, work)
	}
	if err := Once(ctx, dir, func() { r.tell(Waiting) }, fill); err != nil {
		return "", fmt.Errorf("cannot build %s: %w", c, err)
	}
	if !built {
		r.tell(Cached)
		return dir, nil
	}
	r.tell(Finished)
	b.Log.Info("component built", "component", c.String(), "dir", dir,
		"elapsed", time.Since(r.start).Round(time.Millisecond))
	return dir, nil
}

// Download downloads the modules of the components that are not in the cache into Go's module
// cache, in this order, so that builds do not wait for the network.
func (b Builder) Download(ctx context.Context, list []Component) error {
	for _, c := range list {
		dir, err := b.Find(ctx, c)
		if dir == "" && err == nil {
			err = b.download(ctx, c)
		}
		if err != nil {
			return fmt.Errorf("cannot download the modules of %s: %w", c, err)
		}
	}
	return nil
}

func (b Builder) download(ctx context.Context, c Component) error {
	src, err := os.MkdirTemp("", "flexlab-modules-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(src)
	if err := writeSources(src, c.Sources); err != nil {
		return err
	}
	for _, build := range c.Builds {
		if err := b.list(ctx, src, build); err != nil {
			return err
		}
	}
	return nil
}

// Find returns a component's directory in the cache, or "" if it is not built.
func (b Builder) Find(ctx context.Context, c Component) (string, error) {
	dir, err := b.dir(ctx, c)
	if err != nil || !present(dir) {
		return "", err
	}
	return dir, nil
}

// dir returns the directory of a component in the cache, built or not.
func (b Builder) dir(ctx context.Context, c Component) (string, error) {
	tool, err := b.toolchain(ctx)
	if err != nil {
		return "", err
	}
	key, err := c.key(tool)
	if err != nil {
		return "", err
	}
	return filepath.Join(b.Cache, c.String()+"-"+key), nil
}

// run is a build of a component.
type run struct {
	builder              Builder
	component            Component
	start                time.Time
	downloaded, compiled int
}

func (r *run) tell(p Phase) {
	if r.builder.Progress != nil {
		r.builder.Progress(Event{
			Component: r.component, Phase: p, Downloaded: r.downloaded,
			Compiled: r.compiled, Elapsed: time.Since(r.start),
		})
	}
}

// fill builds everything into out, with the sources in a temporary directory below it.
func (r *run) fill(ctx context.Context, out string) error {
	src := filepath.Join(out, ".src")
	if err := writeSources(src, r.component.Sources); err != nil {
		return err
	}
	r.tell(Building)
	for _, b := range r.component.Builds {
		if err := r.compile(ctx, src, out, b); err != nil {
			return err
		}
	}
	for _, x := range r.component.Extras {
		if err := r.copyExtra(ctx, src, out, x); err != nil {
			return err
		}
	}
	r.tell(Verifying)
	for _, b := range r.component.Builds {
		for _, p := range b.Programs {
			if err := verify(ctx, out, p); err != nil {
				return err
			}
		}
	}
	return os.RemoveAll(src)
}

func writeSources(dir string, sources map[string][]byte) error {
	if len(sources["go.mod"]) == 0 {
		return fmt.Errorf("internal error: it has no go.mod")
	}
	for name, text := range sources {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if !strings.HasPrefix(path, dir+string(filepath.Separator)) {
			return fmt.Errorf("internal error: source %q is outside the module", name)
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
