package harness

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// keyPrefix is where Quorate keeps its keys in the etcd it serves.
func (c *Cluster) keyPrefix() string { return "/quorate/" + Namespace + "/" + c.Spec.Name + "/" }

// etcd runs a function with a client of all members.
func (c *Cluster) etcd(f func(*clientv3.Client) error) error {
	client, err := c.client(c.Endpoints()...)
	if err != nil {
		return err
	}
	defer client.Close()
	return f(client)
}

// LockQueue are the pods whose sidecars wait for the lock, the owner first. A key whose
// sidecar is not present is named by the key's last element.
func (c *Cluster) LockQueue(ctx context.Context) ([]string, error) {
	var queue []string
	err := c.etcd(func(client *clientv3.Client) error {
		response, err := client.Get(ctx, c.keyPrefix(), clientv3.WithPrefix())
		if err != nil {
			return err
		}
		present := map[string]string{} // pod by the last element of the key
		slices.SortFunc(response.Kvs, func(a, b *mvccpb.KeyValue) int {
			return cmp.Compare(a.CreateRevision,
				b.CreateRevision)
		})
		for _, kv := range response.Kvs {
			if id, ok := strings.CutPrefix(string(kv.Key), c.keyPrefix()+"presence/"); ok {
				var presence struct{ Pod string }
				if err := json.Unmarshal(kv.Value, &presence); err != nil {
					return fmt.Errorf("%s: %q: %w", kv.Key, kv.Value, err)
				}
				present[id] = presence.Pod
			}
		}
		for _, kv := range response.Kvs {
			if id, ok := strings.CutPrefix(string(kv.Key), c.keyPrefix()+"lock/"); ok {
				queue = append(queue, cmp.Or(present[id], id))
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the lock of %s: %w", c.Spec.Name, err)
	}
	return queue, nil
}

// LockOwner waits until a sidecar has the lock and as many sidecars as there are pods are
// in the queue, and returns the owner's pod.
func (c *Cluster) LockOwner(ctx context.Context) (string, error) {
	owner := ""
	err := waitFor(ctx, "all sidecars of "+c.Spec.Name+" are in the queue for the lock",
		func(ctx context.Context) (bool, string) {
			queue, err := c.LockQueue(ctx)
			pods := 0
			for _, pod := range queue {
				if c.owns(pod) {
					pods++
				}
			}
			if err == nil && pods == len(c.Pods()) && c.owns(queue[0]) {
				owner = queue[0]
			}
			return owner != "", fmt.Sprint(queue, err)
		})
	return owner, err
}

// PutStaleLocks writes keys of the lock and of presence that no process keeps alive, as they come back
// from a backup: one without a lease, and one with a lease of this duration.
func (c *Cluster) PutStaleLocks(ctx context.Context, granted time.Duration) error {
	c.env.Timeline.Note("fault", "keys of %s that nobody keeps alive", c.Spec.Name)
	return c.etcd(func(client *clientv3.Client) error {
		lease, err := client.Grant(ctx, int64(granted/time.Second))
		if err != nil {
			return err
		}
		for id, of := range map[string]clientv3.LeaseID{"694d8c0ffee00000": clientv3.NoLease,
			"694d8c0ffee00001": lease.ID} {
			for key, value := range map[string]string{"lock/": "", "presence/": `{"pod":"somebody"}`} {
				if _, err := client.Put(ctx, c.keyPrefix()+key+id, value, clientv3.WithLease(of)); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// Present are the pods whose sidecars have a presence key.
func (c *Cluster) Present(ctx context.Context) ([]string, error) {
	var pods []string
	err := c.etcd(func(client *clientv3.Client) error {
		response, err := client.Get(ctx, c.keyPrefix()+"presence/", clientv3.WithPrefix())
		if err != nil {
			return err
		}
		for _, kv := range response.Kvs {
			var presence struct{ Pod string }
			if err := json.Unmarshal(kv.Value, &presence); err != nil {
				return fmt.Errorf("%s: %q: %w", kv.Key, kv.Value, err)
			}
			pods = append(pods, presence.Pod)
		}
		return nil
	})
	return pods, err
}

// Leases counts the leases in the cluster's etcd, and those of them that no key hangs on. Whoever was granted one
// without hearing of it does not put a key on it.
func (c *Cluster) Leases(ctx context.Context) (all, bare int, err error) {
	err = c.etcd(func(client *clientv3.Client) error {
		leases, err := client.Leases(ctx)
		if err != nil {
			return err
		}
		for _, l := range leases.Leases {
			now, err := client.TimeToLive(ctx, l.ID, clientv3.WithAttachedKeys())
			if err != nil {
				return err
			}
			if now.TTL < 0 {
				continue // It has gone meanwhile.
			}
			all++
			if len(now.Keys) == 0 {
				bare++
			}
		}
		return nil
	})
	return all, bare, err
}

// AddGhosts adds voters that are never started. Etcd refuses this unless it runs with
// --strict-reconfig-check=false.
func (c *Cluster) AddGhosts(ctx context.Context, n int) error {
	return c.etcd(func(client *clientv3.Client) error {
		for i := range n {
			url := fmt.Sprintf("%s://ghost-%d.invalid:2380", c.Spec.scheme(), i)
			c.env.Timeline.Note("fault", "a voter %s that never starts", url)
			if _, err := client.MemberAdd(ctx, []string{url}); err != nil {
				return fmt.Errorf("add ghost %s: %w", url, err)
			}
		}
		return nil
	})
}

// Spare is the name of a pod that the cluster never has.
func (c *Cluster) Spare() string { return c.Spec.podName(maxReplicas - 1) }

// AddGhost adds a voter that is never started, at the peer URL that a pod would have. Names have to resolve: Quorate
// knows such a ghost by the pod's name.
func (c *Cluster) AddGhost(ctx context.Context, pod string) error {
	url := c.env.peerURL(c.Spec, pod)
	c.env.Timeline.Note("fault", "a voter %s that never starts", url)
	return c.etcd(func(client *clientv3.Client) error {
		// It may be there from an attempt whose answer was lost.
		if _, err := client.MemberAdd(ctx, []string{url}); err != nil && !errors.Is(err, rpctypes.ErrPeerURLExist) {
			return fmt.Errorf("add ghost %s: %w", url, err)
		}
		return nil
	})
}

// Members are the names on the member list, empty for one that has never started.
func (c *Cluster) Members(ctx context.Context) ([]string, error) {
	var names []string
	err := c.etcd(func(client *clientv3.Client) error {
		list, err := client.MemberList(ctx)
		if err != nil {
			return err
		}
		for _, m := range list.Members {
			names = append(names, m.Name)
		}
		return nil
	})
	return names, err
}

// RemoveGhosts removes the members that have never started.
func (c *Cluster) RemoveGhosts(ctx context.Context) error {
	return c.removeMembers(ctx, func(name string) bool { return name == "" })
}

// RemoveMembers removes the members of the pods.
func (c *Cluster) RemoveMembers(ctx context.Context, pods ...string) error {
	return c.removeMembers(ctx, func(name string) bool { return slices.Contains(pods, name) })
}

func (c *Cluster) removeMembers(ctx context.Context, which func(name string) bool) error {
	return c.etcd(func(client *clientv3.Client) error {
		list, err := client.MemberList(ctx)
		if err != nil {
			return err
		}
		for _, m := range list.Members {
			if !which(m.Name) {
				continue
			}
			c.env.Timeline.Note("operator", "remove member %x %s %v", m.ID, m.Name, m.PeerURLs)
			if _, err := client.MemberRemove(ctx, m.ID); err != nil {
				return fmt.Errorf("remove member %x %s: %w", m.ID, m.Name, err)
			}
		}
		return nil
	})
}

// Scale changes the number of replicas, and the pod template with it, because etcd's flags name all
// members. change may change more. New pods join as learners, one for each, as with etcd-druid; see
// Promote. (etcd allows one learner. 3.6 has --max-learners for more.) The members of pods that are
// scaled away stay in the member list; see RemoveMembers.
func (c *Cluster) Scale(ctx context.Context, replicas int, change func(*corev1.PodTemplateSpec)) error {
	if err := c.env.room(ctx, c.Spec, replicas); err != nil {
		return err
	}
	err := c.etcd(func(client *clientv3.Client) error {
		for n := len(c.Pods()); n < replicas; n++ {
			url := c.env.peerURL(c.Spec, c.Spec.podName(n))
			// It may be there from an attempt whose answer was lost.
			if _, err := client.MemberAddAsLearner(ctx, []string{url}); err != nil &&
				!errors.Is(err, rpctypes.ErrPeerURLExist) {
				return fmt.Errorf("add learner %s: %w", url, err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	c.replicas.Store(int32(replicas))
	return c.Update(ctx, fmt.Sprintf("scale %s to %d", c.Spec.Name, replicas), func(set *appsv1.StatefulSet) {
		*set.Spec.Replicas = int32(replicas)
		args := etcdContainerOf(&set.Spec.Template).Args
		for i := range args {
			switch {
			case strings.HasPrefix(args[i], initialCluster):
				args[i] = initialCluster + c.env.initialCluster(c.Spec, replicas)
			case strings.HasPrefix(args[i], initialState):
				args[i] = initialState + "existing"
			}
		}
		if change != nil {
			change(&set.Spec.Template)
		}
	})
}

func etcdContainerOf(template *corev1.PodTemplateSpec) *corev1.Container {
	for i := range template.Spec.Containers {
		if template.Spec.Containers[i].Name == "etcd" {
			return &template.Spec.Containers[i]
		}
	}
	panic("the template has no container etcd") // The harness itself has made it.
}

// Promote makes the member of a pod a voter as soon as etcd accepts that it has caught up.
func (c *Cluster) Promote(ctx context.Context, pod string) error {
	return waitFor(ctx, "the member of "+pod+" is a voter", func(ctx context.Context) (bool, string) {
		err := c.etcd(func(client *clientv3.Client) error {
			list, err := client.MemberList(ctx)
			if err != nil {
				return err
			}
			for _, m := range list.Members {
				switch {
				case m.Name != pod:
				case m.IsLearner:
					_, err := client.MemberPromote(ctx, m.ID)
					return err
				default:
					return nil
				}
			}
			return errors.New("it has not started")
		})
		return err == nil, fmt.Sprint(err)
	})
}

// Fill writes until etcd raises the alarm NOSPACE. Give etcd a small --quota-backend-bytes.
func (c *Cluster) Fill(ctx context.Context) error {
	c.env.Timeline.Note("fault", "fill the quota of %s", c.Spec.Name)
	value := string(bytes.Repeat([]byte("x"), 512<<10))
	return c.etcd(func(client *clientv3.Client) error {
		for n := 0; ; n++ {
			_, err := client.Put(ctx, fmt.Sprintf("/fill/%d", n), value)
			if errors.Is(err, rpctypes.ErrNoSpace) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("fill the quota: %w", err)
			}
		}
	})
}

// Load writes so many MiB that stay.
func (c *Cluster) Load(ctx context.Context, mebibytes int) error {
	c.env.Timeline.Note("operator", "write %d MiB to %s", mebibytes, c.Spec.Name)
	value := string(bytes.Repeat([]byte("x"), 64<<10))
	return c.etcd(func(client *clientv3.Client) error {
		for n := range 16 * mebibytes {
			if err := putAgain(ctx, client, fmt.Sprintf("/load/%d", n), value); err != nil {
				return fmt.Errorf("load: %w", err)
			}
		}
		return nil
	})
}

// putAgain writes a key, and once more where a slow disk has let that time out.
func putAgain(ctx context.Context, client *clientv3.Client, key, value string) error {
	for tries := 1; ; tries++ {
		if _, err := client.Put(ctx, key, value); err == nil || tries == 5 || errors.Is(err, rpctypes.ErrNoSpace) {
			return err
		}
	}
}

// Waste writes so many MiB, deletes them and compacts the history, so that they are free in every member's database. It
// also deletes what [Cluster.Fill] has written. etcd permits both under an alarm NOSPACE, so with 0 it makes room
// there.
func (c *Cluster) Waste(ctx context.Context, mebibytes int) error {
	c.env.Timeline.Note("operator", "write and delete %d MiB in %s", mebibytes, c.Spec.Name)
	value := string(bytes.Repeat([]byte("x"), 512<<10))
	return c.etcd(func(client *clientv3.Client) error {
		for n := range 2 * mebibytes {
			if err := putAgain(ctx, client, fmt.Sprintf("/fill/%d", n%8), value); err != nil {
				return fmt.Errorf("waste: %w", err)
			}
		}
		// In two steps, because etcd tells what is free only after the next write.
		for _, from := range []string{"/fill/1", "/fill/"} {
			deleted, err := client.Delete(ctx, from, clientv3.WithRange("/fill0"))
			if err != nil {
				return fmt.Errorf("delete what fills the quota: %w", err)
			}
			if _, err := client.Compact(ctx, deleted.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
				return fmt.Errorf("compact: %w", err)
			}
		}
		return nil
	})
}

// Alarms counts the alarms that there are.
func (c *Cluster) Alarms(ctx context.Context) (n int, err error) {
	err = c.etcd(func(client *clientv3.Client) error {
		answer, err := client.AlarmList(ctx)
		if err == nil {
			n = len(answer.Alarms)
		}
		return err
	})
	return n, err
}

// DisarmAlarms ends all alarms.
func (c *Cluster) DisarmAlarms(ctx context.Context) error {
	c.env.Timeline.Note("operator", "disarm the alarms of %s", c.Spec.Name)
	return c.etcd(func(client *clientv3.Client) error {
		_, err := client.AlarmDisarm(ctx, &clientv3.AlarmMember{})
		return err
	})
}

// EtcdMessages counts what the pod's member has received from clients since its process
// started, by service and method ("KV/Range"). Every message of a stream counts, so a
// keepalive is one.
func (c *Cluster) EtcdMessages(ctx context.Context, pod string) (map[string]int, error) {
	return c.etcdCounts(ctx, pod, map[string]int{"grpc_server_msg_received_total": 1})
}

// EtcdStreams counts the streams that clients have open at the pod's member, by service and method. etcd waits for
// them when it is told to end.
func (c *Cluster) EtcdStreams(ctx context.Context, pod string) (map[string]int, error) {
	counts, err := c.etcdCounts(ctx, pod,
		map[string]int{"grpc_server_started_total": 1, "grpc_server_handled_total": -1})
	maps.DeleteFunc(counts, func(_ string, n int) bool { return n == 0 })
	return counts, err
}

// etcdCounts adds up gRPC's counters with these names and factors.
func (c *Cluster) etcdCounts(ctx context.Context, pod string, counters map[string]int) (map[string]int, error) {
	url := "http://" + net.JoinHostPort(c.reach(pod), strconv.Itoa(c.env.ports.metrics))
	if c.etcds != nil {
		url = c.Endpoint(pod) // There, etcd-wrapper listens at that port.
	}
	url += "/metrics"
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: c.tls.Clone()}}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: %s", url, response.Status)
	}
	return parseCounts(response.Body, counters)
}

// parseCounts adds up counters of Prometheus' text format.
func parseCounts(metrics io.Reader, counters map[string]int) (map[string]int, error) {
	counts := map[string]int{}
	lines := bufio.NewScanner(metrics)
	for lines.Scan() {
		name, labels, ok := strings.Cut(lines.Text(), "{")
		factor := counters[name]
		if !ok || factor == 0 {
			continue
		}
		labels, value, ok := strings.Cut(labels, "} ")
		if !ok {
			return nil, fmt.Errorf("metric without a value: %q", lines.Text())
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", lines.Text(), err)
		}
		service := label(labels, "grpc_service")
		if n > 0 {
			counts[service[strings.LastIndexByte(service, '.')+1:]+"/"+label(labels, "grpc_method")] += factor * int(n)
		}
	}
	return counts, lines.Err()
}

// label reads one of a metric's labels; none of gRPC's holds a quote.
func label(labels, name string) string {
	_, rest, _ := strings.Cut(labels, name+`="`)
	value, _, _ := strings.Cut(rest, `"`)
	return value
}
