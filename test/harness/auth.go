package harness

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// The users of a cluster with etcd's authentication; see [Cluster.Authenticate].
const (
	rootUser = "root"
	// SidecarUser is who the sidecars sign in as. Its password is its name.
	SidecarUser = "quorate"
)

// login is how the harness signs in, as a user whose password is its name.
type login struct{ user string }

// Authenticate turns etcd's authentication on. The harness itself is root from then on. The sidecars' user, whom they
// have to be told ([SidecarUser]), may do what the documentation grants and nothing else.
func (c *Cluster) Authenticate(ctx context.Context) error {
	c.env.Timeline.Note("operator", "turn authentication of %s on", c.Spec.Name)
	err := c.etcd(func(client *clientv3.Client) error {
		for _, user := range []string{rootUser, SidecarUser} {
			if _, err := client.UserAdd(ctx, user, user); err != nil {
				return err
			}
			if _, err := client.RoleAdd(ctx, user); err != nil {
				return err
			}
			if _, err := client.UserGrantRole(ctx, user, user); err != nil {
				return err
			}
		}
		if _, err := client.RoleGrantPermission(ctx, SidecarUser, "/quorate/", clientv3.GetPrefixRangeEnd("/quorate/"),
			clientv3.PermissionType(clientv3.PermReadWrite)); err != nil {
			return err
		}
		_, err := client.AuthEnable(ctx)
		return err
	})
	if err != nil {
		return fmt.Errorf("turn authentication of %s on: %w", c.Spec.Name, err)
	}
	c.login.Store(&login{user: rootUser})
	return nil
}

// GrantRoot gives the sidecars' user the role root.
func (c *Cluster) GrantRoot(ctx context.Context) error {
	c.env.Timeline.Note("operator", "grant %s the role root of %s", SidecarUser, c.Spec.Name)
	return c.etcd(func(client *clientv3.Client) error {
		_, err := client.UserGrantRole(ctx, SidecarUser, rootUser)
		return err
	})
}

// user is the name and the password by which the harness signs in, empty without authentication.
func (c *Cluster) user() string {
	if l := c.login.Load(); l != nil {
		return l.user
	}
	return ""
}
