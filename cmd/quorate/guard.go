package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/coordinator"
	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/pkg/options"
	"github.com/quorate/quorate/pkg/rollout"
)

func guard() *cobra.Command {
	var on, off bool
	o := options.NewClient()
	cmd := control(o, &cobra.Command{
		Use:   "guard [STATEFULSET] [--off | --on]",
		Short: "Show which pods the quorum guard keeps, or turn it off for one StatefulSet",
		Long: `Shows which pods quorum rests on now, and why. While a rollout or another operation is under way,
the quorum guard (the admission policy in deploy/components/quorum-guard) denies that anybody
deletes or evicts one of them. Where that policy is not installed, nothing is denied.

With --off the guard lets everything pass for this StatefulSet, until --on. Nothing else changes:
a rollout goes on as before. You need that if all sidecars ended in the middle of an operation and
none will come back to end it. Otherwise the pods are free as soon as it is over. If a pod is deleted
while quorum rests on it, writes fail.` +
			fmt.Sprintf(controlsLong, rollout.ControlQuorumGuard+"="+rollout.QuorumGuardOff),
		Example: `  # Which pods are kept now?
  quorate guard -n garden etcd-main

  # No sidecar is left, and a pod has to go:
  quorate guard -n garden etcd-main --off`,
		Args: func(cmd *cobra.Command, args []string) error {
			if on && off {
				return badInput{errors.New("--on, --off: give one of them")}
			}
			return oneStatefulSet(cmd, args)
		},
	}, func(cmd *cobra.Command, cfg coordinator.Config, before found) error {
		if !on && !off {
			return showGuard(cmd, cfg, before)
		}
		word := rollout.QuorumGuardOff
		value := &word
		if on {
			value = nil
		}
		lease, err := annotate(cmd.Context(), cfg, rollout.ControlQuorumGuard, value)
		if err != nil {
			return err
		}
		if on {
			return say(cmd, lease, "%s/%s: the quorum guard is on; it denies what would take quorum while an "+
				"operation is under way", cfg.Namespace, cfg.StatefulSet)
		}
		return say(cmd, lease, "%s/%s: the quorum guard is off and denies nothing; to turn it on again: "+
			"%s guard%s --on", cfg.Namespace, cfg.StatefulSet, name(cmd), arguments(cfg))
	})
	cmd.Flags().BoolVar(&off, "off", false, "let everything pass for this StatefulSet")
	cmd.Flags().BoolVar(&on, "on", false, "end that")
	return cmd
}

// showGuard shows what the guard goes by.
func showGuard(cmd *cobra.Command, cfg coordinator.Config, before found) error {
	out := cmd.OutOrStdout()
	lease, err := record.Read(cmd.Context(), cfg.Leases, cfg.StatefulSet)
	if err != nil {
		return err
	}
	needed := record.NeededOf(lease)
	if len(needed.Pods) == 0 {
		_, err = fmt.Fprintf(out, "%s/%s: no pod is kept, because no operation is under way that quorum rests on, or "+
			"because it holds\n", cfg.Namespace, cfg.StatefulSet)
	} else {
		pods := strings.Join(slices.Sorted(maps.Keys(needed.Pods)), " and ")
		_, err = fmt.Fprintf(out, "%s/%s: quorum rests on %s during %s, since %s by %s\n", cfg.Namespace,
			cfg.StatefulSet, pods, needed.During, needed.Since.Format(time.RFC3339), record.Parse(lease).Holder)
	}
	if err == nil && before.GuardOff {
		_, err = fmt.Fprintf(out, "The quorum guard is off and denies nothing; to turn it on again: %s guard%s --on\n",
			name(cmd), arguments(cfg))
	}
	return err
}
