package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// LoseVolume empties the volumes of a pod, as if new ones took their place. An etcd that runs on them is killed. The
// pod need not exist.
func (c *Cluster) LoseVolume(ctx context.Context, pod string) error {
	set, err := c.env.Client.AppsV1().StatefulSets(Namespace).Get(ctx, c.Spec.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("empty the volumes of %s: %w", pod, err)
	}
	c.env.Timeline.Note("fault", "the volumes of %s are lost", pod)
	for i := range set.Spec.VolumeClaimTemplates {
		dir := c.env.Nodes.ClaimDir(Namespace, set.Spec.VolumeClaimTemplates[i].Name+"-"+pod)
		if err := Empty(dir); err != nil {
			return err
		}
	}
	if _, runs := c.env.Nodes.PID(pod, "etcd"); !runs {
		return nil
	}
	err = c.env.Nodes.KillContainer(pod, "etcd", syscall.SIGKILL)
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	return err
}

// DropVolumes removes what is in the volumes and backups of a cluster that was deleted. Etcd reserves 128 MB for the
// log of each member, so the disk of a small machine would soon be full.
func (c *Cluster) DropVolumes(ctx context.Context) error {
	claims, err := c.env.Client.CoreV1().PersistentVolumeClaims(Namespace).List(ctx,
		metav1.ListOptions{LabelSelector: labelSelector(c.Spec)})
	if err != nil {
		return fmt.Errorf("drop the volumes of %s: %w", c.Spec.Name, err)
	}
	for i := range claims.Items {
		err = errors.Join(err, os.RemoveAll(c.env.Nodes.ClaimDir(Namespace, claims.Items[i].Name)))
	}
	if c.etcds != nil {
		err = errors.Join(err, os.RemoveAll(c.Backups()))
	}
	return err
}

// Empty removes what is in a folder, and leaves the folder itself.
func Empty(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, entry := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, entry.Name())))
	}
	return err
}

// WaitBackedUp waits until the snapshots of an Etcd have everything up to a revision, by the Leases on which
// etcd-backup-restore notes how far they go.
func (c *Cluster) WaitBackedUp(ctx context.Context, revision int64) error {
	return waitFor(ctx, fmt.Sprintf("the backup of %s has revision %d", c.Spec.Name, revision),
		func(ctx context.Context) (bool, string) {
			full, delta := c.snapshotLease(ctx, "full"), c.snapshotLease(ctx, "delta")
			return max(full.revision, delta.revision) >= revision,
				fmt.Sprintf("%d and %d", full.revision, delta.revision)
		})
}

// WaitFullSnapshot waits until a full snapshot has been taken after that time. The Lease has whole seconds.
func (c *Cluster) WaitFullSnapshot(ctx context.Context, after time.Time) error {
	return waitFor(ctx, "a full snapshot of "+c.Spec.Name+" is taken", func(ctx context.Context) (bool, string) {
		at := c.snapshotLease(ctx, "full").at
		return at.After(after), "the last one is of " + at.String()
	})
}

type snapshotNote struct {
	revision int64
	at       time.Time
}

// snapshotLease reads what is noted of the last snapshot of a kind. What cannot be read is as if nothing were noted.
func (c *Cluster) snapshotLease(ctx context.Context, kind string) (note snapshotNote) {
	lease, err := c.env.Client.CoordinationV1().Leases(Namespace).Get(ctx, c.Spec.Name+"-"+kind+"-snap",
		metav1.GetOptions{})
	if err != nil {
		lease = &coordinationv1.Lease{}
	}
	if lease.Spec.HolderIdentity != nil {
		note.revision, _ = strconv.ParseInt(*lease.Spec.HolderIdentity, 10, 64)
	}
	if lease.Spec.RenewTime != nil {
		note.at = lease.Spec.RenewTime.Time
	}
	return note
}

// LoseAllMembers deletes what tells etcd-backup-restore that there were members before: the Leases of the members and
// all volumes. It is what etcd-druid's own page on quorum that is lost for good says, with its annotation that lets an
// administrator do so. The Etcd must have no pods.
func (c *Cluster) LoseAllMembers(ctx context.Context, replicas int) error {
	unprotected := func(value string) error {
		_, err := c.etcds.Patch(ctx, c.Spec.Name, types.MergePatchType, fmt.Appendf(nil,
			`{"metadata":{"annotations":{"druid.gardener.cloud/disable-etcd-component-protection":%s}}}`, value),
			metav1.PatchOptions{})
		return err
	}
	if err := unprotected(`""`); err != nil {
		return err
	}
	err := waitFor(ctx, "the Leases of the members are deleted", func(ctx context.Context) (bool, string) {
		err := c.env.Client.CoordinationV1().Leases(Namespace).DeleteCollection(ctx, metav1.DeleteOptions{},
			metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=etcd-member-lease," +
				"app.kubernetes.io/part-of=" + c.Spec.Name})
		return err == nil, fmt.Sprint(err) // Etcd-druid has not seen the annotation yet.
	})
	for n := range replicas {
		err = errors.Join(err, c.LoseVolume(ctx, c.Spec.podName(n)))
	}
	return errors.Join(err, unprotected("null"))
}

// WaitGone waits until the cluster has no pods.
func (c *Cluster) WaitGone(ctx context.Context) error {
	return waitFor(ctx, "all pods of "+c.Spec.Name+" are gone", func(ctx context.Context) (bool, string) {
		pods, err := c.ListPods(ctx)
		return err == nil && len(pods) == 0, fmt.Sprintf("%d left (%v)", len(pods), err)
	})
}

// JobLogs are the paths of the logs of all pods so far whose names begin like this.
func (c *Cluster) JobLogs(prefix string) []string {
	paths, _ := filepath.Glob(filepath.Join(c.env.Nodes.LogDir(prefix+"*"), "*.log")) // Only a malformed pattern fails.
	return paths
}
