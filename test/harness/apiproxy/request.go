package apiproxy

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"
)

// Request is what a client asks.
type Request struct {
	// Pod and UID are those of the pod whose token the client used, and ServiceAccount its
	// account. They are empty if the token does not name them, such as that of a client outside
	// the cluster.
	Pod            string
	UID            types.UID
	ServiceAccount string
	// Verb is Kubernetes' own: get, list, watch, create, update, patch, delete. Empty
	// for what is no resource, such as /version.
	Verb string
	// Resource, Subresource, Namespace and Name say of what. A created object's name is
	// the one in its body.
	Resource, Subresource, Namespace, Name string
	// Query is the raw query, Body the body as it was sent.
	Query string
	Body  []byte
	// Object is the body, decoded; nil for a patch and where there is none.
	Object runtime.Object
}

var requestInfo = apirequest.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"),
	GrouplessAPIPrefixes: sets.NewString("api")}

func newRequest(r *http.Request, body []byte) *Request {
	request := &Request{Query: r.URL.RawQuery, Body: body}
	request.Pod, request.UID, request.ServiceAccount = identity(r.Header.Get("Authorization"))
	if info, err := requestInfo.NewRequestInfo(r); err == nil && info.IsResourceRequest {
		request.Verb, request.Resource, request.Subresource = info.Verb, info.Resource, info.Subresource
		request.Namespace, request.Name = info.Namespace, info.Name
	}
	if len(body) > 0 && request.Verb != "patch" {
		if object, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil); err == nil {
			request.Object = object
		}
	}
	if request.Verb == "create" && request.Name == "" && request.Object != nil {
		if object, err := meta.Accessor(request.Object); err == nil {
			request.Name = object.GetName()
		}
	}
	return request
}

// identity reads who a ServiceAccount's token was issued for. It does not verify the
// token: the API server does.
func identity(authorization string) (pod string, uid types.UID, account string) {
	parts := strings.Split(strings.TrimPrefix(authorization, "Bearer "), ".")
	if len(parts) != 3 {
		return "", "", ""
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return "", "", ""
	}
	type object struct {
		Name string    `json:"name"`
		UID  types.UID `json:"uid"`
	}
	var claims struct {
		Kubernetes struct {
			Pod            object `json:"pod"`
			ServiceAccount object `json:"serviceaccount"`
		} `json:"kubernetes.io"`
	}
	if json.Unmarshal(payload, &claims) != nil {
		return "", "", ""
	}
	return claims.Kubernetes.Pod.Name, claims.Kubernetes.Pod.UID, claims.Kubernetes.ServiceAccount.Name
}

// Kind is what the request asks, whatever its object: "list pods", "create pods/eviction". Of what is no resource it
// is empty.
func (r *Request) Kind() string {
	return strings.TrimSpace(r.Verb + " " + r.Resource + strings.TrimSuffix("/"+r.Subresource, "/"))
}

// Is reports whether the request has one of the verbs on a resource, written as in RBAC:
// "pods", "pods/eviction".
func (r *Request) Is(resource string, verbs ...string) bool {
	full := r.Resource
	if r.Subresource != "" {
		full += "/" + r.Subresource
	}
	if full != resource {
		return false
	}
	for _, verb := range verbs {
		if r.Verb == verb {
			return true
		}
	}
	return false
}

// Mutates reports whether the request would change something.
func (r *Request) Mutates() bool {
	switch r.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return true
	}
	return false
}

// Removes reports whether the request is to remove a pod: a DELETE or an eviction, and no dry
// run of one.
func (r *Request) Removes() bool {
	return (r.Is("pods", "delete") || r.Is("pods/eviction", "create")) && !r.DryRun()
}

// AsksBudget reports whether the request only asks whether an eviction would be granted.
func (r *Request) AsksBudget() bool { return r.Is("pods/eviction", "create") && r.DryRun() }

// DryRun reports whether a removal is to have no effect.
func (r *Request) DryRun() bool {
	o := r.deleteOptions()
	return o != nil && len(o.DryRun) > 0
}

// Preconditions are those of a removal; nil when it has none, or is no removal.
func (r *Request) Preconditions() *metav1.Preconditions {
	if o := r.deleteOptions(); o != nil {
		return o.Preconditions
	}
	return nil
}

func (r *Request) deleteOptions() *metav1.DeleteOptions {
	switch object := r.Object.(type) {
	case *metav1.DeleteOptions:
		return object
	case *policyv1.Eviction:
		return object.DeleteOptions
	}
	return nil
}

// Annotation is the value that the request gives to an annotation, in a whole object or
// in a merge patch; false when it gives it none.
func (r *Request) Annotation(key string) (string, bool) {
	if r.Verb == "patch" {
		var patch struct {
			Metadata struct {
				Annotations map[string]*string `json:"annotations"`
			} `json:"metadata"`
		}
		if json.Unmarshal(r.Body, &patch) != nil || patch.Metadata.Annotations[key] == nil {
			return "", false
		}
		return *patch.Metadata.Annotations[key], true
	}
	if r.Object == nil {
		return "", false
	}
	object, err := meta.Accessor(r.Object)
	if err != nil {
		return "", false
	}
	value, ok := object.GetAnnotations()[key]
	return value, ok
}

// Lease is the Lease that the request writes; nil when it writes none as a whole.
func (r *Request) Lease() *coordinationv1.Lease {
	lease, _ := r.Object.(*coordinationv1.Lease)
	return lease
}

// String is the request in a few words.
func (r *Request) String() string {
	who := r.Pod
	if who == "" {
		who = "an outsider"
	}
	resource := r.Resource
	if r.Subresource != "" {
		resource += "/" + r.Subresource
	}
	return fmt.Sprintf("%s asks to %s %s %s", who, r.Verb, resource, r.Name)
}
