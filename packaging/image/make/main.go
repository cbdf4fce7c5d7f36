// Command make writes the container image of flexnode-rp to a file. `make image` calls it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/Azure/AKSFlexNode/packaging/image"
)

func main() {
	var a image.About
	var created int64
	flag.StringVar(&a.Name, "name", "flexnode-rp", "the image's `name`, perhaps with a registry")
	flag.StringVar(&a.Version, "version", "dev", "version, and tag")
	flag.StringVar(&a.Commit, "commit", "unknown", "what it was built from")
	flag.Int64Var(&created, "created", 0, "its time, in `seconds` of Unix time")
	programs := flag.String("programs", "bin/image", "directory with ARCHITECTURE/flexnode-rp")
	out := flag.String("out", "bin/flexnode-rp-image.tar", "`file` to write")
	flag.Parse()
	a.Created = time.Unix(created, 0)
	digest, err := a.Write(context.Background(), *programs, *out)
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
	fmt.Println(*out, digest)
}
