package adoption

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/quorate/quorate/internal/workload"
)

const (
	// Toggle turns Quorate on in a host (see options.Hosted).
	Toggle = "--enable-quorum-aware-pod-updates"
	// OptIn is the annotation of a pod template on which the policy of deploy/druid acts.
	OptIn = "quorate.dev/quorum-aware-pod-updates"
)

// QuorateIn returns the container of the pod that has Quorate turned on: a host with the flag, or a sidecar
// of its own. It returns nil if there is none.
func QuorateIn(spec *corev1.PodSpec) *corev1.Container {
	for i := range spec.Containers {
		c := &spec.Containers[i]
		line := slices.Concat(c.Command, c.Args)
		for n, arg := range line {
			switch name, value, given := strings.Cut(arg, "="); {
			case arg == "sidecar" && (n == 0 || n == 1 && path.Base(line[0]) == "quorate"):
				return c
			case name == Toggle:
				if on, err := strconv.ParseBool(value); !given || on || err != nil {
					return c
				}
			}
		}
	}
	return nil
}

// Misled says what in the container's own manifest keeps Quorate from finding its StatefulSet.
func Misled(c *corev1.Container, set *appsv1.StatefulSet) string {
	line := slices.Concat(c.Command, c.Args)
	given := func(flag string) string {
		for _, arg := range line {
			if value, ok := strings.CutPrefix(arg, flag+"="); ok {
				return value
			}
		}
		return ""
	}
	for _, part := range []struct{ flag, env, is string }{
		{"--namespace", "POD_NAMESPACE", set.Namespace}, {"--statefulset", "POD_NAME", set.Name},
	} {
		inEnv := slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == part.env })
		switch value := given(part.flag); {
		case value == "" && !inEnv && len(c.EnvFrom) == 0:
			return fmt.Sprintf("The container %s of the pod template has no %s, so Quorate does not know where it is. "+
				"Let the container have it from the pod's own metadata.", c.Name, part.env)
		case value != "" && value != part.is && !strings.HasPrefix(value, "$("):
			return fmt.Sprintf("The container %s of the pod template has %s=%s, and this is %s/%s. Correct the flag.",
				c.Name, part.flag, value, set.Namespace, set.Name)
		}
	}
	return ""
}

// owned are the pods of the StatefulSet.
func owned(dump *workload.Dump, set *appsv1.StatefulSet, names workload.Names) (pods []*corev1.Pod) {
	facts := workload.SetFacts(set, names)
	for i := range dump.Pods {
		if p := &dump.Pods[i]; workload.PodFacts(p, facts, names).Owned {
			pods = append(pods, p)
		}
	}
	return pods
}

// Crashed says what is wrong with the container that runs Quorate, whatever its name, for each pod of the StatefulSet
// where it does not run, and see is the command that shows why. The words are empty if it runs in one.
func Crashed(dump *workload.Dump, set *appsv1.StatefulSet, names workload.Names) (down map[string]string,
	words, see string) {
	down = map[string]string{}
	var list []string
	running := false
	for _, p := range owned(dump, set, names) {
		c := QuorateIn(&p.Spec)
		if c == nil {
			continue
		}
		s := workload.StatusOf(p, c.Name)
		if s == nil {
			continue // Its pod has not started yet.
		}
		why, last := notRunning(s)
		if why == "" {
			running = running || s.State.Running != nil
			continue
		}
		down[p.Name] = why
		list = append(list, p.Name+" ("+why+last+")")
		if see == "" || last != "" {
			see = howToSee(p, s)
		}
	}
	if running || len(list) == 0 {
		return down, "", see
	}
	slices.Sort(list)
	return down, "Quorate does not run in " + strings.Join(list, ", ") + ". See why: " + see, see
}

// notRunning says why a container does not run, and how it ended last. One that has ended before and is not ready is
// between two crashes. It is empty for one that runs, and for one that is being created.
func notRunning(s *corev1.ContainerStatus) (why, last string) {
	ended := s.LastTerminationState.Terminated
	if ended != nil {
		last = fmt.Sprintf(", last exit code %d", ended.ExitCode)
	}
	switch now, waiting := s.State.Terminated, s.State.Waiting; {
	case now != nil:
		return cmp.Or(now.Reason, "Terminated"), fmt.Sprintf(", exit code %d", now.ExitCode)
	case s.State.Running != nil && !s.Ready && ended != nil && ended.ExitCode != 0:
		return "crashes", last
	case waiting != nil && ended == nil &&
		(waiting.Reason == "ContainerCreating" || waiting.Reason == "PodInitializing"):
	case waiting != nil:
		return cmp.Or(waiting.Reason, "Waiting"), last
	}
	return "", ""
}

// howToSee is the command that shows why a container does not run. One that has never run has no log.
func howToSee(p *corev1.Pod, s *corev1.ContainerStatus) string {
	logs := fmt.Sprintf("kubectl logs -n %s %s -c %s", p.Namespace, p.Name, s.Name)
	switch {
	case s.State.Terminated != nil:
		return logs
	case s.LastTerminationState.Terminated != nil:
		return logs + " --previous"
	}
	return fmt.Sprintf("kubectl describe pod -n %s %s", p.Namespace, p.Name)
}

// Without are the pods of the StatefulSet whose sidecar has no Quorate, while others have it.
func Without(dump *workload.Dump, set *appsv1.StatefulSet, names workload.Names) (without []string, all bool) {
	running := 0
	for _, p := range owned(dump, set, names) {
		if QuorateIn(&p.Spec) != nil {
			running++
		} else {
			without = append(without, p.Name)
		}
	}
	slices.Sort(without)
	return without, running == 0
}
