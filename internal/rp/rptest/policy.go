package rptest

import (
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/testing"
)

// Confine has a fake API server treat Secrets as one with the policy of rbac-provider.yaml does: the
// provider can delete those alone that it created, whose groups it passes to made, and a Secret
// of another type that it tries to create is refused, which it does in a dry run only.
func Confine(c *fake.Clientset, made func(id, groups string)) {
	c.PrependReactor("create", "secrets", func(a testing.Action) (bool, runtime.Object, error) {
		create := a.(testing.CreateActionImpl)
		secret := create.GetObject().(*corev1.Secret)
		if len(create.CreateOptions.DryRun) > 0 {
			return true, nil, refused(secret.Name)
		}
		made(string(secret.Data["token-id"]), string(secret.Data["auth-extra-groups"]))
		return false, nil, nil
	})
	c.PrependReactor("delete", "secrets", func(a testing.Action) (bool, runtime.Object, error) {
		remove := a.(testing.DeleteActionImpl)
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
