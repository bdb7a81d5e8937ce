package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/coordinator"
	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/pkg/options"
	"github.com/quorate/quorate/pkg/record"
	"github.com/quorate/quorate/pkg/report"
	"github.com/quorate/quorate/pkg/rollout"
	"github.com/quorate/quorate/pkg/workload"
)

// exitWaiting is the exit code of a plan that holds or waits.
const exitWaiting = 3

// errWaiting ends the command with exitWaiting; everything has been said already.
var errWaiting = errors.New("the rollout holds or waits")

type planFlags struct {
	self, output, now                          string
	files                                      []string
	memberList, endpointStatus, endpointHealth string
	all                                        bool
}

func plan() *cobra.Command {
	o := options.NewClient()
	var f planFlags
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Show what would happen next, and why, with every guard's numbers",
		Long: `Shows what Quorate would do next and why: the rule that decides, every member with what
is known of it, and every guard's verdict for every pod that is a candidate. It changes
nothing.

Live, it reads the StatefulSet, its pods and the record's Lease, from a laptop with
kubectl's flags and context or in a pod, and asks every etcd member. Offline, it reads what standard tools print:

  kubectl get statefulset,pods,lease -n garden -o yaml > objects.yaml
  etcdctl member list -w json > members.json
  etcdctl endpoint status --cluster -w json > status.json
  etcdctl endpoint health --cluster -w json > health.json
  quorate plan -f objects.yaml --member-list members.json \
    --endpoint-status status.json --endpoint-health health.json

A file that is not given means that this witness is missing. Ages come from the objects'
timestamps; --now makes them reproducible.

With --all it shows every step of the rollout from here, assuming that every replaced pod
settles and nothing else happens.

Exit codes:
  0  something to do, complete, or nothing of Quorate's (idle)
  1  failure: the Kubernetes API cannot be read
  2  bad input: a flag, a file, or what is in it
  3  holding or waiting: the first line says for what (with --all: the first step)`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.output != "table" && f.output != "json" {
				return badInput{fmt.Errorf("--output: %q: use table or json", f.output)}
			}
			state, err := f.state(cmd.Context(), o, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			return f.show(cmd.OutOrStdout(), state, o.Policy)
		},
	}
	cmd.SetUsageFunc(usage)
	fs := cmd.Flags()
	o.AddFlags(fs)
	o.AddEtcdFlags(fs)
	o.AddRolloutFlags(fs)
	fs.StringSliceVarP(&f.files, "filename", "f", nil, "file with the StatefulSet, its pods and, if there is one, the record's Lease, as kubectl get -o yaml or -o json prints them; - for standard input; may be repeated")
	fs.StringVar(&f.memberList, "member-list", "", "file with the output of etcdctl member list -w json")
	fs.StringVar(&f.endpointStatus, "endpoint-status", "", "file with the output of etcdctl endpoint status -w json")
	fs.StringVar(&f.endpointHealth, "endpoint-health", "", "file with the output of etcdctl endpoint health -w json")
	fs.StringVar(&f.self, "self", "", "the coordinator's own pod, which goes last among equals (default: live, $POD_NAME; with --filename, none)")
	fs.StringVar(&f.now, "now", "", "the time to reckon ages from, in RFC 3339 (default: the current time)")
	fs.StringVarP(&f.output, "output", "o", "table", "table or json")
	fs.BoolVar(&f.all, "all", false, "show the whole predicted order, assuming that every replaced pod settles")
	return cmd
}

// state reads one observation, from files or live.
func (f *planFlags) state(ctx context.Context, o *options.Client, warnings io.Writer) (rollout.State, error) {
	now := time.Now()
	if f.now != "" {
		var err error
		if now, err = time.Parse(time.RFC3339, f.now); err != nil {
			return rollout.State{}, badInput{fmt.Errorf("--now: %q is not a time such as 2026-01-02T15:04:05Z", f.now)}
		}
	}
	var (
		dump workload.Dump
		etcd rollout.Membership
		err  error
	)
	if len(f.files) > 0 {
		if err = errors.Join(o.Load(), o.ValidateRollout()); err != nil {
			return rollout.State{}, badInput{err}
		}
		if etcd, err = f.offline(&dump); err != nil {
			return rollout.State{}, badInput{err}
		}
	} else {
		if f.memberList+f.endpointStatus+f.endpointHealth != "" {
			return rollout.State{}, badInput{errors.New("--member-list, --endpoint-status and --endpoint-health go with --filename: give the objects as well")}
		}
		if etcd, err = live(ctx, o, &dump, warnings); err != nil {
			return rollout.State{}, err
		}
		if f.self == "" {
			f.self = o.Kubernetes.PodName
		}
	}
	set, err := dump.Select(o.Kubernetes.Namespace, o.Kubernetes.StatefulSet)
	if err != nil {
		return rollout.State{}, badInput{fmt.Errorf("--filename: %w", err)}
	}
	names := workload.DefaultNames()
	facts := dump.Facts(set, names)
	return rollout.State{
		Set: facts.Set, Pods: facts.Pods, Etcd: etcd, Self: f.self,
		Controls: record.Controls(dump.Lease(set.Namespace, record.Name(set.Name))), Ages: dump.Ages(set, names, now),
	}, nil
}

func (f *planFlags) offline(dump *workload.Dump) (rollout.Membership, error) {
	for _, name := range f.files {
		if err := readObjects(name, dump); err != nil {
			return rollout.Membership{}, fmt.Errorf("--filename: %q: %w", name, err)
		}
	}
	var d membership.Dump
	for _, part := range []struct {
		flag, name string
		into       *[]byte
	}{
		{"--member-list", f.memberList, &d.MemberList},
		{"--endpoint-status", f.endpointStatus, &d.EndpointStatus},
		{"--endpoint-health", f.endpointHealth, &d.EndpointHealth},
	} {
		if part.name == "" {
			continue
		}
		data, err := os.ReadFile(part.name)
		if err != nil {
			return rollout.Membership{}, fmt.Errorf("%s: %w", part.flag, err)
		}
		*part.into = data
	}
	return d.Membership()
}

func readObjects(name string, dump *workload.Dump) error {
	if name == "-" {
		return dump.Read(os.Stdin)
	}
	file, err := os.Open(name)
	if err != nil {
		return errors.Unwrap(err) // The name is in the message already.
	}
	defer file.Close()
	return dump.Read(file)
}

// live reads the same from the cluster itself.
func live(ctx context.Context, o *options.Client, dump *workload.Dump, warnings io.Writer) (rollout.Membership, error) {
	if err := o.Complete(os.Getenv); err != nil {
		return rollout.Membership{}, badInput{err}
	}
	if err := o.Validate(); err != nil {
		return rollout.Membership{}, badInput{err}
	}
	cfg, err := o.Config("quorate/"+version(), nil)
	if err != nil {
		return rollout.Membership{}, badInput{err}
	}
	reading, cancel := context.WithTimeout(ctx, o.RequestTimeout)
	defer cancel()
	if err := readLive(reading, cfg, dump); err != nil {
		return rollout.Membership{}, err
	}
	members := membership.NewObserver(cfg.Dial, cfg.Endpoints, cfg.ProbeTimeout)
	defer members.Close()
	// Without a member list there is still a plan: it says that the voters are unknown.
	etcd, err := members.Observe(ctx)
	if err != nil {
		fmt.Fprintln(warnings, "quorate:", err)
	}
	return etcd, nil
}

// readLive fills the dump as kubectl would.
func readLive(ctx context.Context, cfg coordinator.Config, dump *workload.Dump) error {
	set, pods, err := workload.New(cfg.StatefulSets, cfg.Pods, cfg.StatefulSet, cfg.Names).Read(ctx)
	if err != nil {
		return err
	}
	lease, err := record.Read(ctx, cfg.Leases, cfg.StatefulSet)
	if err != nil {
		return err
	}
	dump.StatefulSets = append(dump.StatefulSets, *set)
	dump.Pods = append(dump.Pods, pods...)
	if lease != nil {
		dump.Leases = append(dump.Leases, *lease)
	}
	return nil
}

func (f *planFlags) show(w io.Writer, state rollout.State, policy rollout.Policy) error {
	decisions := []rollout.Decision{rollout.Decide(state, policy)}
	if f.all {
		decisions = rollout.Predict(state, policy)
	}
	plans := make([]report.Plan, len(decisions))
	for i, d := range decisions {
		plans[i] = report.NewPlan(d)
	}
	if err := render(w, f.output, f.all, plans); err != nil {
		return err
	}
	if first := decisions[0].Action; first == rollout.Hold || first == rollout.Wait {
		return errWaiting
	}
	return nil
}

func render(w io.Writer, output string, all bool, plans []report.Plan) error {
	if output == "json" {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		if all {
			return encoder.Encode(plans)
		}
		return encoder.Encode(plans[0])
	}
	if all {
		return report.Order(w, plans)
	}
	return plans[0].Table(w)
}
