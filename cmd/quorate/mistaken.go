package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate/quorate/coordinator"
)

// nearest is the word that somebody most likely meant, empty if none is near. A third of the letters may be wrong.
func nearest(word string, among []string) string {
	best, fewest := "", max(len(word)/3, 1)+1
	for _, candidate := range among {
		if n := distance(strings.ToLower(word), strings.ToLower(candidate)); n < fewest {
			best, fewest = candidate, n
		}
	}
	return best
}

// distance counts the letters that are missing, superfluous, wrong, or exchanged with their neighbour.
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			wrong := 1
			if a[i-1] == b[j-1] {
				wrong = 0
			}
			n := min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+wrong)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				n = min(n, rows[i-2][j-2]+1)
			}
			rows[i][j] = n
		}
	}
	return rows[len(a)][len(b)]
}

// didYouMean asks whether another word was meant. It is empty if none is near.
func didYouMean(word string, among []string) string {
	if meant := nearest(word, among); meant != "" {
		return "; did you mean " + meant + "?"
	}
	return ""
}

// mostWrong is how many letters of a command's name may be wrong, as cobra has it.
const mostWrong = 2

// unknownCommand says which command somebody may have meant: one of nearly that name, one whose name begins so, or what
// another tool calls by that word.
func unknownCommand(cmd *cobra.Command, word string) error {
	cmd.SuggestionsMinimumDistance = mostWrong
	meant := slices.Compact(cmd.SuggestionsFor(word))
	if len(meant) == 0 {
		return badInput{fmt.Errorf("unknown command %q; see %s --help", word, cmd.CommandPath())}
	}
	return badInput{fmt.Errorf("unknown command %q; did you mean %s %s?", word, cmd.CommandPath(),
		strings.Join(meant, " or "+cmd.CommandPath()+" "))}
}

// badFlag says what is wrong with a flag, in the words in which every other bad value is told.
func badFlag(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var value *pflag.InvalidValueError
	switch {
	case errors.As(err, &unknown):
		return badInput{fmt.Errorf("%w; %s", err, otherFlag(cmd, unknown))}
	case errors.As(err, &value):
		flag, given := "--"+value.GetFlag().Name, value.GetValue()
		switch value.GetFlag().Value.Type() {
		case "duration":
			return badInput{fmt.Errorf("%s: %q: is not a duration; write it like 30s, 5m or 1h30m", flag, given)}
		case "bool":
			return badInput{fmt.Errorf("%s: %q: use true or false", flag, given)}
		case "uint64":
			return badInput{fmt.Errorf("%s: %q: use a whole number", flag, given)}
		}
		if cause := value.Unwrap().Error(); strings.Contains(cause, fmt.Sprintf("%q", given)) {
			return badInput{fmt.Errorf("%s: %s", flag, cause)}
		}
		return badInput{fmt.Errorf("%s: %q: %w", flag, given, value.Unwrap())}
	}
	return badInput{fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())}
}

// otherFlag says which flag somebody meant, or which commands have it.
func otherFlag(cmd *cobra.Command, unknown *pflag.NotExistError) string {
	name := unknown.GetSpecifiedName()
	short := unknown.GetSpecifiedShortnames() != ""
	var have []string
	for _, c := range cmd.Root().Commands() {
		if c.Flags().Lookup(name) != nil && !short || short && c.Flags().ShorthandLookup(name[:1]) != nil {
			have = append(have, c.Name())
		}
	}
	switch {
	case len(have) > 0 && len(have) < 4:
		verb := map[bool]string{true: "has", false: "have"}[len(have) == 1]
		return cmd.Root().DisplayName() + " " + strings.Join(have, ", ") + " " + verb + " it"
	case short:
		return "see " + cmd.CommandPath() + " --help"
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	if meant := nearest(name, names); meant != "" {
		return "did you mean --" + meant + "?"
	}
	return "see " + cmd.CommandPath() + " --help"
}

// kinds are the names under which kubectl knows a StatefulSet.
var kinds = []string{"sts", "statefulset", "statefulsets", "statefulset.apps", "statefulsets.apps",
	"statefulset.v1.apps", "statefulsets.v1.apps"}

// bare takes the kind from an argument such as sts/etcd-main.
func bare(arg string) (string, error) {
	kind, name, found := strings.Cut(arg, "/")
	switch {
	case !found:
		return arg, nil
	case !slices.Contains(kinds, strings.ToLower(kind)):
		return "", badInput{fmt.Errorf("%q: %q is not the kind StatefulSet; write %s or sts/%s, and -n %s if that is "+
			"its namespace", arg, kind, name, name, kind)}
	case name == "":
		return "", badInput{fmt.Errorf("%q: names no StatefulSet; write one, such as %setcd-main", arg, arg)}
	}
	return name, nil
}

func allBare(args []string) ([]string, error) {
	names := make([]string, len(args))
	for i, arg := range args {
		var err error
		if names[i], err = bare(arg); err != nil {
			return nil, err
		}
	}
	return names, nil
}

// absent is the error about a StatefulSet that does not exist.
type absent struct {
	text  string
	cause error
}

func (e absent) Error() string { return e.text }
func (e absent) Unwrap() error { return e.cause }

// lister lists StatefulSets. A coordinator does not need to, so its interface has no such method.
type lister interface {
	List(ctx context.Context, o metav1.ListOptions) (*appsv1.StatefulSetList, error)
}

// mostNames is how many names are told: more would hide what is said about them.
const mostNames = 8

// noSuch says that there is no such StatefulSet, and which one was most likely meant.
func noSuch(ctx context.Context, cfg coordinator.Config, cause error) error {
	text := fmt.Sprintf("there is no StatefulSet %s in namespace %s", cfg.StatefulSet, cfg.Namespace)
	ctx, cancel := context.WithTimeout(ctx, cfg.RequestTimeout)
	defer cancel()
	if sets, ok := cfg.StatefulSets.(lister); ok {
		if list, err := sets.List(ctx, metav1.ListOptions{}); err == nil {
			var names []string
			for i := range list.Items {
				names = append(names, list.Items[i].Name)
			}
			text += instead(cfg.StatefulSet, names)
		}
	}
	return badInput{absent{text, cause}}
}

// instead says which names there are in the namespace.
func instead(name string, names []string) string {
	switch meant := didYouMean(name, names); {
	case len(names) == 0:
		return ", nor any other: is that the right namespace (-n), and the right cluster (--context)?"
	case meant != "":
		return meant
	}
	return "; there is " + someOf(names)
}

// someOf are the first names of a list, in order, and how many more there are.
func someOf(names []string) string {
	slices.Sort(names)
	if more := len(names) - mostNames; more > 0 {
		return strings.Join(names[:mostNames], ", ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(names, ", ")
}

var (
	// cannot is how the API server's authorizer by roles says what somebody may not do.
	cannot = regexp.MustCompile(`User "([^"]*)" cannot (\w+) resource "([^"]+)"(?: in API group "[^"]*")?` +
		`(?: in the namespace "([^"]*)")?`)
	ofLease = regexp.MustCompile(`Lease quorate-([a-z0-9.-]*[a-z0-9])`)
	plain   = regexp.MustCompile(`^[A-Za-z0-9:@._/-]+$`)
)

// explain adds who grants what was forbidden.
func explain(err error) error {
	if !apierrors.IsForbidden(err) {
		return err
	}
	parts := cannot.FindStringSubmatch(err.Error())
	if parts == nil {
		return fmt.Errorf("%w\ndeploy/operator.yaml has the roles for people: quorate-viewer to look, and "+
			"STATEFULSET-quorate-operator to pause, resume and override", err)
	}
	user, verb, resource, namespace := parts[1], parts[2], parts[3], parts[4]
	if !plain.MatchString(user) {
		user = "'" + strings.ReplaceAll(user, "'", `'\''`) + "'"
	}
	called, role, file := "quorate-viewer", "--clusterrole=quorate-viewer", "operator.yaml"
	var many ofFleet
	if of := ofLease.FindStringSubmatch(err.Error()); resource == "leases" && (verb == "patch" || verb == "create") {
		called, role, file = "quorate-fleet-operator", "--clusterrole=quorate-fleet-operator", "fleet-operator.yaml"
		if of != nil && !errors.As(err, &many) {
			called, role, file = "quorate-operator", "--role="+of[1]+"-quorate-operator", "operator.yaml"
		} else {
			namespace = "" // One namespace after the other would be forbidden.
		}
	} else if resource != "leases" && resource != "statefulsets" && resource != "pods" {
		return err // No role of ours is about that.
	}
	binding := "clusterrolebinding " + called
	if namespace != "" {
		binding = "rolebinding " + called + " -n " + namespace
	}
	return fmt.Errorf("%w\ndeploy/%s has the role to %s %s. Have it applied, and bound to you: "+
		"kubectl create %s %s --user=%s", err, file, verb, resource, binding, role, user)
}
