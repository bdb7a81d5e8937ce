// Package election elects one of the processes that serve the same etcd.
package election
