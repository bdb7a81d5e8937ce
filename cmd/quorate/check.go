package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedauthenticationv1 "k8s.io/client-go/kubernetes/typed/authentication/v1"
	typedauthorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	typedpolicyv1 "k8s.io/client-go/kubernetes/typed/policy/v1"
	"k8s.io/client-go/rest"

	"github.com/quorate/quorate/coordinator"
	"github.com/quorate/quorate/internal/adoption"
	"github.com/quorate/quorate/internal/workload"
	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/pkg/options"
	"github.com/quorate/quorate/pkg/rollout"
)

var (
	errNotReady = errors.New("a check fails")
	errNotKnown = errors.New("a check could not be made")
)

type checkFlags struct {
	planFlags
	data    bool
	timeout time.Duration
}

func check() *cobra.Command {
	o := options.NewClient()
	o.Etcd.Endpoints, o.Etcd.Optional = nil, true // The pods' specs tell them.
	var f checkFlags
	cmd := &cobra.Command{
		Use:        "check [STATEFULSET…]",
		SuggestFor: []string{"doctor", "verify", "validate", "preflight", "lint"},
		Short:      "Say whether Quorate can roll a StatefulSet, and what is missing",
		Long: `Says whether everything is there that Quorate needs to roll the pods of a StatefulSet: each check
with what was found and what to do about it. It changes nothing, so it can be run before anything
is installed, after each step, and in a pipeline.

` + listOfChecks() + `
Each check passes, warns, fails, or is unknown because it could not be asked. A warning does not
keep Quorate from rolling the pods.

What the sidecars' ServiceAccount may do is asked of the API server: by
localsubjectaccessreviews if you may create them, else as that account if you may impersonate
it. In a pod of that account the account asks for itself. Etcd is asked as quorate plan asks it,
with the same flags. Where it cannot be asked, the output says how.

--data compares the members' data: the hash of all keys at one revision (HashKV). Each member
reads its whole database for that, so do it when there is little load.

With --filename it reads what kubectl and etcdctl have written, as quorate plan does. Files do
not tell what an account may do, nor the version of Kubernetes, nor whether etcd's
authentication is on, so these checks are unknown then.

  kubectl get statefulset,pods,lease,persistentvolumeclaims,poddisruptionbudgets,serviceaccounts \
    -n garden -o yaml > objects.yaml

Exit codes:
  0  ready: nothing fails, and everything could be asked
  1  not known: nothing fails, and something could not be asked; or the Kubernetes API cannot be
     read at all
  2  bad input: a flag, its value, a file, or no such StatefulSet
  3  not ready: a check fails
Of several StatefulSets, it is that of the worst: 3, then 1.`,
		Example: `  # What is missing before Quorate can roll this one?
  quorate check -n garden etcd-main

  # In a pipeline: which checks fail?
  quorate check -n garden etcd-main -o json | jq -r '.checks[] | select(.result=="fail") | .detail'`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: completeStatefulSets(o, anybodys),
		RunE:              func(cmd *cobra.Command, args []string) error { return f.run(cmd, o, args) },
	}
	fs := cmd.Flags()
	o.AddFlags(fs)
	o.AddEtcdFlags(fs)
	o.AddRolloutFlags(fs)
	f.addFiles(fs)
	fs.BoolVar(&f.data, "data", false, "compare the members' data as well: the hash of all keys at one revision")
	fs.DurationVar(&f.timeout, "data-timeout", time.Minute,
		"with --data: how long the members may take to answer (they read a gigabyte in some seconds)")
	fs.StringVar(&f.now, "now", "", "the time that ages are measured at, in RFC 3339 (default: the current time)")
	fs.StringVarP(&f.output, "output", "o", "table", "table, json or yaml")
	completeOutput(cmd, "table", "json", "yaml")
	return cmd
}

// listOfChecks are the checks, a line or two for each.
func listOfChecks() string {
	var b strings.Builder
	for _, c := range adoption.Checks {
		fmt.Fprintf(&b, "  %-15s %s\n", c.Name, c.For)
	}
	return b.String()
}

func (f *checkFlags) validate(o *options.Client, args []string) error {
	switch {
	case f.data && len(f.files) > 0:
		return errors.New("--data: goes with a live cluster; files have no data")
	case f.timeout <= 0:
		return fmt.Errorf("--data-timeout: %v: must be more than 0", f.timeout)
	case len(args) > 1 && o.Kubernetes.StatefulSet != "":
		return fmt.Errorf("--statefulset: %q: the arguments name others; give one of them", o.Kubernetes.StatefulSet)
	case len(args) > 1 && len(o.Etcd.Endpoints) > 0:
		return fmt.Errorf("--endpoints: goes with one StatefulSet, and there are %s", strings.Join(args, ", "))
	}
	return nil
}

func (f *checkFlags) run(cmd *cobra.Command, o *options.Client, args []string) error {
	if err := errors.Join(checkOutput(f.output, "table", "json", "yaml"), f.validate(o, args)); err != nil {
		return badInput{err}
	}
	f.called, f.assumeOnDelete = "check", true
	if f.data {
		f.called += " --data"
	}
	names := args
	if len(names) == 0 {
		names = []string{o.Kubernetes.StatefulSet}
	}
	var reports []*adoption.Report
	for _, one := range names {
		given := []string{one}
		if one == "" {
			given = nil
		}
		if len(names) > 1 {
			o.Kubernetes.StatefulSet = ""
		}
		r, err := f.examine(cmd, o, given)
		if err != nil {
			return err
		}
		reports = append(reports, r)
	}
	if err := f.show(cmd.OutOrStdout(), reports); err != nil {
		return err
	}
	known := true
	for _, r := range reports {
		if r.Verdict == adoption.NotReady {
			return errNotReady
		}
		known = known && r.Verdict == adoption.Ready
	}
	if !known {
		return errNotKnown
	}
	return nil
}

func (f *checkFlags) show(w io.Writer, reports []*adoption.Report) error {
	switch {
	case f.output != "table" && len(reports) == 1:
		return encode(w, f.output, "Check", reports[0])
	case f.output != "table":
		return encode(w, f.output, "Check", reports)
	}
	for i, r := range reports {
		if i > 0 {
			fmt.Fprintln(w)
		}
		if err := r.Write(w); err != nil {
			return err
		}
	}
	return nil
}

// examine reads everything about one StatefulSet, and makes the checks.
func (f *checkFlags) examine(cmd *cobra.Command, o *options.Client, args []string) (*adoption.Report, error) {
	c := &adoption.Cluster{Called: name(cmd), Names: o.Kubernetes.Names(), Unread: map[string]string{},
		User: o.Etcd.Username, Compare: f.data}
	f.beside = func(ctx context.Context, cfg coordinator.Config, dump *workload.Dump) error {
		return readBeside(ctx, o, cfg, dump, c)
	}
	f.ask = func(ctx context.Context, members *membership.Observer, m rollout.Membership) {
		var err error
		if c.Authentication, err = members.Authentication(ctx, m); err != nil {
			c.AuthenticationUnknown = err.Error()
		}
		if f.data {
			asking, cancel := context.WithTimeout(ctx, f.timeout)
			defer cancel()
			c.Revision, c.Hashes = members.Hashes(asking, m)
		}
	}
	b, err := f.basis(cmd, o, args)
	if err != nil {
		return nil, err
	}
	c.Dump, c.Set, c.State, c.Policy, c.Assumed, c.NotAsked = b.dump, b.set, b.state, b.policy, b.assumed, b.unheard
	if c.NotAsked != nil { // Whoever checks decides nothing.
		c.NotAsked.Why = strings.TrimSuffix(c.NotAsked.Why, noDecision)
	}
	c.AuthenticationUnknown = cmp.Or(c.AuthenticationUnknown, "etcd was not asked")
	if len(f.files) > 0 {
		unreadable(c)
	}
	return adoption.Examine(c), nil
}

// unreadable says what files do not tell. A kind of which there is no object may not have been asked for.
func unreadable(c *adoption.Cluster) {
	const no = "files do not tell it"
	c.Access.Unknown, c.KubernetesUnknown, c.AuthenticationUnknown = no, no, no
	for kind, n := range map[string]int{"persistentvolumeclaims": len(c.Dump.Claims),
		"poddisruptionbudgets": len(c.Dump.Budgets), "serviceaccounts": len(c.Dump.Accounts)} {
		if n == 0 {
			c.Unread[kind] = "the files have none; add " + kind + " to the command that writes them"
		}
	}
}

// readBeside reads what no plan needs, as far as this person may.
func readBeside(ctx context.Context, o *options.Client, cfg coordinator.Config, dump *workload.Dump,
	c *adoption.Cluster) error {
	rc, err := o.Kubernetes.RESTConfig("quorate/" + version())
	if err != nil {
		return badInput{err}
	}
	core, err := typedcorev1.NewForConfig(rc)
	if err != nil {
		return badInput{err}
	}
	policy, err := typedpolicyv1.NewForConfig(rc)
	if err != nil {
		return badInput{err}
	}
	reading, cancel := context.WithTimeout(ctx, cfg.RequestTimeout)
	defer cancel()
	unread := func(kind, verb string, err error) error {
		if workload.Denied(err) {
			c.Unread[kind] = "you may not " + verb + " " + kind + " in namespace " + cfg.Namespace
			return nil
		}
		return fmt.Errorf("%s %s: %w", verb, kind, err)
	}
	if claims, err := core.PersistentVolumeClaims(cfg.Namespace).List(reading, metav1.ListOptions{}); err == nil {
		dump.Claims = claims.Items
	} else if err = unread("persistentvolumeclaims", "list", err); err != nil {
		return err
	}
	if budgets, err := policy.PodDisruptionBudgets(cfg.Namespace).List(reading, metav1.ListOptions{}); err == nil {
		dump.Budgets = budgets.Items
	} else if err = unread("poddisruptionbudgets", "list", err); err != nil {
		return err
	}
	account := adoption.AccountFor(&dump.StatefulSets[0])
	found, err := core.ServiceAccounts(cfg.Namespace).Get(reading, account, metav1.GetOptions{})
	if err == nil {
		dump.Accounts = append(dump.Accounts, *found)
	} else if !apierrors.IsNotFound(err) {
		if err = unread("serviceaccounts", "get", err); err != nil {
			return err
		}
	}
	var v struct {
		GitVersion string `json:"gitVersion"`
	}
	data, err := core.RESTClient().Get().AbsPath("/version").SetHeader("Accept", "application/json").DoRaw(reading)
	if err == nil {
		err = json.Unmarshal(data, &v)
	}
	if c.Kubernetes = v.GitVersion; err != nil {
		c.KubernetesUnknown = err.Error()
	}
	self := isAccount(reading, rc, cfg.Namespace, account)
	if self && len(dump.Accounts) == 0 { // Whoever asks is that account, so it exists.
		delete(c.Unread, "serviceaccounts")
		dump.Accounts = []corev1.ServiceAccount{{ObjectMeta: metav1.ObjectMeta{Name: account,
			Namespace: cfg.Namespace}}}
	}
	needs := adoption.Needs(cfg.Namespace, cfg.StatefulSet, podNames(dump, cfg)...)
	c.Access, err = accessOf(reading, rc, needs, cfg.Namespace, account, self)
	if err != nil {
		return badInput{err}
	}
	return nil
}

// podNames are those of the pods that the StatefulSet has or is to have.
func podNames(dump *workload.Dump, cfg coordinator.Config) (names []string) {
	facts := workload.SetFacts(&dump.StatefulSets[0], cfg.Names)
	for n := range facts.Replicas {
		names = append(names, cfg.StatefulSet+"-"+strconv.Itoa(facts.Start+n))
	}
	return names
}

// accessOf asks what an account may do: as the account itself if this is one of its pods, else about it, else as
// somebody who impersonates it.
func accessOf(ctx context.Context, rc *rest.Config, needs []adoption.Need, namespace, account string, self bool) (
	adoption.Access, error) {
	client, err := typedauthorizationv1.NewForConfig(rc)
	if err != nil {
		return adoption.Access{}, err
	}
	impersonated := rest.CopyConfig(rc)
	impersonated.Impersonate = rest.ImpersonationConfig{UserName: userOf(namespace, account)}
	as, err := typedauthorizationv1.NewForConfig(impersonated)
	if err != nil {
		return adoption.Access{}, err
	}
	ways := []refused{refusedBy(client.LocalSubjectAccessReviews(namespace)),
		refusedToSelf(as.SelfSubjectAccessReviews())}
	if self {
		ways = []refused{refusedToSelf(client.SelfSubjectAccessReviews())}
	}
	for _, is := range ways {
		var access adoption.Access
		access, err = askEach(ctx, is, needs, account)
		if err == nil {
			return access, nil
		}
		if !workload.Denied(err) {
			return adoption.Access{Unknown: err.Error()}, nil
		}
	}
	return adoption.Access{Unknown: "you may neither create localsubjectaccessreviews nor impersonate it in " +
		"namespace " + namespace + "; ask an administrator of the namespace, or run this in a pod of that account"}, nil
}

func askEach(ctx context.Context, is refused, needs []adoption.Need, account string) (access adoption.Access, _ error) {
	for _, n := range needs {
		no, err := is(ctx, account, n.ResourceAttributes)
		if err != nil {
			return access, err
		}
		if no {
			access.Refused = append(access.Refused, n)
		}
	}
	return access, nil
}

// selfReviews ask the API server's authorizer what whoever asks may do. Everybody may do that.
type selfReviews interface {
	Create(ctx context.Context, review *authorizationv1.SelfSubjectAccessReview,
		options metav1.CreateOptions) (*authorizationv1.SelfSubjectAccessReview, error)
}

func refusedToSelf(api selfReviews) refused {
	return func(ctx context.Context, _ string, what authorizationv1.ResourceAttributes) (bool, error) {
		answer, err := api.Create(ctx, &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &what},
		}, metav1.CreateOptions{})
		if err != nil {
			return false, err
		}
		return !answer.Status.Allowed, nil
	}
}

// isAccount is true if whoever asks is that ServiceAccount.
func isAccount(ctx context.Context, rc *rest.Config, namespace, account string) bool {
	client, err := typedauthenticationv1.NewForConfig(rc)
	if err != nil {
		return false
	}
	review, err := client.SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{},
		metav1.CreateOptions{})
	return err == nil && review.Status.UserInfo.Username == userOf(namespace, account)
}

// userOf is the name under which the API server knows a ServiceAccount.
func userOf(namespace, account string) string {
	return "system:serviceaccount:" + namespace + ":" + account
}
