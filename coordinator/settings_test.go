package coordinator

import (
	"reflect"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/settings"
	"github.com/quorate/quorate/pkg/rollout"
)

// Otherwise two rows could share a field, or a row have that of its neighbour.
func TestEverySettingIsKeptInTheFieldOfItsName(t *testing.T) {
	var c Config
	for _, s := range c.Settings() {
		field := reflect.ValueOf(&c).Elem()
		for name := range strings.SplitSeq(s.GoName(), ".") {
			field = field.FieldByName(name)
		}
		if !field.IsValid() || field.Addr().Pointer() != reflect.ValueOf(s.Pointer()).Pointer() {
			t.Errorf("--%s is not kept in %s", s.Name, s.GoName())
		}
	}
}

func TestEverySettingSaysWhatItIsForAndWhyTheDefaultIsGood(t *testing.T) {
	var c Config
	for _, s := range c.Settings() {
		if s.Help == "" || s.Why == "" || s.Group == "" {
			t.Errorf("--%s has help %q, reason %q and heading %q", s.Name, s.Help, s.Why, s.Group)
		}
		s.Reset()
	}
	if err := c.Settings().Check((*settings.Setting).GoName); err != nil {
		t.Errorf("the defaults are bad: %v", err)
	}
	if !reflect.DeepEqual(c.Policy, DefaultPolicy()) {
		t.Errorf("got %+v, want %+v", c.Policy, DefaultPolicy())
	}
}

// A field without a row could be chosen by nobody. Two have another source: an operator's control, and the host.
func TestEveryFieldOfAPolicyIsASetting(t *testing.T) {
	known := map[string]bool{"Policy.Partition": true, "Policy.HostDefragments": true}
	var c Config
	for _, s := range c.Settings() {
		known[s.GoName()] = true
	}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[rollout.Policy]()) {
		if !known["Policy."+field.Name] {
			t.Errorf("Policy.%s has no row", field.Name)
		}
	}
}
