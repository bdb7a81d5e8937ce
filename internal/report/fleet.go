package report

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/pkg/rollout"
)

// Heard says how much a row of a fleet can be believed.
type Heard string

// What has been heard.
const (
	// HeardNow: a coordinator reports now.
	HeardNow Heard = "Now"
	// HeardIdle: the last rollout is complete, and its coordinator has let go. Nobody has looked at etcd since.
	HeardIdle Heard = "Idle"
	// HeardSilent: a rollout is under way, or somebody holds the record, and nothing new is reported.
	HeardSilent Heard = "Silent"
	// HeardNever: nobody has reported anything.
	HeardNever Heard = "Never"
)

// FleetRow is what the Lease of one StatefulSet says. Only what a coordinator reports now is said of etcd: an old
// report leaves those fields empty.
type FleetRow struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Verdict says whether the cluster is safe. It is UNKNOWN unless somebody reports now.
	Verdict Verdict `json:"verdict"`
	// Action, Guard and Since are those of the report. Where it is silent there is no action. A control that holds
	// everything shows at once, whether its coordinator has seen it or not.
	Action rollout.ActionName `json:"action,omitempty"`
	Guard  rollout.Guard      `json:"guard,omitempty"`
	Since  time.Time          `json:"since,omitzero"`
	Reason string             `json:"reason,omitempty"`

	Serving int `json:"serving,omitempty"`
	Quorum  int `json:"quorum,omitempty"`
	Voters  int `json:"voters,omitempty"`
	// Versions are those of etcd that the members report.
	Versions []string  `json:"versions,omitempty"`
	Progress *Progress `json:"progress,omitempty"`

	// Heard says how much of this can be believed. Reported is when a coordinator reported last, and Coordinator who.
	Heard       Heard     `json:"heard"`
	Reported    time.Time `json:"reported,omitzero"`
	Coordinator string    `json:"coordinator,omitempty"`
	// Paused, Overrides and Bad are controls on the Lease.
	Paused    bool     `json:"paused,omitempty"`
	Overrides []string `json:"overrides,omitempty"`
	Bad       []string `json:"badControls,omitempty"`
}

// StatefulSetOf is the name of the StatefulSet whose record the Lease is. It is false for a Lease of others.
func StatefulSetOf(lease *coordinationv1.Lease) (string, bool) {
	name, ours := strings.CutPrefix(lease.Name, record.Name(""))
	if !ours || name == "" {
		return "", false
	}
	for key := range lease.Annotations {
		if strings.HasPrefix(key, "quorate.dev/") {
			return name, true
		}
	}
	return "", false
}

// NewFleetRow reads a row from a Lease; nil is one that does not exist. A report that cannot be read counts as none.
func NewFleetRow(namespace, name string, lease *coordinationv1.Lease, now time.Time) FleetRow {
	last, _, unreadable := FromLease(lease)
	parsed, controls := record.Parse(lease), record.Controls(lease).At(last.UpdateRevision, now)
	row := FleetRow{
		Namespace: namespace, Name: name, Reported: last.At, Coordinator: last.Coordinator, Paused: controls.Paused,
		Bad: controls.Bad,
	}
	for _, guard := range controls.Override {
		row.Overrides = append(row.Overrides, string(guard))
	}
	finished := last.Action == rollout.ActionComplete || last.Action == rollout.ActionIdle
	switch {
	case last.At.IsZero():
		row.Heard, row.Reason = HeardNever, "no coordinator has reported anything yet"
		if unreadable != nil {
			row.Reason = unreadable.Error()
		}
	case last.Fresh(now, parsed), finished && last.within(now, FreshFor):
		row.Heard = HeardNow
		row.Serving, row.Quorum, row.Voters, row.Versions = last.Serving, last.Quorum, last.Voters, last.versions()
		row.Action, row.Guard, row.Since, row.Reason = last.Action, last.Guard, last.Since, last.Reason
		row.Progress = &last.Progress
	case finished && parsed.Holder == "" && !parsed.Rolling:
		row.Heard, row.Action, row.Since, row.Reason = HeardIdle, last.Action, last.Since, last.Reason
	default:
		row.Heard = HeardSilent
		row.Reason = fmt.Sprintf("%s was the last to report, %s ago (%s)", last.Coordinator, Ago(now, last.At),
			last.Headline())
	}
	if row.Verdict = last.Verdict(); row.Heard != HeardNow {
		row.Verdict = (&Status{Report: last, Now: now}).silence()
	}
	row.hold(controls)
	return row
}

// hold lets a control that holds everything show at once. What is not Quorate's to roll is not held by it.
func (row *FleetRow) hold(c rollout.Controls) {
	guard := rollout.GuardPaused
	if len(c.Bad) > 0 {
		guard = rollout.GuardBadControl
	}
	if !c.HoldAll() || row.Action == rollout.ActionIdle || row.Action == rollout.ActionHold && row.Guard == guard {
		return
	}
	row.Action, row.Guard, row.Since = rollout.ActionHold, guard, time.Time{}
	if row.Reason = "paused by its operator"; guard == rollout.GuardBadControl {
		row.Reason = strings.Join(c.Bad, "; ")
	}
}

// versions are those of etcd, each once.
func (r *Report) versions() []string {
	var versions []string
	for i := range r.Members {
		if v := r.Members[i].Version; v != "" && !slices.Contains(versions, v) {
			versions = append(versions, v)
		}
	}
	slices.Sort(versions)
	return versions
}

// Waits is true where somebody has to look: it holds or waits, or nothing is heard in the middle of a rollout.
func (row *FleetRow) Waits() bool {
	return row.Action == rollout.ActionHold || row.Action == rollout.ActionWait || row.Heard == HeardSilent
}

// Key is equal for two rows that say the same but for times and words.
func (row *FleetRow) Key() string {
	key := fmt.Sprint(row.Verdict.Safety, row.Action, row.Guard, row.Serving, row.Quorum, row.Heard, row.Paused,
		row.Overrides)
	if row.Progress != nil {
		key += row.Progress.String()
	}
	return key
}

// Line is the row for a log.
func (row *FleetRow) Line(now time.Time) string {
	text := fmt.Sprintf("%s  %s/%s  %s", now.UTC().Format(time.RFC3339), row.Namespace, row.Name, row.Verdict.Safety)
	for _, more := range []string{string(row.Action), string(row.Guard), row.heard(now)} {
		if more != "" {
			text += "  " + more
		}
	}
	return clean(text + ": " + row.Reason)
}

// heard is the age of the report, with a word for one that is not believed.
func (row *FleetRow) heard(now time.Time) string {
	switch row.Heard {
	case HeardNever:
		return "never"
	case HeardIdle:
		return "idle " + Ago(now, row.Reported)
	case HeardSilent:
		return "SILENT " + Ago(now, row.Reported)
	case HeardNow:
	}
	return Ago(now, row.Reported) + " ago"
}

// controls are those that are set, in words.
func (row *FleetRow) controls() string {
	var set []string
	if row.Paused {
		set = append(set, "paused")
	}
	if len(row.Overrides) > 0 {
		set = append(set, "overridden: "+sorted(row.Overrides))
	}
	if len(row.Bad) > 0 {
		set = append(set, "BAD")
	}
	return dash(strings.Join(set, "; "))
}

// Fleet is many StatefulSets, a row each.
type Fleet struct {
	Items []FleetRow `json:"items"`
}

// Sort orders the rows by namespace and name, as kubectl does.
func (f Fleet) Sort() {
	slices.SortFunc(f.Items, func(a, b FleetRow) int {
		if n := strings.Compare(a.Namespace, b.Namespace); n != 0 {
			return n
		}
		return strings.Compare(a.Name, b.Name)
	})
}

// Waits is true if one of them does.
func (f Fleet) Waits() bool {
	return slices.ContainsFunc(f.Items, func(row FleetRow) bool { return row.Waits() })
}

// Table writes a line for each StatefulSet; a wide one has the reason too.
func (f Fleet) Table(w io.Writer, now time.Time, wide bool) error {
	head := []string{"NAMESPACE", "NAME", "VERDICT", "ACTION", "GUARD", "SINCE", "SERVING/QUORUM", "VERSIONS",
		"REPORTED"}
	if wide {
		head = append(head, "SETTLED", "CONTROLS", "COORDINATOR", "REASON")
	}
	t := newTable(w, head...)
	for i := range f.Items {
		row := &f.Items[i]
		since, serving, settled := "-", "-", "-"
		if !row.Since.IsZero() {
			since = Ago(now, row.Since)
		}
		if row.Quorum > 0 {
			serving = strconv.Itoa(row.Serving) + "/" + strconv.Itoa(row.Quorum)
		}
		if row.Progress != nil {
			settled = fmt.Sprintf("%d/%d", row.Progress.Settled, row.Progress.Pods)
		}
		cells := []string{row.Namespace, row.Name, string(row.Verdict.Safety), dash(string(row.Action)),
			dash(string(row.Guard)),
			since, serving, dash(strings.Join(row.Versions, ",")), row.heard(now)}
		if wide {
			cells = append(cells, settled, row.controls(), dash(row.Coordinator), row.Reason)
		}
		t.row(cells...)
	}
	return t.Flush()
}
