package config

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"reflect"
	"runtime"

	"github.com/Azure/AKSFlexNode/internal/regular"
)

const maxSize = 1 << 20 // max size of a configuration file; a full one has a few kilobytes

// Loaded holds the result of one read of a configuration file.
type Loaded struct {
	Config Config
	// Document is the canonical form of the bytes that Config was parsed from (Canonical).
	Document []byte
	Resource *Resource // its flexNodeConfig; nil if the file names none
	Warnings []Warning
}

// Load reads the configuration of this machine from a file. It refuses a file that users other than
// root can change (Trusted), and one with a secret that others can read. before is the applied
// configuration, or nil (Host). An error comes with the warnings; AsProblems lists its problems.
func Load(path string, before *Config) (Loaded, error) {
	// Checked before opening: if only root can change it now, only root can change it until then.
	untrusted := Trusted(path)
	data, info, err := read(path)
	if err != nil {
		return Loaded{}, err
	}
	loaded, err := Read(data, before)
	if problems, ok := errors.AsType[Problems](err); ok {
		err = fmt.Errorf("cannot use the configuration %s:\n%w", path, problems)
	}
	if errs := errors.Join(untrusted, private(path, info, loaded.Config), err); errs != nil {
		return Loaded{Warnings: loaded.Warnings}, errs
	}
	return loaded, nil
}

// Read parses the configuration of this machine from a document, as Load does.
func Read(data []byte, before *Config) (Loaded, error) {
	name, err := os.Hostname()
	if err != nil {
		return Loaded{}, fmt.Errorf("cannot read the host name: %w", err)
	}
	return Parse(data, Host{HostName: name, Arch: runtime.GOARCH, Before: before})
}

// read returns the content of a regular file, and its info from when it was opened.
func read(path string) ([]byte, fs.FileInfo, error) {
	f, info, err := regular.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w; write it, or name another file with --config", err)
	}
	var data []byte
	if err == nil {
		defer f.Close()
		data, err = io.ReadAll(io.LimitReader(f, maxSize+1))
	}
	if err != nil {
		return nil, nil, fmt.Errorf("cannot read the configuration: %w", err)
	}
	if len(data) > maxSize {
		return nil, nil, fmt.Errorf("cannot read the configuration %s: it is larger than 1 MiB", path)
	}
	return data, info, nil
}

// private refuses a configuration with a secret in a file that users other than its owner can read.
func private(path string, info fs.FileInfo, c Config) error {
	if len(c.Secrets()) == 0 || info.Mode().Perm()&0o077 == 0 {
		return nil
	}
	return fmt.Errorf("cannot use the configuration %s: it holds a secret and others can read it "+
		"(mode %s); run `chmod 600 %s`", path, octal(info.Mode()), ShellWord(path))
}

// Host holds the properties of a machine that its configuration depends on.
type Host struct {
	HostName string // the default of the Node's and the Arc machine's name
	Arch     string // amd64 or arm64
	// Before is the configuration applied on this machine, or nil. It provides settings that a
	// document leaves open and that were resolved then: the five versions, azure.kubeletCredential,
	// azure.arc.roles, azure.arc.machineName and agent.nodeName.
	Before *Config
}

// Parse reads a configuration, as JSON of Config or of the bundle {"config": {...}}, with aliases,
// and completes it. An unset kubernetes.version stays "", as do the versions whose defaults depend
// on it: the caller chooses (WithKubernetes). The error is of type Problems and holds all of them;
// with it, Config holds as much as could be read, and only the warnings are set besides.
func Parse(data []byte, host Host) (Loaded, error) {
	r := &report{}
	doc, from := settingsOf(readDocument(data, r), r)
	c := r.parse(doc, host)
	if err := r.err(c); err != nil {
		return Loaded{Config: c, Warnings: r.warnings}, err
	}
	document, err := canonical(doc)
	return Loaded{c, document, from, r.warnings}, err
}

// ParseDecoded is like Parse for a document decoded into maps, lists, strings, json.Number,
// booleans and nil. It replaces the aliases in the document, and writes to no object without one.
func ParseDecoded(document map[string]any, host Host) (Config, error) {
	r := &report{}
	doc, _ := settingsOf(document, r)
	c := r.parse(doc, host)
	return c, r.err(c)
}

func (r *report) parse(settings map[string]any, host Host) Config {
	c := defaults()
	// The applied versions stay: an agent with other defaults does not update the node.
	applied := cmp.Or(host.Before, &Config{}).versions()
	for i, v := range c.versions() {
		*v = cmp.Or(*applied[i], *v)
	}
	r.decode(spot{}, settings, reflect.ValueOf(&c).Elem())
	c.complete(host)
	c.check(host, r)
	return c
}

func (c Config) check(host Host, r *report) {
	settings := leaves(&c)
	applyRules(settings, r)
	checkDirs(settings, r)
	for _, check := range []func(Config, *report){
		checkAuth, checkCA, checkNode, checkWindow, checkNetwork, checkArtifacts,
	} {
		check(c, r)
	}
	if c.Azure.TargetAgentPoolName != "" {
		const idle = "has no effect yet: this release of the agent does not support it"
		r.warn("azure.targetAgentPoolName", idle)
	}
	checkVersions(c, host, r)
	r.need("azure.targetCluster.resourceId", c.Azure.TargetCluster.ResourceID != "",
		"must be set to the ARM id of the cluster")
	r.need("agent.nodeName", c.Agent.NodeName != "", "must be set: this machine has no host name")
}

func settingsOf(doc map[string]any, r *report) (settings map[string]any, from *Resource) {
	settings, origin := unwrap(doc, r)
	from = readResource(origin, r)
	rename(settings, r)
	return settings, from
}
