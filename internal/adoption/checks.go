package adoption

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/internal/workload"
	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/pkg/rollout"
)

// Checks are all of them, in the order in which somebody who adopts Quorate comes to them: first what the cluster has
// to be like, then what is installed, and at the end what would happen.
var Checks = []Check{
	{Name: "Containers", For: "every pod has the container that runs etcd, by the name that Quorate looks for",
		judge: containers},
	{Name: "Data", For: "the volume of etcd's data directory outlives the pod", judge: data},
	{Name: "Claims", For: "every pod has the volumes of the claim templates, and no claim is being deleted",
		judge: claims},
	{Name: "Recreation", For: "the StatefulSet controller recreates a pod without waiting for another one",
		judge: recreation},
	{Name: "Kubernetes", For: "Quorate was run with this version of Kubernetes", judge: kubernetes},
	{Name: "Etcd", For: "Quorate was run with the versions of etcd that the members tell", judge: etcdVersions},
	{Name: "MemberURLs", For: "each member advertises a client URL of its own, which leads to it from other pods",
		judge: memberURLs},
	{Name: "Authentication", For: "etcd lets its user do what a rollout needs", judge: authentication},
	{Name: "Budget", For: "exactly one PodDisruptionBudget counts the pods, and can allow an eviction", judge: budget},
	{Name: "ServiceAccount", For: "the account that the pod template names exists", judge: account},
	{Name: "Permissions", For: "that account has every right of the Role in deploy/base, by name", judge: permissions},
	{Name: "Sidecars", For: "Quorate runs in every pod, and in one version", judge: sidecars},
	{Name: "Strategy", For: "the update strategy is OnDelete, so that Quorate rolls the pods and nobody else",
		judge: strategy},
	{Name: "Preflight", For: "nothing is known against the change of etcd's version that is pending", judge: preflight},
	{Name: "Rollout", For: "a rollout could begin now: no guard holds its first step", judge: begins},
	{Name: "Hashes", For: "with --data: the members' data have the same hash at one revision", judge: hashes,
		due: func(c *Cluster) bool { return c.Compare }},
}

func container(spec *corev1.PodSpec, name string) *corev1.Container {
	for _, all := range [][]corev1.Container{spec.Containers, spec.InitContainers} {
		if i := slices.IndexFunc(all, func(c corev1.Container) bool { return c.Name == name }); i >= 0 {
			return &all[i]
		}
	}
	return nil
}

func containers(l *look) Finding {
	etcd, spec := l.Names.EtcdContainer, &l.Set.Spec.Template.Spec
	without := l.named(func(p *rollout.Pod) bool { return p.NoEtcdContainer })
	if container(spec, etcd) == nil {
		without = append([]string{"the pod template"}, without...)
	}
	if len(without) > 0 {
		f := found(Fail, "no container is called %s in %s, so nothing would be known of the members", etcd,
			list(without))
		for i := range spec.Containers {
			c := &spec.Containers[i]
			program := ""
			if len(c.Command) > 0 {
				program = path.Base(c.Command[0])
			}
			image, _, _ := strings.Cut(path.Base(c.Image), ":")
			if c.Name != etcd && (program == "etcd" || image == "etcd") {
				return f.do("Name the one that runs etcd, here and in the flags of every sidecar.",
					fmt.Sprintf("%s check -n %s %s --etcd-container=%s", l.Called, l.Set.Namespace, l.Set.Name, c.Name))
			}
		}
		return f.do("Name the one that runs etcd with --etcd-container, here and in the flags of every sidecar.")
	}
	f := found(Pass, "etcd runs in the container %s", etcd)
	if c := QuorateIn(spec); c != nil {
		f.Detail += ", and Quorate in " + c.Name
		pod := &corev1.Pod{Spec: *spec}
		if theirs := workload.Setting(pod, c, "etcd-container", ""); theirs != "" && theirs != etcd {
			return found(Fail, "the sidecars look for etcd in the container %s, and this check in %s", theirs, etcd).
				do("Give both the same --etcd-container.")
		}
	}
	if side := l.Names.SidecarContainer; container(spec, side) == nil {
		f.Detail += "; there is no container " + side + ", so no sidecar counts as sick"
	}
	return f
}

func data(l *look) Finding {
	old := l.named(func(p *rollout.Pod) bool { return p.VolatileData })
	switch {
	case l.State.Set.VolatileData && l.Policy.AllowVolatileData:
		return found(Warn, "each removal costs the member its data: the volume of etcd's data directory does not "+
			"outlive the pod, which is allowed explicitly")
	case l.State.Set.VolatileData:
		return found(Fail, "each removal would cost the member its data: by the pod template, the volume of etcd's "+
			"data directory does not outlive the pod").
			do("Use volumeClaimTemplates. If the volumes are persistent, say where etcd's data is with " +
				"--etcd-data-dir. If the data may be lost, say so with --allow-volatile-data.")
	case len(old) > 0:
		return found(Fail, "the pod template has persistent volumes, and %s keeps its data elsewhere", list(old)).
			do("Its data does not move by itself. Take a backup, and replace its member on purpose while every other " +
				"one serves.")
	}
	return found(Pass, "the volume of etcd's data directory outlives the pod")
}

func claims(l *look) Finding {
	for i := range l.pods {
		p := &l.pods[i]
		if len(p.ClaimsGoing) > 0 {
			return found(Fail, "somebody has deleted the volume claim %s, which goes together with the pod %s",
				list(p.ClaimsGoing), p.Name).
				do("It cannot be saved. Take a backup, or replace the pod's member on purpose while every other one " +
					"serves.")
		}
		if len(p.Unclaimed) > 0 {
			return found(Fail, "%s has no volume for the claim template %s, at which the StatefulSet controller fails "+
				"before it creates any pod above it", p.Name, list(p.Unclaimed)).
				do("Recreate the StatefulSet with its former claim templates: this command leaves its pods running. "+
					"Then apply it again with these templates.",
					l.kubectl("delete statefulset %s --cascade=orphan", l.Set.Name))
		}
	}
	if why := l.Unread["persistentvolumeclaims"]; why != "" {
		return found(Unknown, "nobody knows whether a claim is being deleted: %s", why)
	}
	if r := l.Set.Spec.PersistentVolumeClaimRetentionPolicy; r != nil &&
		r.WhenDeleted == appsv1.DeletePersistentVolumeClaimRetentionPolicyType {
		return found(Warn, "no claim is being deleted, but persistentVolumeClaimRetentionPolicy.whenDeleted is "+
			"Delete: the claims go with the StatefulSet").
			do("Set it to Retain, so that a StatefulSet that is deleted by mistake does not take every member's data.",
				l.kubectl(`patch statefulset %s --type=merge --patch `+
					`'{"spec":{"persistentVolumeClaimRetentionPolicy":{"whenDeleted":"Retain"}}}'`, l.Set.Name))
	}
	return found(Pass, "every pod has its claims, and none is being deleted")
}

func recreation(l *look) Finding {
	if l.State.Set.OrderedReady {
		return found(Warn, "podManagementPolicy is OrderedReady: a pod comes back only when every lower one is "+
			"Ready, so some outages need a person").
			do("Recreate the StatefulSet: this command leaves its pods running. Then apply it again with "+
				"podManagementPolicy Parallel.", l.kubectl("delete statefulset %s --cascade=orphan", l.Set.Name))
	}
	return found(Pass, "podManagementPolicy is Parallel")
}

// triedKubernetes are the first and the last minor version of Kubernetes that the scenarios run on, as README.md says,
// and triedEtcd those of etcd.
var (
	triedKubernetes = [2]int{35, 37}
	triedEtcd       = [2]int{4, 7}
)

func kubernetes(l *look) Finding {
	if l.Kubernetes == "" {
		return found(Unknown, "the API server's version is not known: %s", l.KubernetesUnknown)
	}
	v, known := rollout.ParseVersion(l.Kubernetes)
	if !known || v.Major != 1 || v.Minor < triedKubernetes[0] || v.Minor > triedKubernetes[1] {
		return found(Warn, "Quorate was tested with Kubernetes 1.%d to 1.%d, and this is %s", triedKubernetes[0],
			triedKubernetes[1], l.Kubernetes).do("Try it on a cluster of this version first.")
	}
	return found(Pass, "Kubernetes %s", l.Kubernetes)
}

func etcdVersions(l *look) Finding {
	told := map[string]bool{}
	var strange []string
	for _, m := range l.State.Etcd.Members {
		if m.Probe.Status == nil || m.Probe.Status.Version == "" {
			continue
		}
		text := m.Probe.Status.Version
		v, known := rollout.ParseVersion(text)
		if !told[text] && (!known || v.Major != 3 || v.Minor < triedEtcd[0] || v.Minor > triedEtcd[1]) {
			strange = append(strange, text)
		}
		told[text] = true
	}
	versions := slices.Sorted(maps.Keys(told))
	switch {
	case len(versions) == 0:
		return found(Unknown, "no member has told its version")
	case len(strange) > 0:
		return found(Warn, "Quorate was run with etcd 3.%d to 3.%d, and members tell %s", triedEtcd[0], triedEtcd[1],
			list(strange)).do("Try it on a cluster of this version first.")
	}
	return found(Pass, "the members run etcd %s", strings.Join(versions, " and "))
}

func memberURLs(l *look) Finding {
	m := l.State.Etcd
	if !m.Known {
		return found(Unknown, "etcd has not told its members")
	}
	const remedy = "Set --advertise-client-urls to the pod's own name, such as https://%s.%s.%s.svc:2379."
	how := fmt.Sprintf(remedy, "$(POD_NAME)", l.Set.Spec.ServiceName, l.Set.Namespace)
	var also []string
	started := 0
	for i := range m.Members {
		x := &m.Members[i]
		if len(x.ClientURLs) == 0 {
			continue // It has never started.
		}
		started++
		name := rollout.Label(x.Name, x.ID)
		own, shared := membership.OwnURLs(m, x)
		if len(own) == 0 {
			return found(Fail, "%s advertises only addresses that other members answer as well: %s", name,
				list(shared)).
				do(how + " See docs/operations.md#members-that-advertise-a-shared-address.")
		}
		if !slices.ContainsFunc(own, func(text string) bool { return !workload.InsideURL(text) }) {
			f := found(Fail, "%s advertises only addresses that lead to it from its own pod alone: %s", name,
				list(own)).
				do(how)
			if len(m.Members) == 1 { // Nobody else has to reach it.
				f.Result = Warn
			}
			return f
		}
		if len(shared) > 0 {
			also = append(also, name+" ("+list(shared)+")")
		}
	}
	if len(also) > 0 {
		return found(Warn, "beside a URL of its own, a member advertises one that others answer as well: %s",
			list(also)).
			do("Leave it out of --advertise-client-urls. Clients reach the cluster by the Service all the same.")
	}
	return found(Pass, "each of %s advertises a URL of its own", report.Plural(started, "1 member", "%d members"))
}

func authentication(l *look) Finding {
	m, as := l.State.Etcd, "nobody"
	if l.User != "" {
		as = l.User
	}
	const page = " See docs/versions.md#what-etcds-authentication-asks-for."
	sign := func(f Finding) Finding {
		return f.do("Give --etcd-username and --etcd-password, here and to every sidecar. The user needs read and "+
			"write on the prefix /quorate/."+page, "etcdctl role grant-permission quorate --prefix=true readwrite "+
			"/quorate/")
	}
	root := func(f Finding) Finding {
		return f.do("Grant the sidecars' user the role root, or use a release that does not ask for it."+page,
			"etcdctl user grant-role "+cmp.Or(l.User, "USER")+" root")
	}
	if m.Barred == rollout.ByLogin {
		return sign(found(Fail, "etcd's authentication is on, and it does not accept who asks (as %s)", as))
	}
	refused := m.Detail
	for _, x := range m.Members {
		if x.Probe.Status == nil && strings.Contains(x.Probe.Detail, "permission denied") {
			refused = cmp.Or(refused, x.Probe.Detail)
		}
		if x.Probe.Barred == rollout.ByLogin {
			return sign(found(Fail, "etcd's authentication is on, and %s does not accept who asks (as %s)", x.Name, as))
		}
	}
	switch l.Authentication {
	case membership.AuthOff:
		return found(Pass, "etcd's authentication is off, so its certificates decide")
	case membership.AuthRoot:
		return found(Pass, "etcd's authentication is on, and this user has the role root")
	case membership.AuthNobody:
		return sign(found(Fail, "etcd's authentication is on, and nobody has signed in"))
	case membership.AuthLimited:
		if strings.Contains(refused, "permission denied") {
			return root(found(Fail, "etcd's authentication is on, and refuses what a rollout needs: %s", refused))
		}
		return root(found(Warn, "etcd's authentication is on, and this user does not have the role root: a rollout "+
			"works, but etcd 3.5.28 and newer may refuse to move leadership, and every version refuses to remove "+
			"ghosts and to defragment"))
	}
	return found(Unknown, "whether etcd's authentication is on is not known: %s", l.AuthenticationUnknown)
}

func budget(l *look) Finding {
	if l.Policy.Removal == rollout.RemoveByDelete {
		return found(Pass, "pods are deleted and not evicted (--removal=delete), so no budget is asked")
	}
	if why := l.Unread["poddisruptionbudgets"]; why != "" {
		return found(Unknown, "nobody knows which PodDisruptionBudgets count the pods: %s", why)
	}
	counting := workload.Counting(l.Dump.Budgets, l.Set.Namespace, l.Set.Spec.Template.Labels)
	var names []string
	for _, b := range counting {
		names = append(names, b.Name)
	}
	slices.Sort(names)
	switch len(counting) {
	case 0:
		return found(Warn, "no PodDisruptionBudget counts the pods, so a drain may take a member while Quorate "+
			"replaces another one").do("Make one.", l.kubectl("create poddisruptionbudget %s --max-unavailable=1 "+
			"--selector=%s", l.Set.Name, labels.Set(l.Set.Spec.Selector.MatchLabels)))
	case 1:
		b, replicas := counting[0], l.State.Set.Replicas
		if workload.Blocks(b, replicas, l.Set.Spec.Selector) {
			return found(Fail, "the PodDisruptionBudget %s never lets a pod go, although all are healthy", b.Name).
				do("Let it allow one, or have pods deleted with --removal=delete. If it counts pods of other programs "+
					"too, make one for these pods instead, and take them out of this one's selector.",
					l.kubectl("get poddisruptionbudget %s -o yaml", b.Name))
		}
		return found(Pass, "the PodDisruptionBudget %s counts the pods, and lets %s go while all are healthy", b.Name,
			report.Plural(max(workload.Spare(b, replicas), 1), "1 pod", "%d pods"))
	}
	return found(Fail, "several PodDisruptionBudgets count the pods, so the API refuses every eviction: %s",
		list(names)).
		do("Leave one that counts these pods and no others: narrow the selector of the rest, or delete them. Or have "+
			"pods deleted with --removal=delete.",
			l.kubectl("get poddisruptionbudgets %s -o yaml", strings.Join(names, " ")))
}

// managed is true for the StatefulSet of an Etcd of etcd-druid, which reverts what others write to it.
func (l *look) managed() bool {
	return slices.ContainsFunc(l.Set.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "Etcd" })
}

func account(l *look) Finding {
	name := AccountFor(l.Set)
	if why := l.Unread["serviceaccounts"]; why != "" {
		return found(Unknown, "nobody knows whether the ServiceAccount %s exists: %s", name, why)
	}
	if slices.ContainsFunc(l.Dump.Accounts, func(a corev1.ServiceAccount) bool {
		return a.Name == name && a.Namespace == l.Set.Namespace
	}) {
		return found(Pass, "the ServiceAccount %s exists", name)
	}
	names := "the pod template names the ServiceAccount " + name
	if AccountOf(&l.Set.Spec.Template.Spec) != name {
		names = "deploy/sidecar-patch.yaml lets the pods run as the ServiceAccount " + name
	}
	f := found(Fail, "%s, which does not exist: no pod that is removed would come back", names)
	if name == l.Set.Name && !l.managed() {
		return f.do("Make it with its Role. deploy/base has both, and so has the Helm chart.",
			l.applyBase("deploy/base"))
	}
	return f.do("Make it first.", l.kubectl("create serviceaccount %s", name))
}

// applyBase applies the Role that a folder of deploy has for etcd-main, for this StatefulSet.
func (l *look) applyBase(folder string) string {
	if l.Set.Name == "etcd-main" {
		return l.kubectl("apply -k %s", folder)
	}
	return fmt.Sprintf("kubectl kustomize %s | sed 's/etcd-main/%s/g' | kubectl apply -n %s -f -", folder,
		l.Set.Name, l.Set.Namespace)
}

func permissions(l *look) Finding {
	name := AccountFor(l.Set)
	if l.Access.Unknown != "" {
		return found(Unknown, "nobody knows what the ServiceAccount %s may do: %s", name, l.Access.Unknown)
	}
	var missing []Need
	var lesser []string
	for _, n := range l.Access.Refused {
		switch {
		case l.Policy.Removal == rollout.RemoveByDelete && n.Subresource == "eviction":
		case n.Without == "":
			missing = append(missing, n)
		default:
			lesser = append(lesser, n.String()+" (without it, "+n.Without+")")
		}
	}
	var f Finding
	switch {
	case len(missing) > 0:
		f = found(Fail, "the ServiceAccount %s may not %s", name, inGroups(missing))
	case len(lesser) > 0:
		f = found(Warn, "the ServiceAccount %s may not %s", name, list(lesser))
	default:
		return found(Pass, "the ServiceAccount %s has every right of the Role in deploy/base", name)
	}
	base := "deploy/base"
	if l.managed() {
		base = "deploy/druid/access"
	}
	apply := l.applyBase(base)
	switch name {
	case l.Set.Name:
		return f.do("Grant them. If the account is not Quorate's own, add deploy/components/existing-account, so that "+
			"it stays when the Role goes.", apply)
	case "default":
		return f.do("Grant them to an account of its own: set serviceAccountName in the pod template, as "+
			"deploy/sidecar-patch.yaml does. Do not bind the Role to the account default: every pod of the namespace "+
			"that names no account runs as that one.", apply)
	}
	return f.do("Grant them with deploy/components/existing-account. The Role is bound to the ServiceAccount "+
		l.Set.Name+", so bind it to this one too.", apply,
		l.kubectl("create rolebinding %s-quorate --role=%s-quorate --serviceaccount=%s:%s", name, l.Set.Name,
			l.Set.Namespace, name))
}

// inGroups tells rights in as few words as there are sorts of objects.
func inGroups(needs []Need) string {
	type group struct{ resource, verbs, names string }
	var groups []*group
	add := func(to, more string) string {
		if to == "" || slices.Contains(strings.Split(to, ", "), more) {
			return cmp.Or(to, more)
		}
		return to + ", " + more
	}
	for _, n := range needs { // A verb of one resource, with all names.
		resource, _, _ := strings.Cut(strings.TrimPrefix(n.String(), n.Verb+" "), " ")
		i := slices.IndexFunc(groups, func(g *group) bool { return g.resource == resource && g.verbs == n.Verb })
		if i < 0 {
			i = len(groups)
			groups = append(groups, &group{resource: resource, verbs: n.Verb})
		}
		groups[i].names = add(groups[i].names, n.Name)
	}
	var words []string
	for i, g := range groups { // The verbs that are about the same.
		if i > 0 && groups[i-1].resource == g.resource && groups[i-1].names == g.names {
			g.verbs = groups[i-1].verbs + " and " + g.verbs
			words = words[:len(words)-1]
		}
		words = append(words, strings.TrimSpace(g.verbs+" "+g.resource+" "+g.names))
	}
	return strings.Join(words, "; ")
}

func sidecars(l *look) Finding {
	spec := &l.Set.Spec.Template.Spec
	here := QuorateIn(spec)
	switch {
	case here == nil && l.managed():
		return found(Fail, "the pod template has no Quorate").do("Let the Etcd opt in, as " +
			"docs/getting-started.md#opt-in says.")
	case here == nil:
		account := ""
		if of := AccountOf(spec); of != "" && of != "default" && of != l.Set.Name {
			account = ", and without serviceAccountName, because the pods keep the account " + of
		}
		return found(Fail, "the pod template has no Quorate").do("Copy deploy/sidecar-patch.yaml, with your image and "+
			"etcd's names in it"+account+". Leave the update strategy at RollingUpdate for that. Every member has to "+
			"serve first, because RollingUpdate takes the next pod whoever is down.",
			l.kubectl("patch statefulset %s --patch-file sidecar-patch.yaml", l.Set.Name))
	}
	if wrong := Misled(here, l.Set); wrong != "" {
		return found(Fail, "the sidecars cannot find their StatefulSet").do(wrong)
	}
	switch {
	case len(l.without) > 0 && l.Set.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType && l.none:
		return found(Fail, "the pod template has Quorate, and no pod has it: nobody rolls them").
			do("Let a Job roll them this once, with your image and the Secrets with etcd's certificates.",
				fmt.Sprintf("sed 's|etcd-main|%s|g; s|image: quorate .*|image: IMAGE|' deploy/bootstrap-job.yaml | "+
					"kubectl apply -n %s -f -", l.Set.Name, l.Set.Namespace))
	case len(l.without) > 0 && l.Set.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType:
		return found(Fail, "no Quorate in %s; the others roll it", list(l.without)).
			do("Wait for the end of the rollout.",
				fmt.Sprintf("%s status -n %s %s --watch", l.Called, l.Set.Namespace, l.Set.Name))
	case len(l.without) > 0:
		return found(Fail, "no Quorate in %s yet", list(l.without)).do("Wait until Kubernetes has rolled the pods.",
			l.kubectl("rollout status statefulset/%s", l.Set.Name))
	}
	if len(l.down) > 0 {
		var pods []string
		for pod, why := range l.down {
			pods = append(pods, pod+" ("+why+")")
		}
		slices.Sort(pods)
		return found(Fail, "Quorate does not run in %s", list(pods)).do("See why.", l.see)
	}
	versions := l.sidecarVersions()
	switch len(versions) {
	case 0:
		return found(Fail, "there is no pod yet")
	case 1:
		return found(Pass, "Quorate runs in every pod, and in one version: %s", versions[0])
	}
	return found(Warn, "Quorate runs in every pod, in several versions: %s", list(versions)).
		do("Let the rollout end. No operation on members begins while sidecars of different schemas are present.")
}

// sidecarVersions are the images that Quorate runs from. A tag may be pushed again, so the kubelets' word on which one
// it is counts too.
func (l *look) sidecarVersions() (versions []string) {
	ids := map[string]string{}
	for _, p := range owned(l.Dump, l.Set, l.Names) {
		c := QuorateIn(&p.Spec)
		if c == nil {
			continue
		}
		version, id := c.Image, ""
		if s := workload.StatusOf(p, c.Name); s != nil {
			id = s.ImageID
		}
		if was, seen := ids[version]; seen && id != "" && was != "" && was != id {
			version += " (" + id + ")"
		} else if id != "" || !seen {
			ids[version] = id
		}
		if !slices.Contains(versions, version) {
			versions = append(versions, version)
		}
	}
	slices.Sort(versions)
	return versions
}

func strategy(l *look) Finding {
	patch := l.kubectl(`patch statefulset %s --type=merge --patch `+
		`'{"spec":{"updateStrategy":{"type":"OnDelete","rollingUpdate":null}}}'`, l.Set.Name)
	switch is := cmp.Or(l.Set.Spec.UpdateStrategy.Type, appsv1.RollingUpdateStatefulSetStrategyType); {
	case is == appsv1.OnDeleteStatefulSetStrategyType:
		return found(Pass, "the update strategy is OnDelete")
	case l.managed():
		return found(Fail, "the update strategy is %s, so Kubernetes rolls the pods", is).do("Do not change it here: " +
			"etcd-druid would revert that. The policy of deploy/druid sets it for an Etcd that opts in.")
	case len(l.without) > 0 || QuorateIn(&l.Set.Spec.Template.Spec) == nil:
		return found(Fail, "the update strategy is %s, so Kubernetes rolls the pods: not yet OnDelete", is).
			do("Leave it until every pod has its sidecar, because with OnDelete and without sidecars nobody rolls the "+
				"pods. Then:", patch)
	case len(l.down) > 0:
		return found(Fail, "the update strategy is %s, so Kubernetes rolls the pods: not yet OnDelete", is).
			do("Leave it until every sidecar runs. Then:", patch)
	default:
		return found(Fail, "the update strategy is %s, so Kubernetes rolls the pods, and Quorate only looks on", is).
			do("Every pod has its sidecar, so switch now.", patch)
	}
}

func preflight(l *look) Finding {
	p := report.NewPreflight(l.decision)
	var apply, do []string
	for _, c := range p.Checks {
		if c.Applies == "yes" {
			text := fmt.Sprintf("%s (from %s to %s): %s", c.Guard, c.From, c.To, cmp.Or(c.Why, list(c.Found)))
			apply, do = append(apply, text), append(do, c.Do)
		}
	}
	unasked := len(p.Members) == 0 && l.NotAsked != nil
	switch {
	case len(apply) > 0:
		return found(Fail, "%s", strings.Join(apply, "; ")).do(strings.Join(slices.Compact(do), "; "),
			fmt.Sprintf("%s plan -n %s %s --assume-on-delete --all", l.Called, l.Set.Namespace, l.Set.Name))
	case p.Unknown != "" && unasked:
		return found(Unknown, "%s", p.Unknown)
	case p.Unknown != "":
		return found(Warn, "not checked: %s", p.Unknown)
	case p.Same:
		return found(Pass, "no change of etcd's version is pending")
	case p.Unchecked != "":
		return found(Warn, "nothing is known against etcd %s, but not all is checked: %s", p.New, p.Unchecked)
	}
	return found(Pass, "nothing is known against the step from etcd %s to %s", list(slices.Compact(p.Members)), p.New)
}

func begins(l *look) Finding {
	d := &l.decision
	w := report.NewPlan(*d)
	switch {
	case l.NotAsked != nil && d.Rule != rollout.RuleHeld:
		return found(Unknown, "etcd was not asked, so no guard was either")
	case w.Action == rollout.ActionHold:
		return found(Fail, "it would be held by %s: %s", w.Guard, w.Reason).do(w.Do)
	case slices.Contains(l.Assumed, rollout.AssumedResumed):
		return found(Warn, "it is paused; without that, the first step would be %s", w.Headline()).
			do("Look at what it would do. To let it go:", fmt.Sprintf("%s plan -n %[2]s %[3]s --assume-on-delete --all",
				l.Called, l.Set.Namespace, l.Set.Name), fmt.Sprintf("%s resume -n %s %s", l.Called, l.Set.Namespace,
				l.Set.Name))
	case w.Action == rollout.ActionWait:
		return found(Warn, "it would wait: %s: %s", w.Headline(), w.Reason).do(w.Do)
	}
	return found(Pass, "its first step would be %s", w.Headline())
}

func hashes(l *look) Finding {
	if len(l.Hashes) == 0 {
		return found(Unknown, "no member has told the revision of its data, at which they could be compared")
	}
	var values, failed []string
	compacted := map[int64]bool{}
	differ := false
	for _, h := range l.Hashes {
		if h.Err != nil {
			failed = append(failed, h.Member+" ("+h.Err.Error()+")")
			continue
		}
		compacted[h.Compacted] = true
		differ = differ || h.Value != l.Hashes[0].Value && l.Hashes[0].Err == nil
		values = append(values, fmt.Sprintf("%s %08x", h.Member, h.Value))
	}
	switch {
	case len(failed) > 0:
		return found(Unknown, "no hash of %s", list(failed))
	case len(compacted) > 1:
		return found(Unknown, "the members have forgotten their history up to different revisions, so their hashes "+
			"cannot be compared").do("Ask again: etcd compacts every few minutes, one member a moment after the other.")
	case differ:
		return found(Fail, "at revision %d the members' data differ: %s", l.Revision, list(values)).
			do("No update cures that. See docs/operations.md#when-etcd-raises-the-alarm-corrupt.")
	}
	return found(Pass, "at revision %d the data of %s have the same hash", l.Revision,
		report.Plural(len(l.Hashes), "1 member", "%d members"))
}
