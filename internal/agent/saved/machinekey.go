package saved

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/Azure/AKSFlexNode/internal/config"
	"github.com/Azure/AKSFlexNode/internal/machinekey"
)

// MachineKeyFile is the key with which a machine authenticates to its provider, in StateDir. It is
// in no bundle, backup or log.
const MachineKeyFile = "machine-key.pem"

// MachineKey reads the key of the machine; nil if none.
func (r Records) MachineKey() (*machinekey.Key, error) {
	text, err := r.Read(MachineKeyFile)
	if err != nil || text == nil {
		return nil, err
	}
	return machinekey.Parse(text)
}

// Keys provides the machine's key, the secret that registers it, and its boot id.
type Keys struct {
	Writer Writer
	RunDir string // the directory of the boot id
	// Kubelet returns kubelet's client certificate with its key, in PEM; nil if it has none.
	Kubelet func(ctx context.Context) ([]byte, error)
	Writing *sync.Mutex // held while a process writes the key, or a bundle
}

// MachineKey returns the key, and creates it if needed. It is stored before a provider knows it.
func (k Keys) MachineKey(ctx context.Context) (*machinekey.Key, error) {
	k.Writing.Lock()
	defer k.Writing.Unlock()
	key, err := k.Writer.Records().MachineKey()
	if err != nil || key != nil {
		return key, err
	}
	text := string(machinekey.New().PEM())
	if err := k.Writer.Write(ctx, MachineKeyFile, text); err != nil {
		return nil, err
	}
	return k.Writer.Records().MachineKey() // another process may have created it first
}

// SignAsKubelet signs a statement as the node's kubelet; nil while kubelet has no certificate.
func (k Keys) SignAsKubelet(
	ctx context.Context, statement []byte,
) (certificate, signature []byte, err error) {
	pair, err := k.Kubelet(ctx)
	if err != nil || pair == nil {
		return nil, nil, err
	}
	certificate, signature, err = machinekey.SignAsKubelet(pair, statement)
	if err != nil { // a pair that cannot be used proves nothing
		return nil, nil, nil
	}
	return certificate, signature, nil
}

// EnrolmentSecret returns the secret in the bundle; "" if none.
func (k Keys) EnrolmentSecret() (string, error) {
	joining, err := k.Writer.Records().Joining()
	return joining.EnrolmentSecret, err
}

// Joining returns what the machine keeps from its configuration URL; zero for nothing.
func (r Records) Joining() (config.Joining, error) {
	bundle, err := r.Bundle()
	return config.JoiningOf(bundle), err
}

// BootFile is the boot id, in RunDir, which is lost by a reboot and not on a copied disk.
const BootFile = "boot-id"

// BootID returns the boot id, which the first process creates.
func (k Keys) BootID() (string, error) {
	name := filepath.Join(k.RunDir, BootFile)
	id, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		if err = k.makeBootID(name); err == nil {
			id, err = os.ReadFile(name)
		}
	}
	if err != nil {
		return "", fmt.Errorf("cannot read the boot id of the machine: %w", err)
	}
	return string(id), nil
}

// makeBootID writes an id, unless another process is first: two ids would look like two machines.
func (k Keys) makeBootID(name string) (err error) {
	if err := os.MkdirAll(k.RunDir, 0o700); err != nil {
		return err
	}
	temp, err := os.CreateTemp(k.RunDir, ".boot-*") // 0600
	if err != nil {
		return err
	}
	_, err = temp.WriteString(machinekey.NewBoot())
	if err = errors.Join(err, temp.Close()); err == nil {
		if err = os.Link(temp.Name(), name); errors.Is(err, fs.ErrExist) {
			err = nil
		}
	}
	return errors.Join(err, os.Remove(temp.Name()))
}
