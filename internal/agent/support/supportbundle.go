package support

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"runtime"
	"slices"
	"strings"
	"time"

	"filippo.io/age"

	"github.com/Azure/AKSFlexNode/internal/agent/change"
	"github.com/Azure/AKSFlexNode/internal/agent/inspect"
	"github.com/Azure/AKSFlexNode/internal/agent/saved"
	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/health"
	"github.com/Azure/AKSFlexNode/internal/host"
	"github.com/Azure/AKSFlexNode/internal/node"
	"github.com/Azure/AKSFlexNode/internal/redact"
)

// JournalLines is the default number of lines of each service's journal in a support bundle.
const JournalLines = 2000

// SupportBundle writes an archive for support: the state of the machine, without secrets, with a
// number of lines of each journal, encrypted by seal, which may be nil. The manifest lists what was
// not collected before ctx ended.
func SupportBundle(
	ctx context.Context, a *change.Agent, given Given, lines int, seal Seal, out io.Writer,
) (m redact.Manifest, err error) {
	if seal != nil {
		sealed, sealErr := seal(out)
		if sealErr != nil {
			return m, fmt.Errorf("cannot encrypt the support bundle: %w", sealErr)
		}
		defer func() { err = errors.Join(err, sealed.Close()) }()
		out = sealed
	}
	c := newCollector(ctx, a, given)
	c.archive = redact.NewArchive(out, c.redactor, a.Version, time.Now())
	c.archive.Value("versions.json", map[string]string{
		"aks-flex-node": c.Version, "go": runtime.Version(),
		"platform": runtime.GOOS + "/" + runtime.GOARCH,
	})
	c.judgements(ctx)
	c.configurations()
	c.journals(ctx, lines)
	c.texts(ctx)
	return c.archive.Close()
}

type collector struct {
	*patient
	redactor *redact.Redactor
	archive  *redact.Archive
}

func newCollector(ctx context.Context, a *change.Agent, given Given) *collector {
	c := &collector{patient: diagnose(ctx, a, given), redactor: &redact.Redactor{}}
	c.knowSecrets()
	return c
}

// DoctorWithoutSecrets is Doctor with the secrets of the machine redacted.
func DoctorWithoutSecrets(ctx context.Context, a *change.Agent, given Given) []health.Diagnosis {
	list := Doctor(ctx, a, given, func(string) bool { return true })
	r := newCollector(ctx, a, given).redactor
	for i, d := range list {
		list[i].Message = r.RedactProse(d.Message)
		list[i].Remedies = slices.Clone(d.Remedies)
		for j, command := range d.Remedies {
			list[i].Remedies[j] = r.RedactProse(command)
		}
	}
	return list
}

// Seal returns a writer that encrypts; closing it completes the output.
type Seal func(io.Writer) (io.WriteCloser, error)

// Encrypt returns a Seal for an age recipient.
func Encrypt(recipient string) (Seal, error) {
	r, err := age.ParseX25519Recipient(recipient)
	if err != nil {
		return nil, fmt.Errorf("cannot encrypt for %q: %w", recipient, err)
	}
	return func(w io.Writer) (io.WriteCloser, error) { return age.Encrypt(w, r) }, nil
}

// ended reports whether ctx has ended, and records what is left out because of that.
func (c *collector) ended(ctx context.Context, name string) bool {
	if ctx.Err() == nil {
		return false
	}
	c.archive.Omit(name, errors.New("the time limit was reached"))
	return true
}

func (c *collector) judgements(ctx context.Context) {
	all := func(string) bool { return true }
	c.archive.Value("doctor.json", Doctor(ctx, c.Agent, c.given, all))
	if !c.ended(ctx, "status.json") {
		status, err := inspect.ReadStatus(ctx, &c.Agent.Env)
		c.value("status.json", status, err)
	}
	if !c.ended(ctx, "endpoints.json") {
		list, err := Endpoints(ctx, c.Agent, c.given)
		c.value("endpoints.json", list, err)
	}
}

func (c *collector) value(name string, v any, err error) {
	if err != nil {
		c.archive.Omit(name, err)
	} else {
		c.archive.Value(name, v)
	}
}

func (c *collector) configurations() {
	if c.given.Input != nil {
		c.archive.Value("config.json", c.given.Input.Config)
	} else {
		c.archive.Omit("config.json", cmp.Or(c.given.Err, fs.ErrNotExist))
	}
	if c.Saved.Applied != nil {
		c.archive.Value("applied-config.json", c.Saved.Applied.Config)
	}
	if c.Saved.Live != nil && c.Saved.Live != c.Saved.Applied {
		c.archive.Value("live-config.json", c.Saved.Live.Config)
	}
}

func (c *collector) journals(ctx context.Context, most int) {
	for _, unit := range []string{node.KubeletUnit, node.ContainerdUnit, node.NPDUnit,
		change.Service} {
		name := "journal/" + unit + ".log"
		if c.ended(ctx, name) {
			continue
		}
		if lines := c.Reader.Journal(ctx, unit, most); len(lines) > 0 {
			c.archive.Add(name, strings.Join(lines, "\n")+"\n")
		} else {
			c.archive.Omit(name, errors.New("the journal has no entries of it"))
		}
	}
}

// texts adds files that describe the machine's state. None of them is meant for secrets.
func (c *collector) texts(ctx context.Context) {
	const units, own = "/etc/systemd/system/", "/etc/kubernetes/"
	files := []string{inspect.StatusFile, path.Join(c.config.Agent.LogDir, "aks-flex-node.log"),
		"/etc/containerd/config.toml", host.OSRelease, "/etc/resolv.conf", "/etc/hosts",
		"/etc/hostname", "/etc/fstab", "/proc/version", "/proc/cmdline", "/proc/mounts",
		"/proc/meminfo", "/proc/loadavg", "/proc/swaps", "/proc/uptime", "/proc/net/route",
		"/proc/net/ipv6_route", "/proc/net/dev", "/proc/net/tcp", "/proc/pressure/memory",
		"/proc/pressure/io", "/proc/pressure/cpu", "/sys/fs/cgroup/cgroup.controllers",
		units + node.KubeletUnit, units + node.ContainerdUnit, units + node.NPDUnit,
		units + change.Service,
		"/usr/lib/systemd/system/" + change.Service,
	}
	settings := []string{".conf", ".conflist", ".json", ".toml", ".yaml", ".yml", ".env"}
	for _, record := range []string{
		saved.LedgerFile, saved.NodeLedgerFile, saved.TransitionFile, saved.RejectedFile,
		saved.JoinFile, saved.VersionFile, saved.BindingsFile, inspect.ArcFile, saved.HistoryFile,
	} {
		files = append(files, path.Join(saved.StateDir, record))
	}
	for _, dir := range []string{
		c.config.Paths.Kubernetes.ConfigDir, own + "kubelet.conf.d", "/etc/containerd/conf.d",
		"/etc/containerd/certs.d/_default", c.config.Paths.CNI.ConfDir,
		units + node.KubeletUnit + ".d", units + node.ContainerdUnit + ".d",
		units + change.Service + ".d",
		"/etc/sysctl.d", "/etc/modules-load.d", "/etc/tmpfiles.d",
	} {
		names, _ := c.Reader.List(dir) // a directory that is not there has no files
		for _, name := range names {
			if slices.Contains(settings, path.Ext(name)) {
				files = append(files, path.Join(dir, name))
			}
		}
	}
	slices.Sort(files)
	for _, file := range slices.Compact(files) {
		if !c.ended(ctx, file) {
			c.file(file)
		}
	}
}

// adminFile returns the kubeconfig of the cluster's administrator, which is a secret as a whole.
func (c *collector) adminFile() string {
	return node.AdminKubeconfigPath(c.config.Paths.Kubernetes.ConfigDir)
}

// file adds a file of the machine; it ignores a missing one.
func (c *collector) file(name string) {
	in, err := c.Reader.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var text []byte
	if err == nil {
		defer in.Close()
		text, err = io.ReadAll(io.LimitReader(in, largest+1))
	}
	switch {
	case err != nil:
		c.archive.Omit(name, err)
	case name == c.adminFile():
		c.archive.Omit(name, errors.New("the whole file is a secret"))
	case len(text) > largest:
		c.archive.Omit(name, fmt.Errorf("it is larger than %d MiB", largest>>20))
	default:
		c.archive.Add("files"+name, string(text))
	}
}

const largest = 16 << 20

// knowSecrets finds all secrets on this machine, which are redacted wherever they appear.
func (c *collector) knowSecrets() {
	know := func(cfg config.Config) {
		c.redactor.Know(cfg.Secrets()...)
		if sp := cfg.Azure.ServicePrincipal; sp != nil {
			c.knowFile(sp.ClientSecretFile)
			c.knowFile(sp.CertificateFile)
		}
	}
	know(c.config)
	if c.given.Input != nil {
		know(c.given.Input.Config)
	}
	for _, s := range c.Saved.Secrets {
		c.redactor.Know(s.BootstrapToken.Reveal(), s.ClientSecret.Reveal())
		c.knowText([]byte(s.AdminKubeconfig.Reveal()))
	}
	kubelet := c.config.Paths.Kubernetes.KubeletDir
	secrets := path.Join(saved.StateDir, saved.SecretsFile)
	key := path.Join(saved.StateDir, saved.MachineKeyFile)
	for _, file := range []string{saved.BundleFile, secrets, key, c.adminFile(),
		node.KubeconfigPath(kubelet), path.Join(kubelet, "bootstrap-kubeconfig")} {
		c.knowFile(file)
	}
	for _, dir := range []string{saved.RunDir, path.Join(kubelet, "pki"), "/var/opt/azcmagent/certs",
		"/var/opt/azcmagent/tokens"} {
		names, _ := c.Reader.List(dir)
		for _, name := range names {
			if name != path.Base(inspect.StatusFile) {
				c.knowFile(path.Join(dir, name))
			}
		}
	}
}

func (c *collector) knowFile(name string) {
	if data, err := c.Reader.ReadFile(name); err == nil && len(data) <= 1<<20 {
		c.knowText(data)
	}
}

func (c *collector) knowText(data []byte) {
	c.redactor.KnowText(data)
	if cfg, err := config.Read(data, nil); err == nil {
		c.redactor.Know(cfg.Config.Secrets()...)
	}
}
