package rollout

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"time"
)

// MarshalJSON writes the policy as it is written in flags, so durations are texts. It goes by the tags of the fields:
// a new field needs nothing else.
func (p Policy) MarshalJSON() ([]byte, error) {
	written := map[string]any{}
	v := reflect.ValueOf(p)
	for _, field := range reflect.VisibleFields(v.Type()) {
		key, omit, _ := strings.Cut(field.Tag.Get("json"), ",")
		value := v.FieldByIndex(field.Index)
		if omit != "" && value.IsZero() {
			continue
		}
		written[key] = value.Interface()
		if d, ok := written[key].(time.Duration); ok {
			written[key] = d.String()
		}
	}
	return json.Marshal(written)
}

// UnmarshalJSON reads what MarshalJSON writes. What cannot be read is the default: another version, or
// somebody else, may have written it.
func (p *Policy) UnmarshalJSON(data []byte) error {
	*p = DefaultPolicy()
	var written map[string]json.RawMessage
	if err := json.Unmarshal(data, &written); err != nil {
		return err
	}
	v := reflect.ValueOf(p).Elem()
	for _, field := range reflect.VisibleFields(v.Type()) {
		key, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		value, read := v.FieldByIndex(field.Index), reflect.New(field.Type)
		read.Elem().Set(value)
		if err := readField(written[key], read.Interface()); err == nil {
			value.Set(read.Elem())
		}
	}
	return nil
}

func readField(data json.RawMessage, into any) error {
	d, ok := into.(*time.Duration)
	if !ok {
		return json.Unmarshal(data, into)
	}
	var text string
	err := json.Unmarshal(data, &text)
	if err == nil {
		*d, err = time.ParseDuration(text)
	}
	return err
}

// UnmarshalText reads what [ParseAmount] reads.
func (a *Amount) UnmarshalText(text []byte) error {
	parsed, err := ParseAmount(string(text))
	if err == nil {
		*a = parsed
	}
	return err
}

// UnmarshalText reads the method's stable name.
func (r *Removal) UnmarshalText(text []byte) error {
	for _, method := range []Removal{RemoveByDelete, RemoveByEviction} {
		if string(text) == method.String() {
			*r = method
			return nil
		}
	}
	return errors.New("use delete or evict")
}
