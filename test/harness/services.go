package harness

import (
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// publishServices lets the names of Services lead to the pods behind them, as a cluster's DNS and kube-proxy do. A
// Service without such pods leads to its own address, which nobody has here.
func (e *Env) publishServices(ctx context.Context, n Links) (stop func(), err error) {
	var mu sync.Mutex
	slicesOf := map[string]*discoveryv1.EndpointSlice{} // by name
	clusterIPs := map[string]string{}                   // by the Service's name
	publish := func(name string) {
		var addresses []string
		for _, slice := range slicesOf {
			for _, endpoint := range slice.Endpoints {
				if ready := endpoint.Conditions.Ready; slice.Labels[discoveryv1.LabelServiceName] == name &&
					(ready == nil || *ready) {
					addresses = append(addresses, endpoint.Addresses...)
				}
			}
		}
		slices.Sort(addresses)
		if ip := clusterIPs[name]; len(addresses) == 0 && ip != "" && ip != corev1.ClusterIPNone {
			addresses = []string{ip}
		}
		if err := n.SetService(Namespace, name, slices.Compact(addresses)...); err != nil {
			e.Timeline.Note("harness", "publish the Service %s: %v", name, err)
		}
	}
	change := func(slice *discoveryv1.EndpointSlice, now *discoveryv1.EndpointSlice) {
		mu.Lock()
		defer mu.Unlock()
		if now == nil {
			delete(slicesOf, slice.Name)
		} else {
			slicesOf[slice.Name] = now
		}
		publish(slice.Labels[discoveryv1.LabelServiceName])
	}
	rename := func(of *corev1.Service, ip string) {
		mu.Lock()
		defer mu.Unlock()
		clusterIPs[of.Name] = ip
		publish(of.Name)
	}
	endpoints, all := e.Client.DiscoveryV1().EndpointSlices(Namespace), func(*metav1.ListOptions) {}
	stopSlices, err := follow(ctx, e.Client, endpoints.List, endpoints.Watch, all, &discoveryv1.EndpointSlice{},
		handler[*discoveryv1.EndpointSlice]{
			seen: func(s *discoveryv1.EndpointSlice, _ bool) { change(s, s) },
			gone: func(s *discoveryv1.EndpointSlice) { change(s, nil) },
		})
	if err != nil {
		return nil, fmt.Errorf("watch the EndpointSlices: %w", err)
	}
	services := e.Client.CoreV1().Services(Namespace)
	stopServices, err := follow(ctx, e.Client, services.List, services.Watch, all, &corev1.Service{},
		handler[*corev1.Service]{
			seen: func(s *corev1.Service, _ bool) { rename(s, s.Spec.ClusterIP) },
			gone: func(s *corev1.Service) { rename(s, "") },
		})
	if err != nil {
		stopSlices()
		return nil, fmt.Errorf("watch the Services: %w", err)
	}
	return func() { stopServices(); stopSlices() }, nil
}
