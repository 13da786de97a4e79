// The etcd server. Its own main package lives in a module that cannot be required by version, so this is it again.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
