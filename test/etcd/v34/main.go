package main

import "go.etcd.io/etcd/etcdmain"

func main() { etcdmain.Main() }
