package harness

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Permission is one verb of one rule.
type Permission struct {
	// Verb and Resource are written as in RBAC: "create", "pods/eviction".
	Verb, Resource string
	// Group is that of the resource. Name is one of the names that the rule is limited to, if it is.
	Group, Name string
}

// String is the permission as a table shows it.
func (p Permission) String() string { return p.Verb + " " + p.Resource }

// namespace is where it is asked for. Nodes are in none.
func (p Permission) namespace() string {
	if p.Resource == "nodes" {
		return ""
	}
	return Namespace
}

// is reports whether a rule grants it.
func (p Permission) is(rule rbacv1.PolicyRule, verb string) bool {
	return verb == p.Verb && slices.Contains(rule.Resources, p.Resource)
}

// Permissions are everything that the shipped Role grants the cluster's sidecars, in its order.
func (c *Cluster) Permissions() ([]Permission, error) {
	shipped, err := access(c.Spec.Name, c.Spec.Components...)
	if err != nil {
		return nil, err
	}
	return permissions(shipped.rules()), nil
}

func permissions(rules []rbacv1.PolicyRule) []Permission {
	var all []Permission
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					all = append(all, Permission{Verb: verb, Resource: resource, Group: group,
						Name: first(rule.ResourceNames)})
				}
			}
		}
	}
	return all
}

func first(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return names[0]
}

// Revoke takes one permission of the shipped Role away from the sidecars, and waits until the API
// server applies that. A watch that is open stays open.
func (c *Cluster) Revoke(ctx context.Context, p Permission) error {
	return c.grantAllBut(ctx, "revoke "+p.String(), p.is)
}

// RevokeAll takes all permissions of the shipped Role away.
func (c *Cluster) RevokeAll(ctx context.Context) error {
	return c.grantAllBut(ctx, "revoke all permissions", func(rbacv1.PolicyRule, string) bool { return true })
}

// Restore grants the sidecars the shipped Role again, and waits until the API server applies that.
func (c *Cluster) Restore(ctx context.Context) error {
	return c.grantAllBut(ctx, "restore all permissions", func(rbacv1.PolicyRule, string) bool { return false })
}

// grantAllBut grants what is shipped, without what is to be missing.
func (c *Cluster) grantAllBut(ctx context.Context, why string,
	missing func(rule rbacv1.PolicyRule, verb string) bool) error {
	r, err := access(c.Spec.Name, c.Spec.Components...)
	if err != nil {
		return err
	}
	shipped := permissions(r.rules())
	r.role.Rules = less(r.role.Rules, missing)
	c.env.Timeline.Note("operator", "%s", why)
	rbac, update := c.env.Client.RbacV1(), metav1.UpdateOptions{}
	if _, err = rbac.Roles(Namespace).Update(ctx, r.role, update); err != nil {
		return fmt.Errorf("%s: %w", why, err)
	}
	if r.clusterRole != nil {
		r.clusterRole.Rules = less(r.clusterRole.Rules, missing)
		if _, err = rbac.ClusterRoles().Update(ctx, r.clusterRole, update); err != nil {
			return fmt.Errorf("%s: %w", why, err)
		}
	}
	granted := permissions(r.rules())
	for _, p := range shipped {
		if err := c.awaitAccess(ctx, p, slices.Contains(granted, p)); err != nil {
			return fmt.Errorf("%s: %w", why, err)
		}
	}
	return nil
}

// less are the rules without the verbs that are to be missing.
func less(rules []rbacv1.PolicyRule, missing func(rule rbacv1.PolicyRule, verb string) bool) []rbacv1.PolicyRule {
	var left []rbacv1.PolicyRule
	for _, rule := range rules {
		rule.Verbs = slices.DeleteFunc(slices.Clone(rule.Verbs), func(verb string) bool { return missing(rule, verb) })
		if len(rule.Verbs) > 0 {
			left = append(left, rule)
		}
	}
	return left
}

// awaitAccess waits until the API server's authorizer says this about the cluster's sidecars.
func (c *Cluster) awaitAccess(ctx context.Context, p Permission, allowed bool) error {
	resource, subresource, _ := strings.Cut(p.Resource, "/")
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: serviceAccountUser(c.Spec.Name),
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: p.namespace(), Verb: p.Verb, Group: p.Group, Resource: resource, Subresource: subresource,
			Name: p.Name,
		},
	}}
	return waitFor(ctx, fmt.Sprintf("%s is allowed: %t", p, allowed), func(ctx context.Context) (bool, string) {
		answer, err := c.env.Client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			return false, err.Error()
		}
		return answer.Status.Allowed == allowed, answer.Status.Reason
	})
}

// CreateServiceAccount creates a ServiceAccount that may do, of everything that a sidecar may do, only
// what uses one of the verbs.
func (c *Cluster) CreateServiceAccount(ctx context.Context, name string, verbs ...string) error {
	shipped, err := access(c.Spec.Name, c.Spec.Components...)
	if err != nil {
		return err
	}
	return c.createAccount(ctx, name, less(shipped.role.Rules,
		func(_ rbacv1.PolicyRule, verb string) bool { return !slices.Contains(verbs, verb) }))
}

// createAccount creates a ServiceAccount with a Role of its own name.
func (c *Cluster) createAccount(ctx context.Context, name string, rules []rbacv1.PolicyRule) error {
	meta := metav1.ObjectMeta{Name: name, Namespace: Namespace}
	if _, err := c.env.Client.CoreV1().ServiceAccounts(Namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta},
		metav1.CreateOptions{}); err != nil {
		return err
	}
	if _, err := c.env.Client.RbacV1().Roles(Namespace).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: rules},
		metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err := c.env.Client.RbacV1().RoleBindings(Namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: Namespace}},
	}, metav1.CreateOptions{})
	return err
}

// CreateOperator creates a ServiceAccount that may do what deploy/operator.yaml grants, both reading
// and writing.
func (c *Cluster) CreateOperator(ctx context.Context, name string) error {
	viewer, operator, err := operators(c.Spec.Name)
	if err != nil {
		return err
	}
	return c.createAccount(ctx, name, slices.Concat(viewer.Rules, operator.Rules))
}

// As returns a client that acts as a ServiceAccount, with a token that the API server has issued for
// it.
func (c *Cluster) As(ctx context.Context, account string) (kubernetes.Interface, error) {
	token, err := c.token(ctx, account)
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(c.env.Plane.TokenConfig(token))
}

// KubeconfigAs writes a kubeconfig for commands that act as a ServiceAccount, and returns its path.
func (c *Cluster) KubeconfigAs(ctx context.Context, account, dir string) (string, error) {
	token, err := c.token(ctx, account)
	if err != nil {
		return "", err
	}
	config := c.env.Plane.TokenConfig(token)
	path := filepath.Join(dir, account+".kubeconfig")
	return path, os.WriteFile(path, fmt.Appendf(nil, `{"apiVersion": "v1", "kind": "Config", "current-context": "c",
"contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}], "users": [{"name": "u", "user": {"token": %q}}],
"clusters": [{"name": "c", "cluster": {"server": %q, "certificate-authority-data": %q}}]}`,
		token, config.Host, base64.StdEncoding.EncodeToString(config.CAData)), 0o600)
}

func (c *Cluster) token(ctx context.Context, account string) (string, error) {
	token, err := c.env.Client.CoreV1().ServiceAccounts(Namespace).CreateToken(ctx, account,
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("token for the ServiceAccount %s: %w", account, err)
	}
	return token.Status.Token, nil
}
