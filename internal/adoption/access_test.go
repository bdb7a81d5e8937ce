package adoption_test

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/quorate/quorate/internal/adoption"
)

// What is asked for is what the Role grants, and nothing of it is left out: neither is anybody told to apply it in
// vain, nor does a check pass that misses a right.
func TestWhatIsAskedForIsWhatTheRoleGrants(t *testing.T) {
	data, err := os.ReadFile("../../deploy/base/role.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var role rbacv1.Role
	if err := yaml.Unmarshal(data, &role); err != nil {
		t.Fatal(err)
	}
	var granted, asked []string
	for _, rule := range role.Rules {
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""} // Of any name.
		}
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				for _, name := range names {
					granted = append(granted, strings.Join([]string{rule.APIGroups[0], verb, resource, name}, " "))
				}
			}
		}
	}
	var pods []string
	for i := range 7 { // The largest cluster, for which the Role is written.
		pods = append(pods, "etcd-main-"+strconv.Itoa(i))
	}
	for _, n := range adoption.Needs("garden", "etcd-main", pods...) {
		resource := n.Resource
		if n.Subresource != "" {
			resource += "/" + n.Subresource
		}
		asked = append(asked, strings.Join([]string{n.Group, n.Verb, resource, n.Name}, " "))
		if n.Namespace != "garden" {
			t.Errorf("%s is asked for in the namespace %q", n, n.Namespace)
		}
	}
	slices.Sort(granted)
	slices.Sort(asked)
	if !slices.Equal(granted, asked) {
		t.Errorf("the Role grants\n%s\nand it is asked for\n%s", strings.Join(granted, "\n"), strings.Join(asked, "\n"))
	}
}
