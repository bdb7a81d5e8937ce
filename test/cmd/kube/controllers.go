package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/scale"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/controller-manager/app"
	"k8s.io/controller-manager/pkg/clientbuilder"
	"k8s.io/controller-manager/pkg/informerfactory"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/certificates/rootcacertpublisher"
	"k8s.io/kubernetes/pkg/controller/disruption"
	"k8s.io/kubernetes/pkg/controller/endpointslice"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
	"k8s.io/kubernetes/pkg/controller/job"
	"k8s.io/kubernetes/pkg/controller/namespace"
	"k8s.io/kubernetes/pkg/controller/nodelifecycle"
	"k8s.io/kubernetes/pkg/controller/serviceaccount"
	"k8s.io/kubernetes/pkg/controller/statefulset"
	"k8s.io/kubernetes/pkg/controller/volume/pvcprotection"
)

// Worker counts and periods are kube-controller-manager's defaults, so that the
// controllers interleave here as they do in a cluster.
const (
	statefulSetWorkers      = 5
	garbageCollectorWorkers = 20
	namespaceWorkers        = 10
	jobWorkers              = 5
	endpointSliceWorkers    = 5

	garbageCollectorSync  = 30 * time.Second
	restMapperReset       = 30 * time.Second
	namespaceResync       = 5 * time.Minute
	informerResync        = 12 * time.Hour
	maxEndpointsPerSlice  = 100
	nodeStartupGrace      = time.Minute
	nodeEvictionRate      = 0.1
	nodeSecondaryRate     = 0.01
	nodeLargeCluster      = 50
	nodeUnhealthyFraction = 0.55
)

// controllerNamespace holds the ServiceAccounts of the controllers, to which the
// API server's bootstrap policy binds the roles system:controller:*.
const controllerNamespace = "kube-system"

type controllersOptions struct {
	kubeconfig   string
	controllers  []string
	readyFile    string
	featureGates string

	nodeMonitorPeriod      time.Duration
	nodeMonitorGracePeriod time.Duration
}

// run is what a controller does once all informers have been requested; it returns
// when the context ends.
type run func(ctx context.Context)

// constructor builds one controller and requests its informers from the factory.
type constructor func(ctx context.Context, env *environment) (run, error)

// constructors holds every controller that this program can run, by the short
// names that kube-controller-manager's --controllers takes.
var constructors = map[string]constructor{
	"statefulset":            newStatefulSet,
	"disruption":             newDisruption,
	"garbagecollector":       newGarbageCollector,
	"job":                    newJob,
	"serviceaccount":         newServiceAccount,
	"root-ca-cert-publisher": newRootCAPublisher,
	"namespace":              newNamespace,
	"pvc-protection":         newPVCProtection,
	"endpointslice":          newEndpointSlice,
	"nodelifecycle":          newNodeLifecycle,
}

// offByDefault: without node heartbeats (Leases in kube-node-lease) the node
// lifecycle controller declares every node lost.
var offByDefault = sets.NewString("nodelifecycle")

func controllerNames() []string {
	names := make([]string, 0, len(constructors))
	for name := range constructors {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func controllersMain(args []string) int {
	options, err := parseControllersFlags(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintln(os.Stderr, "kube controllers:", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	defer klog.Flush()
	if err := runControllers(ctx, options); err != nil && ctx.Err() == nil {
		klog.ErrorS(err, "Controllers failed")
		return 1
	}
	return 0
}

func parseControllersFlags(args []string) (controllersOptions, error) {
	var options controllersOptions
	flags := flag.NewFlagSet("kube controllers", flag.ContinueOnError)
	flags.StringVar(&options.kubeconfig, "kubeconfig", "", "`path` of the kubeconfig of user system:kube-controller-manager; required")
	controllers := flags.String("controllers", "*", "comma-separated `list` of controllers: '*' all that are on by default, 'name' on, '-name' off.\n"+
		"All: "+strings.Join(controllerNames(), ", ")+"; off by default: "+strings.Join(offByDefault.List(), ", "))
	flags.StringVar(&options.featureGates, "feature-gates", "", "`Name=true|false` pairs, comma-separated")
	flags.StringVar(&options.readyFile, "ready-file", "", "`path` of a file to create when all informers have synced; none by default")
	flags.DurationVar(&options.nodeMonitorPeriod, "node-monitor-period", 5*time.Second, "how often nodelifecycle looks at the nodes")
	flags.DurationVar(&options.nodeMonitorGracePeriod, "node-monitor-grace-period", 50*time.Second, "after how long without a heartbeat nodelifecycle takes a node for lost")
	klog.InitFlags(flags)
	if err := flags.Parse(args); err != nil {
		return options, err
	}
	if flags.NArg() > 0 {
		return options, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if options.kubeconfig == "" {
		return options, errors.New("--kubeconfig is missing; name the kubeconfig of user system:kube-controller-manager")
	}
	options.controllers = strings.Split(*controllers, ",")
	for _, name := range options.controllers {
		if _, known := constructors[strings.TrimPrefix(name, "-")]; !known && name != "*" {
			return options, fmt.Errorf("--controllers names %q, which this program does not have; it has %s", name, strings.Join(controllerNames(), ", "))
		}
	}
	if options.featureGates != "" {
		if err := utilfeature.DefaultMutableFeatureGate.Set(options.featureGates); err != nil {
			return options, fmt.Errorf("--feature-gates %q: %w", options.featureGates, err)
		}
	}
	return options, nil
}

// environment is what the controllers share.
type environment struct {
	options controllersOptions
	// clients gives every controller the identity of its own ServiceAccount, and so
	// exactly the rights it has in a cluster.
	clients           clientbuilder.ControllerClientBuilder
	informers         informers.SharedInformerFactory
	metadataInformers metadatainformer.SharedInformerFactory
	metadata          metadata.Interface
	restMapper        meta.ResettableRESTMapper
	informersStarted  chan struct{}
	rootCA            []byte
}

func newEnvironment(ctx context.Context, options controllersOptions) (*environment, error) {
	config, err := clientcmd.BuildConfigFromFlags("", options.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig %q: %w", options.kubeconfig, err)
	}
	if len(config.CAData) == 0 {
		if config.CAData, err = os.ReadFile(config.CAFile); err != nil {
			return nil, fmt.Errorf("--kubeconfig %q: certificate-authority: %w", options.kubeconfig, err)
		}
	}
	// The controllers of one small cluster cannot flood the API server; a client-side
	// limit would only stretch the tests.
	config.QPS = -1
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON

	root := clientbuilder.SimpleControllerClientBuilder{ClientConfig: config}
	rootClient, err := root.Client("shared-informers")
	if err != nil {
		return nil, err
	}
	metadataConfig, err := root.Config("metadata-informers")
	if err != nil {
		return nil, err
	}
	metadataClient, err := metadata.NewForConfig(metadataConfig)
	if err != nil {
		return nil, err
	}
	discoveryClient, err := root.DiscoveryClient("controller-discovery")
	if err != nil {
		return nil, err
	}
	restMapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(discoveryClient))
	go wait.Until(restMapper.Reset, restMapperReset, ctx.Done())

	return &environment{
		options:           options,
		clients:           clientbuilder.NewDynamicClientBuilder(rest.AnonymousClientConfig(config), rootClient.CoreV1(), controllerNamespace),
		informers:         informers.NewSharedInformerFactoryWithOptions(rootClient, informerResync, informers.WithTransform(dropManagedFields)),
		metadataInformers: metadatainformer.NewSharedInformerFactoryWithOptions(metadataClient, informerResync, metadatainformer.WithTransform(dropManagedFields)),
		metadata:          metadataClient,
		restMapper:        restMapper,
		informersStarted:  make(chan struct{}),
		rootCA:            config.CAData,
	}, nil
}

// dropManagedFields keeps the caches small: no controller here reads the field.
func dropManagedFields(object any) (any, error) {
	if accessor, err := meta.Accessor(object); err == nil {
		accessor.SetManagedFields(nil)
	}
	return object, nil
}

func runControllers(ctx context.Context, options controllersOptions) error {
	env, err := newEnvironment(ctx, options)
	if err != nil {
		return err
	}
	var runs []run
	for _, name := range controllerNames() {
		if !app.IsControllerEnabled(name, offByDefault, options.controllers) {
			continue
		}
		controller, err := constructors[name](ctx, env)
		if err != nil {
			return fmt.Errorf("construct controller %s: %w", name, err)
		}
		klog.InfoS("Starting controller", "controller", name)
		runs = append(runs, controller)
	}
	for _, controller := range runs {
		go controller(ctx)
	}
	env.informers.Start(ctx.Done())
	env.metadataInformers.Start(ctx.Done())
	close(env.informersStarted)

	for informer, synced := range env.informers.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return fmt.Errorf("informer for %s has not synced: %w", informer, ctx.Err())
		}
	}
	klog.InfoS("All informers have synced")
	if options.readyFile != "" {
		if err := createReadyFile(options.readyFile); err != nil {
			return err
		}
	}
	<-ctx.Done()
	// Nothing to wait for: all state of a controller is in the API.
	return nil
}

func createReadyFile(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("--ready-file %q: %w", path, err)
	}
	if err := os.WriteFile(path, []byte("ready\n"), 0o644); err != nil {
		return fmt.Errorf("--ready-file %q: %w", path, err)
	}
	return nil
}

func newStatefulSet(ctx context.Context, env *environment) (run, error) {
	client, err := env.clients.Client("statefulset-controller")
	if err != nil {
		return nil, err
	}
	controller := statefulset.NewStatefulSetController(ctx,
		env.informers.Core().V1().Pods(),
		env.informers.Apps().V1().StatefulSets(),
		env.informers.Core().V1().PersistentVolumeClaims(),
		env.informers.Apps().V1().ControllerRevisions(),
		client,
	)
	return func(ctx context.Context) { controller.Run(ctx, statefulSetWorkers) }, nil
}

func newDisruption(ctx context.Context, env *environment) (run, error) {
	client, err := env.clients.Client("disruption-controller")
	if err != nil {
		return nil, err
	}
	config, err := env.clients.Config("disruption-controller")
	if err != nil {
		return nil, err
	}
	scaleClient, err := scale.NewForConfig(config, env.restMapper, dynamic.LegacyAPIPathResolverFunc,
		scale.NewDiscoveryScaleKindResolver(client.Discovery()))
	if err != nil {
		return nil, err
	}
	controller := disruption.NewDisruptionController(ctx,
		env.informers.Core().V1().Pods(),
		env.informers.Policy().V1().PodDisruptionBudgets(),
		env.informers.Core().V1().ReplicationControllers(),
		env.informers.Apps().V1().ReplicaSets(),
		env.informers.Apps().V1().Deployments(),
		env.informers.Apps().V1().StatefulSets(),
		client, env.restMapper, scaleClient, client.Discovery(),
	)
	return controller.Run, nil
}

func newGarbageCollector(ctx context.Context, env *environment) (run, error) {
	const account = "generic-garbage-collector"
	client, err := env.clients.Client(account)
	if err != nil {
		return nil, err
	}
	discoveryClient, err := env.clients.DiscoveryClient(account)
	if err != nil {
		return nil, err
	}
	config, err := env.clients.Config(account)
	if err != nil {
		return nil, err
	}
	metadataClient, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	graph := garbagecollector.NewDependencyGraphBuilder(ctx, env.metadata, env.restMapper,
		garbagecollector.DefaultIgnoredResources(),
		informerfactory.NewInformerFactory(env.informers, env.metadataInformers),
		env.informersStarted)
	controller, err := garbagecollector.NewComposedGarbageCollector(ctx, client, metadataClient, env.restMapper, graph)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) {
		go controller.Sync(ctx, discoveryClient, garbageCollectorSync)
		controller.Run(ctx, garbageCollectorWorkers, garbageCollectorSync)
	}, nil
}

func newJob(ctx context.Context, env *environment) (run, error) {
	client, err := env.clients.Client("job-controller")
	if err != nil {
		return nil, err
	}
	// The last two are for a feature that is off by default (WorkloadWithJob).
	controller, err := job.NewController(ctx, client, env.informers.Core().V1().Pods(), env.informers.Batch().V1().Jobs(), nil, nil)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) { controller.Run(ctx, jobWorkers) }, nil
}

func newServiceAccount(ctx context.Context, env *environment) (run, error) {
	client, err := env.clients.Client("service-account-controller")
	if err != nil {
		return nil, err
	}
	controller, err := serviceaccount.NewServiceAccountsController(klog.FromContext(ctx),
		env.informers.Core().V1().ServiceAccounts(),
		env.informers.Core().V1().Namespaces(),
		client,
		serviceaccount.DefaultServiceAccountsControllerOptions(),
	)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) { controller.Run(ctx, 1) }, nil
}

func newRootCAPublisher(_ context.Context, env *environment) (run, error) {
	client, err := env.clients.Client("root-ca-cert-publisher")
	if err != nil {
		return nil, err
	}
	controller, err := rootcacertpublisher.NewPublisher(
		env.informers.Core().V1().ConfigMaps(),
		env.informers.Core().V1().Namespaces(),
		client, env.rootCA,
	)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) { controller.Run(ctx, 1) }, nil
}

func newNamespace(ctx context.Context, env *environment) (run, error) {
	client, err := env.clients.Client("namespace-controller")
	if err != nil {
		return nil, err
	}
	config, err := env.clients.Config("namespace-controller")
	if err != nil {
		return nil, err
	}
	metadataClient, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	controller := namespace.NewNamespaceController(ctx, client, metadataClient,
		client.Discovery().ServerPreferredNamespacedResources,
		env.informers.Core().V1().Namespaces(),
		namespaceResync, corev1.FinalizerKubernetes,
	)
	return func(ctx context.Context) { controller.Run(ctx, namespaceWorkers) }, nil
}

func newPVCProtection(ctx context.Context, env *environment) (run, error) {
	client, err := env.clients.Client("pvc-protection-controller")
	if err != nil {
		return nil, err
	}
	controller, err := pvcprotection.NewPVCProtectionController(klog.FromContext(ctx),
		env.informers.Core().V1().PersistentVolumeClaims(),
		env.informers.Core().V1().Pods(),
		client,
	)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) { controller.Run(ctx, 1) }, nil
}

func newEndpointSlice(ctx context.Context, env *environment) (run, error) {
	client, err := env.clients.Client("endpointslice-controller")
	if err != nil {
		return nil, err
	}
	controller := endpointslice.NewController(ctx,
		env.informers.Core().V1().Pods(),
		env.informers.Core().V1().Services(),
		env.informers.Core().V1().Nodes(),
		env.informers.Discovery().V1().EndpointSlices(),
		maxEndpointsPerSlice, client, 0,
	)
	return func(ctx context.Context) { controller.Run(ctx, endpointSliceWorkers) }, nil
}

func newNodeLifecycle(ctx context.Context, env *environment) (run, error) {
	client, err := env.clients.Client("node-controller")
	if err != nil {
		return nil, err
	}
	controller, err := nodelifecycle.NewNodeLifecycleController(ctx,
		env.informers.Coordination().V1().Leases(),
		env.informers.Core().V1().Pods(),
		env.informers.Core().V1().Nodes(),
		env.informers.Apps().V1().DaemonSets(),
		client,
		env.options.nodeMonitorPeriod, nodeStartupGrace, env.options.nodeMonitorGracePeriod,
		nodeEvictionRate, nodeSecondaryRate, nodeLargeCluster, nodeUnhealthyFraction,
	)
	if err != nil {
		return nil, err
	}
	return controller.Run, nil
}
