package kubetest

import (
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	ktesting "k8s.io/client-go/testing"
)

// confine applies the policy of rbac-provider.yaml to Secrets: the provider can delete only those
// that it created, and a Secret of another type, which it tries only in a dry run, is refused.
func (c *Cluster) confine() {
	c.PrependReactor("create", "secrets", func(a ktesting.Action) (bool, runtime.Object, error) {
		create := a.(ktesting.CreateActionImpl)
		secret := create.GetObject().(*corev1.Secret)
		if len(create.CreateOptions.DryRun) > 0 {
			return true, nil, refused(secret.Name)
		}
		c.Groups.Store(string(secret.Data["token-id"]), string(secret.Data["auth-extra-groups"]))
		return false, nil, nil
	})
	c.PrependReactor("delete", "secrets", func(a ktesting.Action) (bool, runtime.Object, error) {
		remove := a.(ktesting.DeleteActionImpl)
		secret, err := c.Tracker().Get(a.GetResource(), a.GetNamespace(), remove.Name)
		if err == nil && secret.(*corev1.Secret).Data["auth-extra-groups"] == nil {
			return true, nil, refused(remove.Name)
		}
		return len(remove.DeleteOptions.DryRun) > 0, nil, err
	})
}

func refused(name string) error {
	return apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Secret").GroupKind(), name, nil)
}
