package controlplane

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// Audit names those whose requests the API server writes to its audit log. Without any name there is no log.
type Audit struct {
	// Users and Groups are called as the API server calls them, such as system:serviceaccounts:default for all
	// ServiceAccounts of a namespace. It is enough to be one of them.
	Users, Groups []string
}

func (a Audit) off() bool { return len(a.Users) == 0 && len(a.Groups) == 0 }

// policy has one event for each request, without its body: when the request is over, or when a watch is opened, because
// that ends long after it has been asked for.
func (a Audit) policy() auditv1.Policy {
	p := auditv1.Policy{TypeMeta: metav1.TypeMeta{APIVersion: auditv1.SchemeGroupVersion.String(), Kind: "Policy"}}
	for _, who := range []auditv1.PolicyRule{{Users: a.Users}, {UserGroups: a.Groups}} {
		if len(who.Users) == 0 && len(who.UserGroups) == 0 {
			continue // A rule without names is for everybody.
		}
		who.Level = auditv1.LevelMetadata
		watch := who
		watch.Verbs = []string{"watch"}
		watch.OmitStages = []auditv1.Stage{auditv1.StageRequestReceived, auditv1.StageResponseComplete}
		who.OmitStages = []auditv1.Stage{auditv1.StageRequestReceived, auditv1.StageResponseStarted}
		p.Rules = append(p.Rules, watch, who)
	}
	p.Rules = append(p.Rules, auditv1.PolicyRule{Level: auditv1.LevelNone})
	return p
}

// mostAuditMiB is more than a run writes. A log that were begun anew would have lost requests without a word.
const mostAuditMiB = 4096

func (cp *ControlPlane) auditLog() string { return cp.path("logs", "audit.log") }

// auditFlags writes the policy, and returns the API server's flags. An event is in the log before its answer is out.
func (cp *ControlPlane) auditFlags() ([]string, error) {
	if cp.config.Audit.off() {
		return nil, nil
	}
	policy, err := json.Marshal(cp.config.Audit.policy())
	if err != nil {
		return nil, err
	}
	path := cp.path("audit-policy.json")
	return []string{"--audit-policy-file=" + path, "--audit-log-path=" + cp.auditLog(),
		fmt.Sprintf("--audit-log-maxsize=%d", mostAuditMiB)}, os.WriteFile(path, policy, 0o644)
}

// Audited returns the requests that the API server has received since then, by those whom Config.Audit names, in the
// order of the log.
func (cp *ControlPlane) Audited(since time.Time) ([]auditv1.Event, error) {
	log, err := os.ReadFile(cp.auditLog())
	if err != nil {
		return nil, fmt.Errorf("read the audit log (Config.Audit names %q and %q): %w", cp.config.Audit.Users,
			cp.config.Audit.Groups, err)
	}
	var events []auditv1.Event
	for {
		line, rest, whole := bytes.Cut(log, []byte("\n"))
		if !whole {
			return events, nil // The rest of a line is still to be written.
		}
		log = rest
		var event auditv1.Event
		if err := json.Unmarshal(line, &event); err != nil {
			return nil, fmt.Errorf("%s: %w", cp.auditLog(), err)
		}
		if !event.RequestReceivedTimestamp.Time.Before(since) {
			events = append(events, event)
		}
	}
}
