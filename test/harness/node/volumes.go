package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// defaultTokenExpiration is what the API server sets where a projected token does not say
// how long it lives.
const defaultTokenExpiration = 3600

// errOffline is the answer of a kubelet that does not reach the API server.
var errOffline = fmt.Errorf("the node is partitioned from the API server: %w", context.DeadlineExceeded)

// podObjects reads secrets and config maps of a pod's namespace. What has been read once
// is used again when the API server is away, so that a container can be restarted then.
type podObjects struct {
	ctx       context.Context //nolint:containedctx // The life of the pod.
	client    kubernetes.Interface
	namespace string
	offline   atomic.Bool // the node is lost: nothing can be read

	mu     sync.Mutex
	cached map[string]any
}

func newPodObjects(ctx context.Context, client kubernetes.Interface, namespace string) *podObjects {
	return &podObjects{ctx: ctx, client: client, namespace: namespace, cached: map[string]any{}}
}

func (o *podObjects) secret(name string) (*corev1.Secret, error) {
	return cachedGet(o, "secret/"+name, func(ctx context.Context) (*corev1.Secret, error) {
		return o.client.CoreV1().Secrets(o.namespace).Get(ctx, name, metav1.GetOptions{})
	})
}

func (o *podObjects) configMap(name string) (*corev1.ConfigMap, error) {
	return cachedGet(o, "configmap/"+name, func(ctx context.Context) (*corev1.ConfigMap, error) {
		return o.client.CoreV1().ConfigMaps(o.namespace).Get(ctx, name, metav1.GetOptions{})
	})
}

func cachedGet[T any](o *podObjects, id string, get func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(o.ctx, requestTimeout)
	defer cancel()
	var object T
	err := errOffline
	if !o.offline.Load() {
		object, err = get(ctx)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if err == nil {
		o.cached[id] = object
		return object, nil
	}
	if old, ok := o.cached[id].(T); ok && !apierrors.IsNotFound(err) {
		return old, nil
	}
	return object, err
}

// file is one file of a volume that is made from API objects.
type file struct {
	data []byte
	mode os.FileMode
}

// volumes are a pod's volumes on this machine. They are prepared and refreshed by one
// goroutine; the rest is safe from any.
type volumes struct {
	podDir   string                    // for what dies with the pod
	claimDir func(claim string) string // for what does not
	hostDir  func(path string) string  // what a path of the node stands for
	objects  objectSource
	requests tokenRequester

	tokens map[string]*token          // by volume and path
	last   map[string]map[string]file // what is in the volumes made from API objects
}

type token struct {
	value   string
	refresh time.Time
}

// tokenRequester asks the API server for a token.
type tokenRequester func(serviceAccount string, request *authenticationv1.TokenRequest) (
	*authenticationv1.TokenRequest, error)

func newTokenRequester(ctx context.Context, client kubernetes.Interface, namespace string) tokenRequester {
	return func(serviceAccount string, request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		return client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, serviceAccount, request,
			metav1.CreateOptions{})
	}
}

// local returns where a volume is. Claims and the paths of nodes are outside of the pod's directory.
func (v *volumes) local(volume *corev1.Volume) string {
	switch {
	case volume.PersistentVolumeClaim != nil:
		return v.claimDir(volume.PersistentVolumeClaim.ClaimName)
	case volume.HostPath != nil:
		return v.hostDir(volume.HostPath.Path)
	default:
		return filepath.Join(v.podDir, "volumes", volume.Name)
	}
}

// prepare makes all volumes of the pod, or says which one cannot be made (yet).
func (v *volumes) prepare(pod *corev1.Pod) error {
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		if err := v.prepareOne(pod, volume, v.local(volume)); err != nil {
			return fmt.Errorf("volume %q: %w", volume.Name, err)
		}
	}
	return nil
}

func (v *volumes) prepareOne(pod *corev1.Pod, volume *corev1.Volume, local string) error {
	if volume.HostPath != nil {
		return prepareHostPath(volume.HostPath, local)
	}
	if err := os.MkdirAll(local, 0o777); err != nil {
		return err
	}
	if madeFromObjects(volume) {
		return v.project(pod, volume, local, time.Now())
	}
	if volume.EmptyDir != nil {
		// What MkdirAll makes is subject to the umask.
		if err := os.Chmod(local, 0o777); err != nil {
			return err
		}
	}
	return own(local, fsGroup(pod))
}

// madeFromObjects reports whether the agent writes the files of a volume.
func madeFromObjects(volume *corev1.Volume) bool {
	return volume.PersistentVolumeClaim == nil && volume.EmptyDir == nil && volume.HostPath == nil
}

// prepareHostPath makes the path of a node, or looks whether it is what the pod expects.
func prepareHostPath(source *corev1.HostPathVolumeSource, local string) error {
	kind := corev1.HostPathUnset
	if source.Type != nil {
		kind = *source.Type
	}
	dir, create := true, false
	switch kind {
	case corev1.HostPathUnset:
		// A kubelet leaves it to the container runtime, which makes a folder where nothing is.
		if _, err := os.Lstat(local); err == nil {
			return nil
		}
		create = true
	case corev1.HostPathDirectoryOrCreate:
		create = true
	case corev1.HostPathDirectory:
	case corev1.HostPathFileOrCreate:
		dir, create = false, true
	case corev1.HostPathFile:
		dir = false
	default:
		return fmt.Errorf("hostPath type %s is not supported by the node agent of the harness", kind)
	}
	info, err := os.Stat(local)
	switch {
	case os.IsNotExist(err) && create && dir:
		return os.MkdirAll(local, 0o755)
	case os.IsNotExist(err) && create:
		// As a kubelet: the file is made, but not its folder.
		return os.WriteFile(local, nil, 0o644)
	case err != nil:
		return fmt.Errorf("hostPath type check failed: %s is not there on the node", source.Path)
	case info.IsDir() != dir:
		return fmt.Errorf("hostPath type check failed: %s is not a %s", source.Path, kind)
	}
	return nil
}

// fsGroup is the group that is to own the pod's volumes, or -1.
func fsGroup(pod *corev1.Pod) int {
	if s := pod.Spec.SecurityContext; s != nil && s.FSGroup != nil && os.Geteuid() == 0 {
		return int(*s.FSGroup)
	}
	return -1
}

// own gives a volume with everything in it to a group, as a kubelet does: the group may read and write
// it, and what is made in it later belongs to the group as well. A volume whose folder is like that
// already is left alone (a kubelet does so with fsGroupChangePolicy OnRootMismatch).
func own(volume string, group int) error {
	if group < 0 {
		return nil
	}
	const dirMode = 0o770 | os.ModeSetgid
	info, err := os.Stat(volume)
	if err != nil {
		return err
	}
	if int(info.Sys().(*syscall.Stat_t).Gid) == group && info.Mode()&dirMode == dirMode {
		return nil
	}
	return filepath.WalkDir(volume, func(path string, entry os.DirEntry, err error) error {
		if err == nil {
			err = os.Lchown(path, -1, group)
		}
		if err != nil || entry.Type()&os.ModeSymlink != 0 {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		mode := info.Mode()&(os.ModePerm|os.ModeSetgid|os.ModeSetuid|os.ModeSticky) | 0o660
		if entry.IsDir() {
			mode |= dirMode
		}
		return os.Chmod(path, mode)
	})
}

// refresh brings the volumes made from API objects up to date. What cannot be read now
// stays as it is.
func (v *volumes) refresh(pod *corev1.Pod) error {
	var errs []error
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		if !madeFromObjects(volume) {
			continue
		}
		if err := v.project(pod, volume, v.local(volume), time.Now()); err != nil {
			errs = append(errs, fmt.Errorf("volume %q: %w", volume.Name, err))
		}
	}
	return errors.Join(errs...)
}

// project writes a volume that is made from API objects, if its content has changed.
func (v *volumes) project(pod *corev1.Pod, volume *corev1.Volume, dir string, now time.Time) error {
	files, err := v.payload(pod, volume, now)
	if err != nil {
		return err
	}
	same := func(a, b file) bool { return a.mode == b.mode && bytes.Equal(a.data, b.data) }
	if last, ok := v.last[volume.Name]; ok && maps.EqualFunc(last, files, same) {
		return nil
	}
	if err := writeAtomically(dir, files, strconv.FormatInt(now.UnixNano(), 36), fsGroup(pod)); err != nil {
		return err
	}
	if v.last == nil {
		v.last = map[string]map[string]file{}
	}
	v.last[volume.Name] = files
	return nil
}

// payload computes the files of a volume.
func (v *volumes) payload(pod *corev1.Pod, volume *corev1.Volume, now time.Time) (map[string]file, error) {
	files := map[string]file{}
	switch {
	case volume.Secret != nil:
		s := volume.Secret
		return files, v.addSecret(files, s.SecretName, s.Items, s.DefaultMode, s.Optional)
	case volume.ConfigMap != nil:
		c := volume.ConfigMap
		return files, v.addConfigMap(files, c.Name, c.Items, c.DefaultMode, c.Optional)
	case volume.DownwardAPI != nil:
		return files, addDownwardAPI(files, pod, volume.DownwardAPI.Items, volume.DownwardAPI.DefaultMode)
	case volume.Projected != nil:
		mode := volume.Projected.DefaultMode
		for _, source := range volume.Projected.Sources {
			var err error
			switch {
			case source.Secret != nil:
				err = v.addSecret(files, source.Secret.Name, source.Secret.Items, mode, source.Secret.Optional)
			case source.ConfigMap != nil:
				err = v.addConfigMap(files, source.ConfigMap.Name, source.ConfigMap.Items, mode,
					source.ConfigMap.Optional)
			case source.DownwardAPI != nil:
				err = addDownwardAPI(files, pod, source.DownwardAPI.Items, mode)
			case source.ServiceAccountToken != nil:
				err = v.addToken(files, pod, volume.Name, source.ServiceAccountToken, mode, now)
			default:
				err = errors.New("the node agent supports secret, configMap, downwardAPI and serviceAccountToken in " +
					"a projected volume")
			}
			if err != nil {
				return nil, err
			}
		}
		return files, nil
	default:
		return nil,
			errors.New("the node agent supports persistentVolumeClaim, emptyDir, hostPath, secret, configMap, " +
				"downwardAPI and projected volumes")
	}
}

func fileMode(item, volume *int32) os.FileMode {
	switch {
	case item != nil:
		return os.FileMode(*item)
	case volume != nil:
		return os.FileMode(*volume)
	default:
		return 0o644
	}
}

func (v *volumes) addSecret(files map[string]file, name string, items []corev1.KeyToPath, mode *int32,
	isOptional *bool) error {
	secret, err := v.objects.secret(name)
	if skip, err := optional(err, isOptional); skip || err != nil {
		return err
	}
	return addItems(files, "secret "+name, secret.Data, items, mode, isOptional)
}

func (v *volumes) addConfigMap(files map[string]file, name string, items []corev1.KeyToPath, mode *int32,
	isOptional *bool) error {
	configMap, err := v.objects.configMap(name)
	if skip, err := optional(err, isOptional); skip || err != nil {
		return err
	}
	data := maps.Clone(configMap.BinaryData)
	if data == nil {
		data = map[string][]byte{}
	}
	for key, value := range configMap.Data {
		data[key] = []byte(value)
	}
	return addItems(files, "configmap "+name, data, items, mode, isOptional)
}

// addItems adds the chosen keys, or all.
func addItems(files map[string]file, source string, data map[string][]byte, items []corev1.KeyToPath, mode *int32,
	isOptional *bool) error {
	if len(items) == 0 {
		for key, value := range data {
			files[key] = file{value, fileMode(nil, mode)}
		}
		return nil
	}
	for _, item := range items {
		value, ok := data[item.Key]
		if !ok {
			if isOptional != nil && *isOptional {
				continue
			}
			return fmt.Errorf("%s references non-existent key %q", source, item.Key)
		}
		files[path.Clean(item.Path)] = file{value, fileMode(item.Mode, mode)}
	}
	return nil
}

func addDownwardAPI(files map[string]file, pod *corev1.Pod, items []corev1.DownwardAPIVolumeFile, mode *int32) error {
	for _, item := range items {
		if item.FieldRef == nil {
			return fmt.Errorf("downwardAPI item %q: the node agent supports fieldRef only", item.Path)
		}
		value, err := fieldValue(item.FieldRef.FieldPath, pod, "", "")
		if err != nil {
			return err
		}
		files[path.Clean(item.Path)] = file{[]byte(value), fileMode(item.Mode, mode)}
	}
	return nil
}

// addToken adds a ServiceAccount token that is bound to the pod. It is renewed after
// four fifths of its life, or a day, as a kubelet does; when that fails the old one
// stays, and the next refresh tries again.
func (v *volumes) addToken(files map[string]file, pod *corev1.Pod, volume string,
	projection *corev1.ServiceAccountTokenProjection, mode *int32, now time.Time) error {
	id := volume + "/" + projection.Path
	current := v.tokens[id]
	if current == nil || now.After(current.refresh) {
		renewed, err := v.requestToken(pod, projection, now)
		switch {
		case err == nil:
			if v.tokens == nil {
				v.tokens = map[string]*token{}
			}
			v.tokens[id], current = renewed, renewed
		case current == nil:
			return fmt.Errorf("request a token for ServiceAccount %q: %w", pod.Spec.ServiceAccountName, err)
		}
	}
	files[path.Clean(projection.Path)] = file{[]byte(current.value), fileMode(nil, mode)}
	return nil
}

func (v *volumes) requestToken(pod *corev1.Pod, projection *corev1.ServiceAccountTokenProjection,
	now time.Time) (*token, error) {
	seconds := int64(defaultTokenExpiration)
	if projection.ExpirationSeconds != nil {
		seconds = *projection.ExpirationSeconds
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: &seconds,
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod",
			Name: pod.Name, UID: pod.UID},
	}}
	if projection.Audience != "" {
		request.Spec.Audiences = []string{projection.Audience}
	}
	account := pod.Spec.ServiceAccountName
	if account == "" {
		account = "default"
	}
	answer, err := v.requests(account, request)
	if err != nil {
		return nil, err
	}
	life := min(answer.Status.ExpirationTimestamp.Sub(now)*4/5, 24*time.Hour)
	return &token{value: answer.Status.Token, refresh: now.Add(life)}, nil
}

// mounts returns where the container's volumes are.
func (v *volumes) mounts(pod *corev1.Pod, container *corev1.Container) ([]mount, error) {
	var mounts []mount
	for _, m := range container.VolumeMounts {
		i := slices.IndexFunc(pod.Spec.Volumes, func(volume corev1.Volume) bool { return volume.Name == m.Name })
		if i < 0 {
			return nil, fmt.Errorf("volumeMount %q: the pod has no volume of that name", m.Name)
		}
		volume := &pod.Spec.Volumes[i]
		mounts = append(mounts, mount{path: strings.TrimRight(m.MountPath, "/"), local: v.local(volume),
			readOnly: m.ReadOnly || madeFromObjects(volume)})
	}
	return mounts, nil
}

// optional reports whether a missing object may be left out.
func optional(err error, isOptional *bool) (skip bool, _ error) {
	if apierrors.IsNotFound(err) && isOptional != nil && *isOptional {
		return true, nil
	}
	return false, err
}

// writeAtomically replaces the files of a directory all at once, in the kubelet's layout:
// every visible name links into ..data, which links to a directory with the files of one
// version. The version must be new. The group, if it is not -1, may read the files.
func writeAtomically(dir string, files map[string]file, version string, group int) (err error) {
	fresh := ".." + version
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, fresh)))
		}
	}()
	if err := os.Mkdir(filepath.Join(dir, fresh), 0o755); err != nil {
		return err
	}
	tops := map[string]bool{}
	for name, f := range files {
		if !filepath.IsLocal(name) || strings.HasPrefix(name, "..") {
			return fmt.Errorf("file %q: the path leads out of the volume", name)
		}
		target := filepath.Join(dir, fresh, name)
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(target, f.data, f.mode); err != nil {
			return err
		}
		mode := f.mode
		if group >= 0 {
			mode |= 0o440
			if err := os.Chown(target, -1, group); err != nil {
				return err
			}
		}
		// The mode of WriteFile is subject to the umask.
		if err := os.Chmod(target, mode); err != nil {
			return err
		}
		top, _, _ := strings.Cut(name, "/")
		tops[top] = true
	}
	old, _ := os.Readlink(filepath.Join(dir, "..data"))
	if err := replaceLink(fresh, filepath.Join(dir, "..data")); err != nil {
		return err
	}
	for top := range tops {
		link, target := filepath.Join(dir, top), filepath.Join("..data", top)
		if now, _ := os.Readlink(link); now != target {
			if err := replaceLink(target, link); err != nil {
				return err
			}
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if name := entry.Name(); !strings.HasPrefix(name, "..") && !tops[name] {
			if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
				return err
			}
		}
	}
	if old != "" {
		return os.RemoveAll(filepath.Join(dir, old))
	}
	return nil
}

func replaceLink(target, link string) error {
	temporary := link + ".new"
	if err := os.RemoveAll(temporary); err != nil {
		return err
	}
	if err := os.Symlink(target, temporary); err != nil {
		return err
	}
	return os.Rename(temporary, link)
}
