package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/quorate/quorate/coordinator"
	"github.com/quorate/quorate/internal/adoption"
	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/internal/workload"
	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/pkg/options"
	"github.com/quorate/quorate/pkg/rollout"
)

// defaultEndpoint is etcd's own default address, for where nothing is known of the members' addresses.
const defaultEndpoint = "http://127.0.0.1:2379"

// endpointsOf are the client URLs of the members, as far as the specs of their pods tell. Inside one of these pods the
// way of its own sidecar comes first, which is the nearest.
func endpointsOf(cfg coordinator.Config, pods []*corev1.Pod) (all []string) {
	if own := ownPod(cfg, pods); own != nil {
		all = sidecarsEndpoints(own)
	}
	for _, p := range pods {
		for _, u := range workload.ClientURLs(p, cfg.Names, sidecarsEndpoints(p)) {
			if !slices.Contains(all, u) {
				all = append(all, u)
			}
		}
	}
	return all
}

// podsOf are the StatefulSet's own pods, by name.
func podsOf(dump *workload.Dump, set *appsv1.StatefulSet, names workload.Names) (pods []*corev1.Pod) {
	facts := workload.SetFacts(set, names)
	for i := range dump.Pods {
		if p := &dump.Pods[i]; p.Namespace == set.Namespace && workload.PodFacts(p, facts, names).Owned {
			pods = append(pods, p)
		}
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return pods
}

// ownPod is the one of the pods that this process runs in, or nil.
func ownPod(cfg coordinator.Config, pods []*corev1.Pod) *corev1.Pod {
	if i := slices.IndexFunc(pods, func(p *corev1.Pod) bool { return p.Name == cfg.PodName }); i >= 0 {
		return pods[i]
	}
	return nil
}

// sidecarsEndpoints is how the container that runs Quorate reaches etcd.
func sidecarsEndpoints(p *corev1.Pod) []string {
	c := adoption.QuorateIn(&p.Spec)
	if c == nil {
		return nil
	}
	if list := workload.Setting(p, c, "endpoints", ""); list != "" {
		return strings.Split(list, ",")
	}
	return nil
}

// relays are the endpoints on this machine. Outside of the members' pods they are the near ends of port-forwards.
func relays(cfg coordinator.Config, pods []*corev1.Pod) (near []string) {
	if ownPod(cfg, pods) != nil {
		return nil
	}
	for _, text := range cfg.Endpoints {
		if u, err := url.Parse(text); err == nil && workload.Inside(u.Hostname()) {
			near = append(near, text)
		}
	}
	return near
}

// silentOf are the members that have said nothing.
func silentOf(m rollout.Membership) (silent []rollout.Member) {
	for _, x := range m.Members {
		if p := &x.Probe; p.Status == nil && !p.Replied && (p.Read == rollout.NotAsked || p.Read == rollout.Failed) {
			silent = append(silent, x)
		}
	}
	return silent
}

// noDecision is what follows for a plan.
const noDecision = ", so this is no decision"

// unheard says why too little came from etcd for a decision, or returns nil: no member has answered, or only those that
// a port-forward leads to, and not every member has one. A member that could have been asked and is silent is a fact.
// The program is called so, and verb is the command of it that asks, with its own flags.
func unheard(called, verb string, o *options.Client, cfg coordinator.Config, pods []*corev1.Pod,
	etcd rollout.Membership, failure error) *report.NotAsked {
	n := &report.NotAsked{}
	silent := silentOf(etcd)
	var none *membership.NoListError
	switch near := relays(cfg, pods); {
	case errors.As(failure, &none):
		n.Why = "no member of etcd answered" + noDecision
		if n.Details = none.Why; none.Replied {
			n.Why = "etcd refuses to say who its members are" + noDecision
		}
	case len(silent) == len(etcd.Members):
		n.Why = "etcd's member list is known, but no member answered at the address that it advertises" + noDecision
	case len(silent) > 0 && len(near) > 0 && len(near) < len(etcd.Members):
		n.Why = fmt.Sprintf("%d of %d members answered, and there is no port-forward to each",
			len(etcd.Members)-len(silent), len(etcd.Members)) + noDecision
	default:
		return nil
	}
	for _, m := range silent {
		n.Details = append(n.Details, rollout.Label(m.Name, m.ID)+" ("+strings.Join(m.ClientURLs, ", ")+
			"): "+m.Probe.Detail)
	}
	for i := range n.Details { // What gRPC says before the reason.
		n.Details[i] = strings.Replace(n.Details[i], "transport: Error while dialing: ", "", 1)
	}
	n.How = waysToAsk(called, verb, o, cfg, pods)
	return n
}

// waysToAsk are the commands by which this one can ask etcd.
func waysToAsk(called, verb string, o *options.Client, cfg coordinator.Config, pods []*corev1.Pod) (ways []report.Way) {
	if own := ownPod(cfg, pods); own != nil {
		if c := adoption.QuorateIn(&own.Spec); c != nil && binary(c) != "" {
			ways = append(ways, report.Way{Say: "To ask as the sidecar in this pod does",
				Run: []string{asSidecar(verb, cfg, own, c)}})
		}
	} else {
		if p, c := reachable(pods); p != nil {
			ways = append(ways, report.Way{Say: "To ask in a pod, as its sidecar does",
				Run: []string{fmt.Sprintf("kubectl exec -n %s %s -c %s -- %s", p.Namespace, p.Name, c.Name,
					asSidecar(verb, cfg, p, c))}})
		}
		if way := forwarded(called, verb, o, cfg, pods); len(way.Run) > 1 {
			ways = append(ways, way)
		}
	}
	return append(ways, report.Way{Say: "To see what Kubernetes and the last report say",
		Run: []string{called + " status" + arguments(cfg)}})
}

// reachable is a pod in which a container runs that has the quorate command, with that container.
func reachable(pods []*corev1.Pod) (*corev1.Pod, *corev1.Container) {
	for _, p := range pods {
		c := adoption.QuorateIn(&p.Spec)
		if c == nil || binary(c) == "" || p.DeletionTimestamp != nil {
			continue
		}
		if s := workload.StatusOf(p, c.Name); s != nil && s.State.Running != nil {
			return p, c
		}
	}
	return nil, nil
}

// binary is Quorate's program in the container, or empty in a host's, which has none. Quorate's own image has nothing
// else.
func binary(c *corev1.Container) string {
	line := slices.Concat(c.Command, c.Args)
	switch at := slices.Index(line, "sidecar"); {
	case at == 0:
		return "/quorate"
	case at > 0:
		return line[0]
	}
	return ""
}

// asSidecar is the command in a sidecar's container that reaches etcd as the sidecar does. A password on its command
// line is left out.
func asSidecar(verb string, cfg coordinator.Config, p *corev1.Pod, c *corev1.Container) string {
	command := binary(c) + " " + verb
	if !slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "POD_NAME" }) {
		command += arguments(cfg)
	}
	for _, flag := range []string{"config", "kubeconfig", "endpoints", "cacert", "cert", "key", "etcd-username"} {
		if value := workload.Setting(p, c, flag, ""); value != "" {
			command += " --" + flag + "=" + value
		}
	}
	for _, arg := range slices.Concat(c.Command, c.Args) {
		if strings.HasPrefix(arg, "--insecure-skip-tls-verify") {
			command += " " + arg
		}
	}
	return command
}

// firstLocalPort is that of the first pod's port-forward. It is out of the way of an etcd on this machine.
const firstLocalPort = 23790

// forwarded is the command through a port-forward to each pod.
func forwarded(called, verb string, o *options.Client, cfg coordinator.Config, pods []*corev1.Pod) report.Way {
	way := report.Way{Say: "To ask from here, through a port-forward to each pod"}
	var near []string
	encrypted := false
	for i, p := range pods {
		if p.Status.Phase != corev1.PodRunning {
			continue
		}
		scheme, port := "https", "2379"
		for _, text := range workload.ClientURLs(p, cfg.Names, sidecarsEndpoints(p)) {
			if u, err := url.Parse(text); err == nil {
				scheme, port = u.Scheme, u.Port()
				break
			}
		}
		encrypted = encrypted || scheme == "https"
		way.Run = append(way.Run, fmt.Sprintf("kubectl port-forward -n %s pod/%s %d:%s &", p.Namespace, p.Name,
			firstLocalPort+i, port))
		near = append(near, fmt.Sprintf("%s://127.0.0.1:%d", scheme, firstLocalPort+i))
	}
	if len(near) == 0 {
		return way
	}
	command := called + " " + verb + arguments(cfg) + " --endpoints=" + strings.Join(near, ",")
	if encrypted {
		way.Say += " (add --insecure-skip-tls-verify if the certificates do not name 127.0.0.1)"
		command += " --cacert=" + cmp.Or(o.Etcd.CACert, "CA.crt") + " --cert=" + cmp.Or(o.Etcd.Cert, "CLIENT.crt") +
			" --key=" + cmp.Or(o.Etcd.Key, "CLIENT.key")
	}
	way.Run = append(way.Run, command)
	return way
}

// missing says which of etcdctl's answers a plan from files lacks, or returns nil if it has all of them. again is the
// command that has made this plan.
func missing(d *membership.Dump, endpoints []string, again string) *report.NotAsked {
	etcdctl := "etcdctl "
	if len(endpoints) > 0 {
		etcdctl += "--endpoints=" + strings.Join(endpoints, ",") + " "
	}
	n := &report.NotAsked{Partly: true}
	var flags []string
	way := report.Way{Say: "To get it (where etcdctl reaches etcd, with --cacert, --cert and --key as there) and to " +
		"plan again"}
	lacks := func(detail, asks, flag, file string) {
		n.Details = append(n.Details, detail)
		way.Run = append(way.Run, etcdctl+asks+" -w json > "+file)
		again += " " + flag + "=" + file
		flags = append(flags, flag)
	}
	rows, healthy := healthOf(d.EndpointHealth)
	if d.MemberList == nil {
		detail := "without --member-list nobody knows who the members are"
		if n.Partly = rows > 0 && healthy == 0; n.Partly {
			detail += "; etcd without quorum does not tell etcdctl, but a plan without --filename asks each member " +
				"for the list that it has itself"
		}
		lacks(detail, "member list", "--member-list", "members.json")
	}
	if d.EndpointStatus == nil {
		lacks("without --endpoint-status nobody knows who leads, how far each member is behind, which version it "+
			"has, and whether etcd raises an alarm", "endpoint status --cluster", "--endpoint-status", "status.json")
	}
	if rows == 0 {
		n.Partly = false
		detail := "without --endpoint-health nobody knows which members serve"
		if d.EndpointHealth != nil {
			detail = "--endpoint-health has no endpoint in it, so nobody knows which members serve"
		}
		lacks(detail, "endpoint health --cluster", "--endpoint-health", "health.json")
	}
	switch len(flags) {
	case 0:
		return nil
	case 1:
		n.Why = flags[0] + " is missing" + noDecision
	default:
		n.Why = strings.Join(flags, ", ") + " are missing" + noDecision
	}
	way.Run = append(way.Run, again)
	n.How = []report.Way{way}
	return n
}

// healthOf counts the endpoints in the output of etcdctl endpoint health, which has one line for each that it has
// asked, and those of them that are healthy.
func healthOf(data []byte) (rows, healthy int) {
	var list []struct {
		Health bool `json:"health"`
	}
	if json.Unmarshal(data, &list) != nil {
		return 0, 0
	}
	for _, row := range list {
		if row.Health {
			healthy++
		}
	}
	return len(list), healthy
}
