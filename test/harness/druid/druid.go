// Package druid runs the real etcd-druid beside the harness's control plane, as its chart installs it: with its
// CustomResourceDefinitions, its ClusterRole, its own ServiceAccount, its configuration file, and the webhook that
// protects what it owns.
//
// These things differ from a release in a cluster:
//
//   - It is a process with a place in the pods' network, but no pod. So the webhook's configuration names a URL and
//     not a Service, and it does not elect a leader, which is the chart's default too.
//   - The chart leaves the webhook off. It is on here, because installations that protect their clusters turn it on.
//   - The image of etcd-wrapper for etcd 3.5 is that of 0.7.0, by the file that IMAGEVECTOR_OVERWRITE names.
package druid

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/quorate/quorate/test/harness/objects"
	"github.com/quorate/quorate/test/harness/pki"
	"github.com/quorate/quorate/test/harness/process"
)

// The images of the pods that etcd-druid renders, by its own image vector.
const (
	registry = "europe-docker.pkg.dev/gardener-project/public/"

	// Wrapper34 has etcd 3.4.34 inside, Wrapper35 etcd 3.5.27.
	Wrapper34 = registry + "gardener/etcd-wrapper:v0.6.2"
	Wrapper35 = registry + "gardener/etcd-wrapper:v0.7.0"
	// BackupRestore is what etcd-druid renders beside Wrapper34, and BackupRestoreNext beside Wrapper35.
	BackupRestore     = registry + "gardener/etcdbrctl:v0.41.2"
	BackupRestoreNext = registry + "gardener/etcdbrctl:v0.43.0"
	// Alpine runs the init container that hands the folder of backups to etcd-backup-restore's user.
	Alpine = registry + "3rd/alpine:3.21.3"
)

// LocalStore is the path of a node with the backups of Etcds whose store is of the provider Local.
const LocalStore = "/etc/gardener/local-backupbuckets"

const (
	// Namespace is where etcd-druid's own objects are.
	Namespace = "etcd-druid"
	account   = "etcd-druid"

	webhookPort = 9443
	metricsPort = 8080

	// poll is how often the start looks whether it is done. Etcd-druid itself sleeps for ten seconds in it.
	poll = 100 * time.Millisecond
	// stopGrace is what a pod has.
	stopGrace = 30 * time.Second
	// tokenLife is longer than any test.
	tokenLife = 24 * time.Hour
)

// Etcds is the resource that etcd-druid reconciles.
var Etcds = schema.GroupVersionResource{Group: "druid.gardener.cloud", Version: "v1alpha1", Resource: "etcds"}

// Config says how to start it.
type Config struct {
	// Dir takes its configuration, certificates and log.
	Dir string
	// Binary is etcd-druid, and Source the folder with the sources it was built from.
	Binary, Source string
	// Address is where it listens, and the API server reaches it. Launcher, if any, comes before its command, so that
	// it runs where it has that address and knows the names of Services.
	Address  string
	Launcher []string
	// Admin is the cluster administrator's configuration. Everything is installed with it.
	Admin *rest.Config
	// UpgradeEtcdVersion is the feature gate. With it, etcd is 3.5.
	UpgradeEtcdVersion bool
}

// Operator is a running etcd-druid.
type Operator struct {
	config  Config
	files   files
	process *process.Process
}

// Start installs etcd-druid if it is not installed, starts it, and returns when its webhook listens. That is when its
// controllers start too.
func Start(ctx context.Context, config Config) (*Operator, error) {
	o := &Operator{config: config}
	if err := o.install(ctx); err != nil {
		return nil, fmt.Errorf("install etcd-druid: %w", err)
	}
	if err := o.start(ctx); err != nil {
		return nil, fmt.Errorf("start etcd-druid: %w", err)
	}
	return o, nil
}

// Log is the path of its log.
func (o *Operator) Log() string { return filepath.Join(o.config.Dir, "etcd-druid.log") }

// Stop ends it. Its objects stay, and with them its webhook, which nobody answers then.
func (o *Operator) Stop(ctx context.Context) error { return o.process.Stop(ctx, stopGrace) }

// Restart starts it again with other feature gates, as a change of the chart's values does.
func (o *Operator) Restart(ctx context.Context, upgradeEtcdVersion bool) error {
	o.config.UpgradeEtcdVersion = upgradeEtcdVersion
	err := o.Stop(ctx)
	if err == nil {
		err = o.configure()
	}
	if err == nil {
		err = o.start(ctx)
	}
	if err != nil {
		return fmt.Errorf("restart etcd-druid: %w", err)
	}
	return nil
}

// values are what we change of the chart's.
func (o *Operator) values() map[string]any {
	gates := map[string]any{"UpgradeEtcdVersion": o.config.UpgradeEtcdVersion}
	return map[string]any{
		"featureGates": gates,
		"operatorConfig": map[string]any{
			"featureGates": gates,
			"server": map[string]any{
				"webhooks": map[string]any{"port": webhookPort, "bindAddress": o.config.Address,
					"serverCertDir": filepath.Join(o.config.Dir, "tls")},
				"metrics": map[string]any{"port": metricsPort, "bindAddress": o.config.Address},
			},
			"webhooks": map[string]any{"etcdComponentProtection": map[string]any{"enabled": true}},
		},
	}
}

// install creates what the chart has, and writes the files that the process reads.
func (o *Operator) install(ctx context.Context) error {
	ca, err := pki.NewCA("etcd-druid")
	if err != nil {
		return err
	}
	cert, key, err := ca.Issue(pki.Request{CommonName: "etcd-druid", IPs: []net.IP{net.ParseIP(o.config.Address)},
		Server: true})
	if err != nil {
		return err
	}
	o.files = files{
		"pki-resources/ca.crt": ca.CertPEM(), "pki-resources/server.crt": cert, "pki-resources/server.key": key,
	}
	c, err := o.chart()
	if err != nil {
		return err
	}
	all, err := c.definitions()
	if err != nil {
		return err
	}
	rendered, err := c.render("serviceaccount.yaml", "clusterrole.yaml", "clusterrolebinding.yaml",
		"operatorconfigmap.yaml", "validatingwebhookconfig.yaml")
	if err != nil {
		return err
	}
	for _, object := range rendered {
		if object.GetKind() == "ValidatingWebhookConfiguration" {
			if err := o.atURL(object); err != nil {
				return err
			}
		}
	}
	if err := o.create(ctx, append(all, rendered...)); err != nil {
		return err
	}
	kubeconfig, err := o.kubeconfig(ctx)
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{
		"kubeconfig": kubeconfig, "images.yaml": []byte(imageVector), "tls/tls.crt": cert, "tls/tls.key": key,
	} {
		if err := o.write(name, content); err != nil {
			return err
		}
	}
	return o.configure()
}

func (o *Operator) chart() (*chart, error) {
	return openChart(filepath.Join(o.config.Source, "charts"), Namespace, o.values(), o.files)
}

// configure writes the operator's configuration, as the chart's ConfigMap has it.
func (o *Operator) configure() error {
	c, err := o.chart()
	if err != nil {
		return err
	}
	rendered, err := c.render("operatorconfigmap.yaml")
	if err != nil {
		return err
	}
	for _, object := range rendered {
		text, ok, err := unstructured.NestedString(object.Object, "data", "config.yaml")
		if ok && err == nil {
			return o.write("config.yaml", []byte(text))
		}
	}
	return errors.New("the chart has no configuration")
}

// write writes a file that the process reads.
func (o *Operator) write(name string, content []byte) error {
	path := filepath.Join(o.config.Dir, name)
	return errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, content, 0o600))
}

// imageVector replaces the release of etcd-wrapper that we do not have.
const imageVector = `images:
- name: etcd-wrapper-next
  repository: ` + registry + `gardener/etcd-wrapper
  tag: v0.7.0
`

// atURL lets the API server find the webhooks without a Service.
func (o *Operator) atURL(configuration *unstructured.Unstructured) error {
	webhooks, _, err := unstructured.NestedSlice(configuration.Object, "webhooks")
	if err != nil {
		return err
	}
	for _, webhook := range webhooks {
		client := webhook.(map[string]any)["clientConfig"].(map[string]any)
		path, _, err := unstructured.NestedString(client, "service", "path")
		if err != nil {
			return err
		}
		delete(client, "service")
		client["url"] = "https://" + net.JoinHostPort(o.config.Address, strconv.Itoa(webhookPort)) + path
	}
	return unstructured.SetNestedSlice(configuration.Object, webhooks, "webhooks")
}

// create creates the objects in a namespace of its own, and waits until Etcds are served.
func (o *Operator) create(ctx context.Context, all []*unstructured.Unstructured) error {
	own := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": Namespace}}}
	all = append([]*unstructured.Unstructured{own}, all...)
	if err := objects.Create(ctx, o.config.Admin, Namespace, all...); err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(o.config.Admin)
	if err != nil {
		return err
	}
	return wait.PollUntilContextCancel(ctx, poll, true, func(ctx context.Context) (bool, error) {
		_, err := client.Resource(Etcds).List(ctx, metav1.ListOptions{Limit: 1})
		return err == nil, nil // They are served a moment after they were defined.
	})
}

// kubeconfig is that of its ServiceAccount.
func (o *Operator) kubeconfig(ctx context.Context) ([]byte, error) {
	client, err := kubernetes.NewForConfig(o.config.Admin)
	if err != nil {
		return nil, err
	}
	seconds := int64(tokenLife / time.Second)
	token, err := client.CoreV1().ServiceAccounts(Namespace).CreateToken(ctx, account,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}},
		metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("token for %s: %w", account, err)
	}
	return clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"cluster": {Server: o.config.Admin.Host,
			CertificateAuthorityData: o.config.Admin.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{account: {Token: token.Status.Token}},
		Contexts:       map[string]*clientcmdapi.Context{"cluster": {Cluster: "cluster", AuthInfo: account}},
		CurrentContext: "cluster",
	})
}

// start starts the process and waits until it serves.
func (o *Operator) start(ctx context.Context) (err error) {
	o.process, err = process.Start(process.Spec{
		Name: "etcd-druid", Path: o.config.Binary,
		Args: []string{"--config=" + filepath.Join(o.config.Dir, "config.yaml")},
		Env: []string{"KUBECONFIG=" + filepath.Join(o.config.Dir, "kubeconfig"),
			"IMAGEVECTOR_OVERWRITE=" + filepath.Join(o.config.Dir, "images.yaml")},
		Launcher: o.config.Launcher, LogPath: o.Log(),
	})
	if err != nil {
		return err
	}
	err = wait.PollUntilContextCancel(ctx, poll, true, func(context.Context) (bool, error) {
		select {
		case <-o.process.Done():
			return false, fmt.Errorf("it ended with exit code %d", o.process.ExitCode())
		default:
		}
		connection, err := net.Dial("tcp", net.JoinHostPort(o.config.Address, strconv.Itoa(webhookPort)))
		if err == nil {
			_ = connection.Close()
		}
		return err == nil, nil
	})
	if err != nil {
		return errors.Join(fmt.Errorf("%w; see %s", err, o.Log()), o.Stop(context.WithoutCancel(ctx)))
	}
	return nil
}
