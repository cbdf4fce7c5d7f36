package service

import (
	"context"
	"fmt"

	"github.com/Azure/AKSFlexNode/internal/rp/credential"
	"github.com/Azure/AKSFlexNode/internal/rp/seal"
	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

// Verified holds the findings about a backup.
type Verified struct {
	File   string `json:"file"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256,omitempty"`
	// Valid tells that a provider can be restored from it with the present keys.
	Valid    bool           `json:"valid"`
	Schema   int            `json:"schema,omitempty"`
	Revision int64          `json:"revision,omitempty"`
	Epoch    int64          `json:"epoch,omitempty"`
	Rows     map[string]int `json:"rows,omitempty"`
	// UnknownRows are of a newer release, which this one leaves alone.
	UnknownRows int `json:"unknownRows,omitempty"`
	// Boxes holds how much is sealed with each key, by its id.
	Boxes    map[string]int `json:"boxes,omitempty"`
	Problems []string       `json:"problems,omitempty"`
}

// maxProblems limits the problems of a backup that are listed one by one.
const maxProblems = 20

// VerifyBackup restores a backup into a directory of its own and reads all of it: its checksum,
// each row, and each secret, with the keys of a file. The error is why it could not be verified;
// what is wrong with it is in the answer.
func VerifyBackup(ctx context.Context, path, keysFile string) (Verified, error) {
	v, more := Verified{File: path}, 0
	bad := func(err error) {
		if len(v.Problems) == maxProblems {
			more++
			return
		}
		v.Problems = append(v.Problems, err.Error())
	}
	keys, err := seal.Load(keysFile)
	if err != nil {
		return v, err
	}
	file, err := store.CheckSnapshot(path)
	v.Bytes, v.SHA256 = file.Bytes, file.SHA256
	if err == nil {
		err = store.UseSnapshot(ctx, path, func(st *store.Store) error {
			contents, err := st.ReadAll(ctx, bad)
			v.Schema, v.Revision, v.Epoch = contents.Schema, contents.Revision, contents.Epoch
			v.Rows, v.UnknownRows = contents.Rows, contents.Unknown
			if err != nil {
				return err
			}
			v.Boxes, err = credential.OpenAll(ctx, st, &keys, bad)
			return err
		})
	}
	if ctx.Err() != nil {
		return v, ctx.Err()
	}
	if err != nil {
		bad(err)
	}
	if more > 0 {
		v.Problems = append(v.Problems, fmt.Sprintf("and %d more", more))
	}
	v.Valid = len(v.Problems) == 0
	return v, nil
}
