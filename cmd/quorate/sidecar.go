package main

import (
	"os"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"github.com/quorate/quorate/coordinator"
	"github.com/quorate/quorate/pkg/options"
	"github.com/quorate/quorate/pkg/page"
)

func sidecar() *cobra.Command {
	o := options.NewSidecar()
	cmd := &cobra.Command{
		Use:   "sidecar",
		Short: "Take part in the election, and roll the pods while elected",
		Long: `Runs beside an etcd member, in every pod of the StatefulSet. One of the sidecars is elected
and rolls outdated pods, one at a time: members that do not serve first, then followers, and
the leader last, after it has handed leadership over. It never takes the serving voters below
quorum.

The file that --config names may set every flag except --config, without its dashes:

  lock-ttl: 20s
  endpoints: [https://etcd-main-local:2379]

With wrong flags it ends with exit code 2. Whatever can be repaired while it runs is logged with
its reason and retried: etcd or the Kubernetes API cannot be reached, a permission is missing, or
the StatefulSet does not exist yet. A sidecar that gave up would only make its pod unready.

With --listen-address it serves /healthz for a liveness probe, which never fails because of
etcd or Kubernetes, /metrics for Prometheus, a status page at /, and the same in JSON at
/status.json. If the port is taken, it ends with exit code 1. On SIGTERM it releases its lock
and ends with exit code 0.

With --until-complete it ends like that when the rollout is complete, as quorate status --watch
judges that, whoever completed it and whenever. That is for a Job which rolls pods that have no
sidecar yet. While the rollout holds or is paused, the Job waits, and so it does while the
update strategy is not OnDelete. If it is told to end before that, the exit code is 1, so that
its Job is not taken for complete.`,
		Example: `  # As a container of an etcd-druid pod (POD_NAME and POD_NAMESPACE are set there):
  quorate sidecar --endpoints=https://etcd-main-local:2379 \
    --cacert=/var/etcd/ssl/ca/bundle.crt --cert=/var/etcd/ssl/client/tls.crt --key=/var/etcd/ssl/client/tls.key

  # From anywhere that reaches the members and the API, as a Job that ends with the rollout:
  quorate sidecar -e http://etcd-main-client:2379 --namespace=garden --statefulset=etcd-main --until-complete`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Complete(os.Getenv); err != nil {
				return badInput{err}
			}
			if err := o.Validate(); err != nil {
				return badInput{err}
			}
			log := logrus.NewEntry(o.Log.Logger())
			cfg, err := o.Config("quorate/"+version(), log)
			if err != nil {
				return badInput{err}
			}
			run := func(c *coordinator.Coordinator) error {
				if o.UntilComplete {
					return untilComplete(cmd.Context(), cfg, c.Run)
				}
				return c.Run(cmd.Context())
			}
			if o.ListenAddress == "" {
				c, err := coordinator.New(cfg)
				if err != nil {
					return badInput{err}
				}
				return run(c)
			}
			registry := newRegistry()
			cfg.Metrics = registry
			c, err := coordinator.New(cfg)
			if err != nil {
				return badInput{err}
			}
			listener, err := listen(o.ListenAddress)
			if err != nil {
				return err
			}
			defer page.Serve(listener, page.Handler(page.Config{
				Source: c, Gatherer: registry, Namespace: cfg.Namespace, StatefulSet: cfg.StatefulSet,
				PodName: cfg.PodName, Version: version(),
			}), log.WithField("actor", "quorate"))()
			return run(c)
		},
	}
	o.AddFlags(cmd.Flags())
	return cmd
}
