package options

import (
	"github.com/sirupsen/logrus"
	appsv1 "k8s.io/client-go/kubernetes/typed/apps/v1"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/quorate/quorate/coordinator"
)

// config joins how the cluster is reached with what is to be done there.
func config(k *Kubernetes, e *Etcd, r *Rollout, userAgent string, log *logrus.Entry) (coordinator.Config, error) {
	rc, err := k.RESTConfig(userAgent)
	if err != nil {
		return coordinator.Config{}, err
	}
	client, err := rest.HTTPClientFor(rc)
	if err != nil {
		return coordinator.Config{}, k.badKubeconfig(err)
	}
	apps, err := appsv1.NewForConfigAndClient(rc, client)
	if err != nil {
		return coordinator.Config{}, k.badKubeconfig(err)
	}
	core, err := corev1.NewForConfigAndClient(rc, client)
	if err != nil {
		return coordinator.Config{}, k.badKubeconfig(err)
	}
	coordination, err := coordinationv1.NewForConfigAndClient(rc, client)
	if err != nil {
		return coordinator.Config{}, k.badKubeconfig(err)
	}
	cfg := coordinator.Config{
		Namespace: k.Namespace, StatefulSet: k.StatefulSet, PodName: k.PodName, Names: k.Names(),
		Dial: e.Dial(r.ProbeTimeout), Endpoints: e.Endpoints,
		StatefulSets: apps.StatefulSets(k.Namespace), Pods: core.Pods(k.Namespace),
		Leases: coordination.Leases(k.Namespace), Events: core.Events(k.Namespace),
		Log: log,
	}
	r.ApplyTo(&cfg)
	return cfg, nil
}
