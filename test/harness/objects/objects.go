// Package objects creates and deletes Kubernetes objects of any kind from manifests, as kubectl does.
package objects

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

// Decode reads the documents of a manifest.
func Decode(manifest []byte) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifest), 4096)
	for {
		object := map[string]any{}
		err := documents.Decode(&object)
		switch {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, err
		case len(object) > 0:
			all = append(all, &unstructured.Unstructured{Object: object})
		}
	}
}

// Create creates objects in their order. One that has no namespace and needs one comes into the namespace that is
// given. One that exists stays as it is.
func Create(ctx context.Context, config *rest.Config, namespace string, all ...*unstructured.Unstructured) error {
	return each(config, namespace, all, "create",
		func(client dynamic.ResourceInterface, object *unstructured.Unstructured) error {
			_, err := client.Create(ctx, object, metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) {
				return nil
			}
			return err
		})
}

// Delete deletes objects, the last first, and in the background what belongs to them. One that is gone is no error.
func Delete(ctx context.Context, config *rest.Config, namespace string, all ...*unstructured.Unstructured) error {
	background := metav1.DeletePropagationBackground
	last := slices.Clone(all)
	slices.Reverse(last)
	return each(config, namespace, last, "delete",
		func(client dynamic.ResourceInterface, object *unstructured.Unstructured) error {
			err := client.Delete(ctx, object.GetName(), metav1.DeleteOptions{PropagationPolicy: &background})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return err
		})
}

// each calls do for every object, with the client of its kind.
func each(config *rest.Config, namespace string, all []*unstructured.Unstructured, verb string,
	do func(dynamic.ResourceInterface, *unstructured.Unstructured) error) error {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	kinds, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(kinds))
	for _, object := range all {
		kind := object.GroupVersionKind()
		mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			return fmt.Errorf("%s %s %s: %w", verb, kind.Kind, object.GetName(), err)
		}
		var of dynamic.ResourceInterface = client.Resource(mapping.Resource)
		if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			in := object.GetNamespace()
			if in == "" {
				in = namespace
			}
			of = client.Resource(mapping.Resource).Namespace(in)
		}
		if err := do(of, object); err != nil {
			return fmt.Errorf("%s %s %s: %w", verb, kind.Kind, object.GetName(), err)
		}
	}
	return nil
}
