// Command provider stands in for flexnode-rp, with which lintian would take long.
package main

import "fmt"

func main() { fmt.Println("# completion") }
