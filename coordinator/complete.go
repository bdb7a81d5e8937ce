package coordinator

import (
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/quorate/quorate/internal/settings"
	"github.com/quorate/quorate/membership"
)

// complete fills in defaults and reports everything that is missing or wrong, with
// the field's name and value.
func (c Config) complete() (Config, error) {
	if reflect.ValueOf(c.Policy).IsZero() {
		c.Policy = DefaultPolicy()
	}
	if c.Policy.DefragmentTimeout == 0 {
		c.Policy.DefragmentTimeout = DefaultPolicy().DefragmentTimeout
	}
	all := c.Settings()
	for i := range all {
		if s := &all[i]; s.Scope != settings.Decides { // In a policy, zero is a value.
			s.Fill()
		}
	}
	if c.Names.EtcdContainer == "" {
		c.Names.EtcdContainer = DefaultNames().EtcdContainer
	}
	if c.Names.SidecarContainer == "" {
		c.Names.SidecarContainer = DefaultNames().SidecarContainer
	}
	if c.wall == nil {
		c.wall = time.Now
	}
	if c.connect == nil {
		c.connect = connect
	}
	if c.Log == nil {
		silent := logrus.New()
		silent.SetLevel(logrus.PanicLevel)
		c.Log = logrus.NewEntry(silent)
	}
	c.Log = c.Log.WithField("actor", "quorate")

	var errs []error
	require := func(ok bool, message string) {
		if !ok {
			errs = append(errs, errors.New(message))
		}
	}
	require(c.Namespace != "", "Namespace is required")
	require(c.StatefulSet != "", "StatefulSet is required")
	require(c.Dial != nil, "Dial is required")
	if c.Dial != nil {
		c.Dial = membership.Bounded(silenced(c.Dial))
	}
	require(len(c.Endpoints) > 0, "Endpoints needs at least one URL of an etcd member")
	require(c.StatefulSets != nil, "StatefulSets is required")
	require(c.Pods != nil, "Pods is required")
	require(c.Leases != nil, "Leases is required")
	require(c.Policy.Partition >= 0, fmt.Sprintf("Policy.Partition: %d: must not be negative", c.Policy.Partition))
	return c, errors.Join(append(errs, checkGates(c.Gates), c.Settings().Check((*settings.Setting).GoName))...)
}

// checkGates returns an error for every gate that cannot be asked or told from another.
func checkGates(all []Gate) error {
	var errs []error
	names := map[string]bool{}
	for i, g := range all {
		switch {
		case g.Name == "":
			errs = append(errs, fmt.Errorf("Gates[%d].Name is required", i))
		case names[g.Name]:
			errs = append(errs, fmt.Errorf("Gates[%d].Name: %q: another gate has that name", i, g.Name))
		}
		names[g.Name] = true
		if g.Ask == nil {
			errs = append(errs, fmt.Errorf("Gates[%d].Ask is required (%q)", i, g.Name))
		}
	}
	return errors.Join(errs...)
}
