package options

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/quorate/quorate/internal/settings"
)

// namer turns a flag's plain name into the one under which its user wrote it.
type namer func(flag string) string

// secret annotates flags whose values are never shown; client-go has the same for its own.
const secret = "classified"

// given are the flags of one options struct, and what was given in their stead. Each of them may also be set in a file.
type given struct {
	prefix string
	// flags are keyed by their plain names, which are also the keys of the file.
	flags map[string]*pflag.Flag
	// foreign tells which keys of the file are understood but of no use here.
	foreign func(key string) bool

	path string
	// written has what a person wrote instead of the flag, for those whose values came from a file.
	written map[string]string
}

// add registers flags under the prefix, with their heading in the help.
func (s *given) add(to *pflag.FlagSet, title string, register func(*pflag.FlagSet)) {
	plain := pflag.NewFlagSet(title, pflag.ContinueOnError)
	register(plain)
	if s.flags == nil {
		s.flags = map[string]*pflag.Flag{}
	}
	plain.VisitAll(func(f *pflag.Flag) {
		s.flags[f.Name] = f
		if setGroup(f, title); title != noTitle {
			setRare(f)
		}
		f.Name = s.prefix + f.Name
		to.AddFlag(f)
	})
}

// addSettings registers the flags of some rows, each with the heading of its group.
func (s *given) addSettings(to *pflag.FlagSet, rows settings.Table) {
	for i := range rows {
		s.add(to, string(rows[i].Group), func(fs *pflag.FlagSet) { register(fs, &rows[i]) })
	}
}

// addFile registers the flag that names the file. It cannot be set in a file itself.
func (s *given) addFile(to *pflag.FlagSet, title string) {
	s.add(to, title, func(fs *pflag.FlagSet) {
		fs.StringVar(&s.path, "config", "",
			"YAML file with the same settings: its keys are the names of these flags"+s.lessPrefix()+
				" without dashes; a flag on the command line wins over the file")
	})
	delete(s.flags, "config")
}

func (s *given) lessPrefix() string {
	if s.prefix == "" {
		return ""
	}
	return " without " + strings.TrimSuffix(s.prefix, "-") + " and"
}

// wrote notes that a flag's value came from a file.
func (s *given) wrote(flag, as string) {
	if s.written == nil {
		s.written = map[string]string{}
	}
	s.written[flag] = as
}

// name is the flag, or the key if the value came from a file.
func (s *given) name(flag string) string {
	f := s.flags[flag]
	if as, ok := s.written[flag]; ok && (f == nil || !f.Changed) {
		return as
	}
	return "--" + s.prefix + flag
}

// called is the same for a setting.
func (s *given) called(row *settings.Setting) string { return s.name(row.Name) }

// load takes the values from the file that no flag has set. Its error has one line for every bad key.
func (s *given) load() error {
	if s.path == "" {
		return nil
	}
	values, err := readValues(s.path)
	if err != nil {
		return fmt.Errorf("--%sconfig: %q: %w", s.prefix, s.path, err)
	}
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(values)) {
		flag, ours := s.flags[key]
		switch {
		case !ours && s.foreign != nil && s.foreign(key):
			continue
		case !ours:
			err = fmt.Errorf("unknown key; use one of %s", strings.Join(slices.Sorted(maps.Keys(s.flags)), ", "))
		case flag.Changed:
			continue
		default:
			err = setValue(flag, values[key])
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("--%sconfig: %q: %s: %w", s.prefix, s.path, key, err))
			continue
		}
		s.wrote(key, fmt.Sprintf("%s in %q", key, s.path))
	}
	return errors.Join(errs...)
}

// readValues reads one YAML document of keys and values.
func readValues(path string) (map[string]any, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, errors.Unwrap(err) // The path is in the message already.
	}
	document, err := onlyDocument(data)
	if err != nil {
		return nil, err
	}
	var content any
	numbersAsWritten := func(d *json.Decoder) *json.Decoder { d.UseNumber(); return d }
	if err := yaml.UnmarshalStrict(document, &content, numbersAsWritten); err != nil {
		if cause := errors.Unwrap(err); cause != nil {
			err = cause // Nobody cares what it was converted to on the way.
		}
		return nil, errors.New(strings.Join(strings.Fields(err.Error()), " ")) // In one line.
	}
	switch content := content.(type) {
	case nil:
		return nil, nil
	case map[string]any:
		return content, nil
	}
	return nil, errors.New("must be keys with values, such as lock-ttl: 10s")
}

// onlyDocument returns the only document that is not empty. Others would be ignored silently. Its lines
// keep their numbers.
func onlyDocument(data []byte) ([]byte, error) {
	var only []byte
	for documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data))); ; {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return only, nil
		}
		if err != nil {
			return nil, err
		}
		var content any
		if err := yaml.Unmarshal(document, &content); err == nil && content == nil {
			continue // It has comments at most.
		}
		if only != nil {
			return nil, errors.New("has more than one YAML document")
		}
		before := max(bytes.Index(data, document), 0)
		only = append(bytes.Repeat([]byte("\n"), bytes.Count(data[:before], []byte("\n"))), document...)
	}
}

// setValue sets a flag from what YAML makes of its value.
func setValue(flag *pflag.Flag, value any) error {
	shown := fmt.Sprintf("%v", value)
	if text, err := json.Marshal(value); err == nil {
		shown = string(text)
	}
	if _, hidden := flag.Annotations[secret]; hidden {
		shown = "the value"
	}
	if list, ok := flag.Value.(pflag.SliceValue); ok {
		texts, err := textsOf(value)
		if err == nil {
			err = list.Replace(texts)
		}
		if err != nil {
			return fmt.Errorf("%s: must be a string, or a list of strings", shown)
		}
		return nil
	}
	text, isText := value.(string)
	if !isText {
		switch value.(type) {
		case bool, json.Number:
			text = fmt.Sprint(value)
		default:
			return fmt.Errorf("%s: must be a single value", shown)
		}
		if flag.Value.Type() == "string" {
			// YAML has changed it already: it reads 0123 as 83, and no as false.
			return fmt.Errorf("%s: must be a string; put it in quotes", shown)
		}
	}
	err := flag.Value.Set(text)
	if err == nil {
		return nil
	}
	switch flag.Value.Type() {
	case "bool":
		err = errors.New("use true or false")
	case "duration":
		err = errors.New("use a duration such as 10s or 1m30s")
	case "uint64":
		err = errors.New("use a whole number")
	}
	return fmt.Errorf("%s: %w", shown, err)
}

// valueOf is a flag's value as JSON has it: setValue reads it back.
func valueOf(flag *pflag.Flag) any {
	if list, ok := flag.Value.(pflag.SliceValue); ok {
		return append([]string{}, list.GetSlice()...)
	}
	text := flag.Value.String()
	switch flag.Value.Type() {
	case "bool", "uint64":
		return json.RawMessage(text)
	}
	return text
}

// textsOf accepts a list, and a list as the command line writes it.
func textsOf(value any) ([]string, error) {
	switch value := value.(type) {
	case string:
		return strings.Split(value, ","), nil
	case []any:
		texts := make([]string, len(value))
		for i, v := range value {
			text, ok := v.(string)
			if !ok {
				return nil, errors.New("not a string")
			}
			texts[i] = text
		}
		return texts, nil
	}
	return nil, errors.New("neither")
}
