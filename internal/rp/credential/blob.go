package credential

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/sas"

	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// Blobs is a Delivery through Azure Blob Storage: one blob for each credential, behind a service
// SAS for that blob alone, which expires with the credential. A URL is revoked by deletion of its
// blob, since a SAS itself cannot be. The provider does not seal blobs: the machine reads them
// directly.
type Blobs struct {
	container *container.Client
	store     *store.Store
	now       func() time.Time
}

// NewBlobs returns a Delivery in a private container, such as
// https://account.blob.core.windows.net/configs, with the account's key.
func NewBlobs(
	st *store.Store, now func() time.Time, containerURL, account, key string,
	transport azcore.ClientOptions,
) (*Blobs, error) {
	credential, err := container.NewSharedKeyCredential(account, key)
	if err != nil {
		return nil, fmt.Errorf("cannot use the storage account's key: %w", err)
	}
	client, err := container.NewClientWithSharedKeyCredential(containerURL, credential,
		&container.ClientOptions{ClientOptions: transport})
	if err != nil {
		return nil, fmt.Errorf("cannot use the blob container: %w", err)
	}
	return &Blobs{client, st, now}, nil
}

// The metadata of a blob.
const (
	blobVersion = "configversion"
	blobExpires = "expires" // RFC 3339
)

const blobSuffix = ".json"

func (b *Blobs) client(key string) *blockblob.Client {
	return b.container.NewBlockBlobClient(key + blobSuffix)
}

// Put implements Delivery: it uploads the blob at once, unless there is a newer one.
func (b *Blobs) Put(
	v *store.View, key string, text []byte, version int64, expires time.Time,
) error {
	for range uploads {
		done, err := b.upload(v.Context(), key, text, version, expires)
		if err != nil {
			return fmt.Errorf("cannot write the configuration to blob storage: %w", err)
		}
		if done {
			return nil
		}
	}
	return errors.New("cannot write the configuration to blob storage: others keep writing it")
}

// uploads limits the attempts of an upload that another writer overtakes.
const uploads = 5

// upload uploads a blob unless there is a newer one; false if the present one has changed.
func (b *Blobs) upload(
	ctx context.Context, key string, text []byte, version int64, expires time.Time,
) (bool, error) {
	var on blob.ModifiedAccessConditions
	switch got, err := b.client(key).GetProperties(ctx, nil); {
	case bloberror.HasCode(err, bloberror.BlobNotFound):
		on.IfNoneMatch = new(azcore.ETagAny)
	case err != nil:
		return false, err
	default:
		on.IfMatch = got.ETag
		there, err := strconv.ParseInt(metadata(got.Metadata, blobVersion), 10, 64)
		if err == nil && there > version {
			return true, nil
		}
	}
	_, err := b.client(key).UploadBuffer(ctx, text, &blockblob.UploadBufferOptions{
		HTTPHeaders: &blob.HTTPHeaders{
			BlobContentType: new("application/json"), BlobCacheControl: new("no-store"),
		},
		Metadata: map[string]*string{
			blobVersion: new(strconv.FormatInt(version, 10)),
			blobExpires: new(expires.UTC().Format(time.RFC3339)),
		},
		AccessConditions: &blob.AccessConditions{ModifiedAccessConditions: &on},
	})
	if bloberror.HasCode(err, bloberror.ConditionNotMet, bloberror.BlobAlreadyExists) {
		return false, nil
	}
	return err == nil, err
}

// metadata returns a value by its name, in any case.
func metadata(of map[string]*string, name string) string {
	for key, value := range of {
		if strings.EqualFold(key, name) && value != nil {
			return *value
		}
	}
	return ""
}

// URL implements Delivery.
func (b *Blobs) URL(key string, expires time.Time) (string, error) {
	url, err := b.client(key).GetSASURL(sas.BlobPermissions{Read: true}, expires, nil)
	if err != nil {
		return "", fmt.Errorf("cannot sign the configuration's URL: %w", err)
	}
	return url, nil
}

// Remove implements Delivery.
func (b *Blobs) Remove(ctx context.Context, key string) error {
	_, err := b.client(key).Delete(ctx, nil)
	if err != nil && !bloberror.HasCode(err, bloberror.BlobNotFound) {
		return fmt.Errorf("cannot delete the configuration from blob storage: %w", err)
	}
	return nil
}

// Sweep implements Delivery: it deletes expired blobs without a credential. It leaves blobs alone
// that do not have the provider's metadata.
func (b *Blobs) Sweep(ctx context.Context) error {
	pages := b.container.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{
		Include: container.ListBlobsInclude{Metadata: true},
	})
	var errs []error
	for pages.More() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return errors.Join(append(errs,
				fmt.Errorf("cannot list the configurations in blob storage: %w", err))...)
		}
		for _, item := range page.Segment.BlobItems {
			if key, ours := strings.CutSuffix(*item.Name, blobSuffix); ours {
				errs = append(errs, b.sweep(ctx, key, item.Metadata))
			}
		}
	}
	return errors.Join(errs...)
}

func (b *Blobs) sweep(ctx context.Context, key string, meta map[string]*string) error {
	expires, err := time.Parse(time.RFC3339, metadata(meta, blobExpires))
	if err != nil || b.now().Before(expires) {
		return nil
	}
	if row, err := b.store.Credentials.Get(ctx, key); err != nil || row.Exists() {
		return err
	}
	return b.Remove(ctx, key)
}
