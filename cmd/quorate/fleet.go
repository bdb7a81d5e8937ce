package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	typedappsv1 "k8s.io/client-go/kubernetes/typed/apps/v1"
	typedcoordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/quorate/quorate/coordinator"
	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/pkg/options"
	"github.com/quorate/quorate/pkg/rollout"
)

// fleetFlags say which StatefulSets are meant, as kubectl's flags do.
type fleetFlags struct {
	all      bool
	selector string
}

func (f *fleetFlags) add(fs *pflag.FlagSet) {
	fs.BoolVarP(&f.all, "all-namespaces", "A", false, "every StatefulSet that Quorate rolls, in all namespaces")
	fs.StringVarP(&f.selector, "selector", "l", "",
		"StatefulSets with these labels of their own, such as app=etcd,tier!=test")
}

// many is true if more than one StatefulSet may be meant.
func (f *fleetFlags) many(args []string) bool { return f.all || f.selector != "" || len(args) > 1 }

func (f *fleetFlags) check(cmd *cobra.Command, o *options.Client, args []string) error {
	named := slices.Clone(args)
	if o.Kubernetes.StatefulSet != "" {
		named = append(named, o.Kubernetes.StatefulSet)
	}
	if _, err := labels.Parse(f.selector); err != nil {
		return badInput{fmt.Errorf("--selector: %q: %w; write it like app=etcd,tier!=test", f.selector, err)}
	}
	switch {
	case f.all && len(named) > 0:
		return badInput{fmt.Errorf("--all-namespaces: goes without a name; for %s alone, give its namespace: "+
			"%s -n NAMESPACE %s", named[0], cmd.CommandPath(), named[0])}
	case f.selector != "" && len(named) > 0:
		return badInput{fmt.Errorf("--selector: %q: goes without a name; give the labels, or %s", f.selector, named[0])}
	case len(args) > 1 && o.Kubernetes.StatefulSet != "":
		return badInput{fmt.Errorf("--statefulset: %q: the arguments name others; give one of them",
			o.Kubernetes.StatefulSet)}
	}
	return nil
}

// fleet reads many StatefulSets and their Leases.
type fleet struct {
	fleetFlags
	o *options.Client
	// names are the StatefulSets that are meant in the namespace; all are if it is empty.
	names []string
	// namespace is empty for all namespaces.
	namespace string
	sets      typedappsv1.StatefulSetsGetter
	leases    typedcoordinationv1.LeasesGetter
}

// reachFleet completes the options of a command about many StatefulSets.
func reachFleet(o *options.Client, flags fleetFlags, names []string) (*fleet, error) {
	o.Kubernetes.Many = true
	if err := o.Complete(os.Getenv); err != nil {
		return nil, badInput{err}
	}
	if err := o.Validate(); err != nil {
		return nil, badInput{err}
	}
	rc, err := o.Kubernetes.RESTConfig("quorate/" + version())
	if err != nil {
		return nil, badInput{err}
	}
	f := &fleet{fleetFlags: flags, o: o, names: names, namespace: o.Kubernetes.Namespace}
	if f.all {
		f.namespace = metav1.NamespaceAll
	}
	if f.sets, err = typedappsv1.NewForConfig(rc); err != nil {
		return nil, badInput{err}
	}
	if f.leases, err = typedcoordinationv1.NewForConfig(rc); err != nil {
		return nil, badInput{err}
	}
	return f, nil
}

// config is how to reach one of them.
func (f *fleet) config(namespace, name string) coordinator.Config {
	return coordinator.Config{
		Namespace: namespace, StatefulSet: name, RequestTimeout: f.o.RequestTimeout, Names: f.o.Kubernetes.Names(),
		StatefulSets: f.sets.StatefulSets(namespace), Leases: f.leases.Leases(namespace),
	}
}

// pageSize is how many objects a request asks for. A Lease with a full history has about 15 KB.
const pageSize = 1000

// pages calls list until there are no more pages. Each has the time of a request.
func (f *fleet) pages(ctx context.Context, o metav1.ListOptions,
	list func(context.Context, metav1.ListOptions) (more string, err error)) error {
	for o.Limit = pageSize; ; {
		one, cancel := context.WithTimeout(ctx, f.o.RequestTimeout)
		more, err := list(one, o)
		cancel()
		if err != nil || more == "" {
			return err
		}
		o.Continue = more
	}
}

// objectKey names an object in one of many namespaces.
type objectKey struct{ namespace, name string }

// readLeases returns the Leases of records, by their StatefulSets.
func (f *fleet) readLeases(ctx context.Context) (map[objectKey]*coordinationv1.Lease, error) {
	o := metav1.ListOptions{}
	if f.all {
		// The heartbeats of the nodes are most of the Leases of a large cluster.
		o.FieldSelector = "metadata.namespace!=kube-node-lease"
	}
	found := map[objectKey]*coordinationv1.Lease{}
	err := f.pages(ctx, o, func(ctx context.Context, o metav1.ListOptions) (string, error) {
		list, err := f.leases.Leases(f.namespace).List(ctx, o)
		if err != nil {
			return "", fmt.Errorf("list Leases %s: %w", f.where(), err)
		}
		for i := range list.Items {
			if name, ours := report.StatefulSetOf(&list.Items[i]); ours {
				found[objectKey{list.Items[i].Namespace, name}] = &list.Items[i]
			}
		}
		return list.Continue, nil
	})
	return found, err
}

// readSets returns the StatefulSets with the labels.
func (f *fleet) readSets(ctx context.Context) (map[objectKey]*appsv1.StatefulSet, error) {
	found := map[objectKey]*appsv1.StatefulSet{}
	err := f.pages(ctx, metav1.ListOptions{LabelSelector: f.selector},
		func(ctx context.Context, o metav1.ListOptions) (string, error) {
			list, err := f.sets.StatefulSets(f.namespace).List(ctx, o)
			if err != nil {
				return "", fmt.Errorf("list StatefulSets %s: %w", f.where(), err)
			}
			for i := range list.Items {
				found[objectKey{list.Items[i].Namespace, list.Items[i].Name}] = &list.Items[i]
			}
			return list.Continue, nil
		})
	return found, err
}

func (f *fleet) where() string {
	if f.namespace == metav1.NamespaceAll {
		return "in all namespaces"
	}
	return "in namespace " + f.namespace
}

// whose says whose StatefulSets they are, for when there is none.
func (f *fleet) whose() string {
	if f.selector != "" {
		return f.where() + " with the labels " + f.selector
	}
	return f.where()
}

// rows reads a row for each StatefulSet that is meant. All is in the Leases, in one page for a thousand of them. The
// StatefulSets themselves are read only to find those with some labels, and to tell one without a Lease from one that
// does not exist.
func (f *fleet) rows(ctx context.Context) (report.Fleet, error) {
	leases, err := f.readLeases(ctx)
	if err != nil {
		return report.Fleet{}, err
	}
	meant := map[objectKey]bool{}
	switch {
	case f.selector != "":
		sets, err := f.readSets(ctx)
		if err != nil {
			return report.Fleet{}, err
		}
		for key, set := range sets {
			meant[key] = leases[key] != nil || ours.is(set, f.o.Kubernetes.EtcdContainer)
		}
	case len(f.names) > 0:
		for _, name := range f.names {
			key := objectKey{f.namespace, name}
			if meant[key] = true; leases[key] == nil {
				if err := f.exists(ctx, key); err != nil {
					return report.Fleet{}, err
				}
			}
		}
	default:
		for key := range leases {
			meant[key] = true
		}
	}
	now, rows := time.Now(), report.Fleet{Items: []report.FleetRow{}}
	for key, is := range meant {
		if is {
			rows.Items = append(rows.Items, report.NewFleetRow(key.namespace, key.name, leases[key], now))
		}
	}
	rows.Sort()
	return rows, nil
}

// exists returns an error if there is no such StatefulSet.
func (f *fleet) exists(ctx context.Context, key objectKey) error {
	one, cancel := context.WithTimeout(ctx, f.o.RequestTimeout)
	defer cancel()
	_, err := f.sets.StatefulSets(key.namespace).Get(one, key.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return noSuch(ctx, f.config(key.namespace, key.name), err)
	case err != nil:
		return fmt.Errorf("get StatefulSet %s: %w", key.name, err)
	}
	return nil
}

// fleetEvery is how often a fleet is looked at, if nobody says otherwise: a thousand Leases are several megabytes.
const fleetEvery = 10 * time.Second

// many shows the status of a fleet.
func (f *statusFlags) many(cmd *cobra.Command, fl *fleet) error {
	if f.watch {
		return f.followMany(cmd, fl)
	}
	rows, err := fl.rows(cmd.Context())
	if err != nil {
		return err
	}
	if len(rows.Items) == 0 && f.table() {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: no coordinator has reported anything %s\n", name(cmd), fl.whose())
		return nil
	}
	if err := f.showMany(cmd.OutOrStdout(), rows); err != nil {
		return err
	}
	if rows.Waits() {
		return errWaiting
	}
	return nil
}

func (f *statusFlags) showMany(w io.Writer, rows report.Fleet) error {
	switch {
	case f.table():
		return rows.Table(w, time.Now(), f.output == outputWide)
	case f.output == outputName:
		for i := range rows.Items {
			if _, err := fmt.Fprintln(w, objectName(rows.Items[i].Name)); err != nil {
				return err
			}
		}
		return nil
	}
	return encode(w, f.output, "Fleet", rows)
}

// followMany shows a fleet until it is stopped. It redraws a terminal, and writes a line per change to anything else.
func (f *statusFlags) followMany(cmd *cobra.Command, fl *fleet) error {
	every := f.every
	if !cmd.Flags().Changed("every") {
		every = fleetEvery
	}
	ctx, ticks := cmd.Context(), time.NewTicker(every)
	defer ticks.Stop()
	last := map[objectKey]string{}
	failed := ""
	for {
		rows, err := fl.rows(ctx)
		switch {
		case ctx.Err() != nil:
			return nil // Asked to stop, as it always ends.
		case forGood(err):
			return err
		case err != nil:
			if failed != err.Error() {
				complain(cmd, fmt.Errorf("%w; looking again", err))
			}
			failed = err.Error()
		default:
			failed = ""
			if err := f.drawMany(cmd.OutOrStdout(), rows, last); err != nil {
				return err
			}
			if f.failOnHold && slices.ContainsFunc(rows.Items, func(r report.FleetRow) bool {
				return r.Action == rollout.ActionHold
			}) {
				return errWaiting
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticks.C:
		}
	}
}

// drawMany draws the table, or writes a line for each row that has changed, and remembers it.
func (f *statusFlags) drawMany(w io.Writer, rows report.Fleet, last map[objectKey]string) error {
	now := time.Now()
	if isTerminal(w) {
		var screen bytes.Buffer
		screen.WriteString(clearScreen)
		if err := rows.Table(&screen, now, f.output == outputWide); err != nil {
			return err
		}
		_, err := screen.WriteTo(w)
		return err
	}
	var errs []error
	say := func(line string) {
		_, err := fmt.Fprintln(w, line)
		errs = append(errs, err)
	}
	there := map[objectKey]bool{}
	for i := range rows.Items {
		row := &rows.Items[i]
		key := objectKey{row.Namespace, row.Name}
		if there[key] = true; last[key] != row.Key() {
			last[key] = row.Key()
			say(row.Line(now))
		}
	}
	for key := range last {
		if !there[key] {
			delete(last, key)
			say(fmt.Sprintf("%s  %s/%s  is gone", now.UTC().Format(time.RFC3339), key.namespace, key.name))
		}
	}
	return errors.Join(errs...)
}

// objectName is how kubectl -o name writes a StatefulSet.
func objectName(statefulSet string) string { return "statefulset.apps/" + statefulSet }
