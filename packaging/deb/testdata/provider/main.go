// Command provider stands for flexnode-rp, which would take lintian a while.
package main

import "fmt"

func main() { fmt.Println("# completion") }
