package rp

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/sas"
)

// BlobBundles hands configurations out through Azure Blob Storage: a blob each, behind a service SAS for that blob alone. A URL is revoked
// by deleting its blob, because a SAS itself cannot be.
type BlobBundles struct {
	container *container.Client
}

// NewBlobBundles uses a private container, such as https://account.blob.core.windows.net/configs, with the account's key.
func NewBlobBundles(containerURL, account, key string, transport azcore.ClientOptions) (*BlobBundles, error) {
	credential, err := container.NewSharedKeyCredential(account, key)
	if err != nil {
		return nil, fmt.Errorf("cannot use the storage account's key: %w", err)
	}
	client, err := container.NewClientWithSharedKeyCredential(containerURL, credential, &container.ClientOptions{ClientOptions: transport})
	if err != nil {
		return nil, fmt.Errorf("cannot use the blob container: %w", err)
	}
	return &BlobBundles{client}, nil
}

func (b *BlobBundles) client(key string) *blockblob.Client {
	return b.container.NewBlockBlobClient(strings.TrimPrefix(key, "/") + ".json")
}

// Put implements Bundles.
func (b *BlobBundles) Put(ctx context.Context, key string, content []byte, _ time.Time) error {
	kind, cache := "application/json", "no-store"
	_, err := b.client(key).UploadBuffer(ctx, content, &blockblob.UploadBufferOptions{HTTPHeaders: &blob.HTTPHeaders{BlobContentType: &kind, BlobCacheControl: &cache}})
	if err != nil {
		return fmt.Errorf("cannot write the configuration to blob storage: %w", err)
	}
	return nil
}

// URL implements Bundles.
func (b *BlobBundles) URL(key string, expires time.Time) (string, error) {
	url, err := b.client(key).GetSASURL(sas.BlobPermissions{Read: true}, expires, nil)
	if err != nil {
		return "", fmt.Errorf("cannot sign the configuration's URL: %w", err)
	}
	return url, nil
}

// Delete implements Bundles.
func (b *BlobBundles) Delete(ctx context.Context, key string) error {
	_, err := b.client(key).Delete(ctx, nil)
	if err != nil && !bloberror.HasCode(err, bloberror.BlobNotFound) {
		return fmt.Errorf("cannot delete the configuration from blob storage: %w", err)
	}
	return nil
}
