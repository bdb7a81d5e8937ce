// Package bench measures what an update costs an etcd cluster: side by side, in one run on
// one machine, by what a user could choose ([Arms]), in what a cluster can be in ([Cases]).
//
// The files: arms and cases (what is compared), plan (in which order), estimate (for how long), trial (one update of
// one cluster), figures (what is read from it), elections (from etcd's own logs), run.
//
// Every trial has a new cluster. The trials of one case, leader and round follow each other
// in random order, so that whatever the machine does meanwhile falls on every arm alike:
// they are pairs. The sidecars run in every arm and do nothing where the update strategy is
// not OnDelete, so that the arms differ in nothing but who removes the pods.
package bench
