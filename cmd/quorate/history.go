package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/pkg/options"
)

func history() *cobra.Command {
	o := options.NewClient()
	var output string
	cmd := &cobra.Command{
		Use:        "history [STATEFULSET]",
		SuggestFor: []string{"log", "logs", "events"},
		Short:      "Show the last removals, leader moves, defragmentations, hand-overs and completions",
		Long: fmt.Sprintf(`Shows what coordinators have done, oldest first: pods removed, leadership moved, members
defragmented (how long each was away, and how much space that freed), the rollout handed over to
another sidecar, and rollouts completed. The last %d entries are kept on the Lease
quorate-STATEFULSET (annotation %s).`, report.HistoryLength, report.HistoryAnnotation),
		Example: `  # What was done last, and by whom?
  quorate history -n garden etcd-main`,
		Args:              oneStatefulSet,
		ValidArgsFunction: completeStatefulSet(o, ours),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output, "table", "json", "yaml"); err != nil {
				return err
			}
			cfg, err := reach(cmd.Context(), o, args)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), cfg.RequestTimeout)
			defer cancel()
			lease, err := record.Read(ctx, cfg.Leases, cfg.StatefulSet)
			if err != nil {
				return err
			}
			if lease == nil {
				if _, err := existing(ctx, cfg); err != nil {
					return err
				}
			}
			_, h, err := report.FromLease(lease)
			if err != nil {
				return err
			}
			if h == nil {
				h = report.History{} // An empty list, not null.
			}
			if output != "table" {
				return encode(cmd.OutOrStdout(), output, "HistoryEntry", h)
			}
			if len(h) == 0 {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s: nothing has been done to %s/%s yet\n", name(cmd), cfg.Namespace,
					cfg.StatefulSet)
				return nil
			}
			return h.Table(cmd.OutOrStdout(), time.Now())
		},
	}
	o.AddFlags(cmd.Flags())
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table, json or yaml")
	completeOutput(cmd, "table", "json", "yaml")
	return cmd
}
