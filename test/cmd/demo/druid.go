package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/quorate/quorate/test/harness"
	"github.com/quorate/quorate/test/harness/build"
)

// formLimit bounds the forming of etcd-druid's cluster. It takes 110 seconds, because each sidecar first asks for a
// cluster that has it as a member.
const formLimit = 6 * time.Minute

// patientlyEvery is how often it is said that something which takes minutes is still under way.
const patientlyEvery = 15 * time.Second

// withoutHosts says which host's sources are not to be had, long before one would be built.
func withoutHosts(ctx context.Context, source func(context.Context, build.Target) (string, error)) error {
	for _, host := range hosts {
		if _, err := source(ctx, host); err != nil {
			return fmt.Errorf("--scenario %q: %w", etcdDruid, err)
		}
	}
	return nil
}

// createEtcd starts etcd-druid, and has it make a cluster of today's versions.
func (d *demo) createEtcd(ctx context.Context) (err error) {
	began := time.Now()
	d.say("etcd-druid 0.37.1 starts as its chart installs it, with the webhook that protects what it owns")
	if d.druid, err = d.env.StartDruid(ctx); err != nil {
		return err
	}
	d.say("creating Etcd %s: %d replicas, TLS for clients and peers, backups every 10 s", clusterName, d.replicas)
	d.say("etcd-druid makes it into pods of etcd-wrapper 0.6.2 (etcd %s) and etcd-backup-restore 0.41.2; they take "+
		"two minutes to form a cluster, with or without Quorate", d.versions().from)
	if d.cluster, err = d.env.CreateEtcd(ctx, harness.Spec{Name: clusterName, Replicas: d.replicas}); err != nil {
		return err
	}
	d.journal = d.cluster.ReadLogs()
	forming, cancel := context.WithTimeoutCause(ctx, formLimit, fmt.Errorf("this took more than %v", formLimit))
	defer cancel()
	err = d.patiently(forming, func(ctx context.Context) error {
		if err := d.cluster.WaitReady(ctx); err != nil {
			return err
		}
		return d.content(ctx)
	})
	if err != nil {
		return err
	}
	d.outcome.starting += time.Since(began)
	d.say("etcd-druid is content. (Its column QUORATE says that there is a quorum. The name is a coincidence.)")
	return d.getEtcd(ctx)
}

// content waits until etcd-druid says of the Etcd that all is well.
func (d *demo) content(ctx context.Context) error {
	return until(ctx, "etcd-druid is content with the Etcd "+clusterName, func() bool {
		etcd, err := d.cluster.Etcd(ctx)
		return err == nil && allIsWell(etcd)
	})
}

// allIsWell by the columns of kubectl get etcd. They are unknown until etcd-druid has heard of every member, and of
// a backup.
func allIsWell(etcd *unstructured.Unstructured) bool {
	well := map[string]bool{}
	conditions, _, _ := unstructured.NestedSlice(etcd.Object, "status", "conditions")
	for _, c := range conditions {
		if condition, ok := c.(map[string]any); ok {
			well[fmt.Sprint(condition["type"])] = condition["status"] == "True"
		}
	}
	ready, _, _ := unstructured.NestedBool(etcd.Object, "status", "ready")
	return ready && well["Ready"] && well["AllMembersReady"] && well["BackupReady"]
}

// patiently says from time to time how many pods are Ready, while something waits for them.
func (d *demo) patiently(ctx context.Context, wait func(context.Context) error) error {
	began, ended := time.Now(), make(chan error, 1)
	go func() { ended <- wait(ctx) }()
	ticker := time.NewTicker(patientlyEvery)
	defer ticker.Stop()
	for {
		select {
		case err := <-ended:
			return err
		case <-ticker.C:
			pods, err := d.cluster.ListPods(ctx)
			if err != nil {
				continue // The waiting sees this too, and judges it.
			}
			ready := 0
			for i := range pods {
				if harness.IsReady(&pods[i]) {
					ready++
				}
			}
			d.say("%d of %d pods are Ready, after %.0f s", ready, d.replicas, time.Since(began).Seconds())
		}
	}
}

// makeWay does what docs/getting-started.md asks for before an Etcd opts in.
func (d *demo) makeWay(ctx context.Context) error {
	d.say("the policy of deploy/druid is installed, and the Role of deploy/druid/access; they change nothing yet")
	if err := d.env.InstallPolicy(ctx); err != nil {
		return err
	}
	if err := d.cluster.Grant(ctx); err != nil {
		return err
	}
	d.say("etcd-druid starts again with its feature gate UpgradeEtcdVersion")
	if err := d.druid.Restart(ctx, true); err != nil {
		return err
	}
	d.say("deploy/bootstrap-job.yaml is applied: today's sidecars have no Quorate, so a Job rolls the pods this once")
	return d.cluster.StartJob(ctx)
}

// changeEtcd is the one change: etcd and sidecars at once.
func (d *demo) changeEtcd(ctx context.Context) error {
	d.say("the Etcd gets the sidecar with Quorate, and opts in; etcd-druid makes one change of this and of the new " +
		"etcd, which takes it some seconds")
	patch := fmt.Sprintf(`{"spec":{"annotations":{%q:"true"},"backup":{"image":%q}}}`,
		harness.OptInAnnotation, harness.DropIn)
	return d.cluster.ChangeEtcd(ctx, fmt.Sprintf("kubectl patch etcd %s --type=merge --patch '%s'", clusterName, patch),
		patch)
}

// handToSidecars ends what was only for the first time, and waits until etcd-druid is content.
func (d *demo) handToSidecars(ctx context.Context) error {
	for _, pod := range d.cluster.Pods() {
		if version := d.cluster.EtcdVersion(ctx, pod); version != d.versions().to {
			return fmt.Errorf("%s runs etcd %s and not %s", pod, version, d.versions().to)
		}
	}
	d.say("the Job is deleted; from now on the sidecars roll every change of the Etcd")
	if err := d.cluster.DeleteJob(ctx); err != nil {
		return err
	}
	if err := d.content(ctx); err != nil {
		return err
	}
	return d.getEtcd(ctx)
}

// getEtcd shows what an operator of etcd-druid looks at.
func (d *demo) getEtcd(ctx context.Context) error {
	const shown = "kubectl get etcd " + clusterName
	d.env.Timeline.Note("operator", shown)
	cmd := exec.CommandContext(ctx, d.env.Binaries.Kubectl, "get", "etcd", clusterName,
		"--kubeconfig="+d.env.Plane.KubeconfigPath(), "--cache-dir="+filepath.Join(d.dir, "kubectl"))
	lines := &noting{note: func(line string) { d.env.Timeline.Note("kubectl", "%s", line) }}
	cmd.Stdout, cmd.Stderr = lines, lines
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", shown, err)
	}
	return nil
}
