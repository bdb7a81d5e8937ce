package options

import (
	"github.com/sirupsen/logrus"
	appsv1 "k8s.io/client-go/kubernetes/typed/apps/v1"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	policyv1 "k8s.io/client-go/kubernetes/typed/policy/v1"
	"k8s.io/client-go/rest"

	"github.com/quorate/quorate/coordinator"
)

// config joins how the cluster is reached with what is to be done there.
func config(k *Kubernetes, e *Etcd, r *Rollout, userAgent string, log *logrus.Entry) (coordinator.Config, error) {
	rc, err := k.RESTConfig(userAgent)
	if err != nil {
		return coordinator.Config{}, err
	}
	cfg := coordinator.Config{
		Namespace: k.Namespace, StatefulSet: k.StatefulSet, PodName: k.PodName, Names: k.Names(),
		Dial: e.Dial(r.ProbeTimeout), Endpoints: e.Endpoints,
		Log: log,
	}
	if err := setClients(&cfg, rc); err != nil {
		return coordinator.Config{}, k.badKubeconfig(err)
	}
	r.ApplyTo(&cfg)
	return cfg, nil
}

// fitForCycles sets what is not a matter of where the API is.
func fitForCycles(rc *rest.Config) {
	rc.ContentType = "application/vnd.kubernetes.protobuf"
	// There are few cycles, and none may queue behind another. So never throttle here: the API server's
	// own priority and fairness does that.
	rc.QPS = -1
}

// setClients sets the Kubernetes API for the namespace. The clients share one connection.
func setClients(cfg *coordinator.Config, rc *rest.Config) error {
	client, err := rest.HTTPClientFor(rc)
	if err != nil {
		return err
	}
	apps, err := appsv1.NewForConfigAndClient(rc, client)
	if err != nil {
		return err
	}
	core, err := corev1.NewForConfigAndClient(rc, client)
	if err != nil {
		return err
	}
	coordination, err := coordinationv1.NewForConfigAndClient(rc, client)
	if err != nil {
		return err
	}
	policy, err := policyv1.NewForConfigAndClient(rc, client)
	if err != nil {
		return err
	}
	cfg.Budgets = policy.PodDisruptionBudgets(cfg.Namespace)
	cfg.StatefulSets, cfg.Pods = apps.StatefulSets(cfg.Namespace), core.Pods(cfg.Namespace)
	cfg.Nodes = core.Nodes()
	cfg.Leases, cfg.Events = coordination.Leases(cfg.Namespace), core.Events(cfg.Namespace)
	return nil
}
