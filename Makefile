# Targets for people. `make help` lists them.
SHELL := /usr/bin/env bash
.DEFAULT_GOAL := help

# The race detector needs cgo and a C compiler. Without one, the tests run without it.
CC_FOUND := $(shell command -v $${CC:-cc} 2>/dev/null || command -v gcc 2>/dev/null)
RACE := $(if $(CC_FOUND),-race,)
GO := $(if $(CC_FOUND),CGO_ENABLED=1) go

# Everything is compiled without paths, and without cgo where the race detector does not need it. So builds, tests and
# the linter share what they compile. Kubernetes takes minutes.
export CGO_ENABLED := 0
export GOFLAGS := $(sort $(GOFLAGS) -trimpath)

# The hosts' sources come from the usual module proxy. Where that lacks them, QUORATE_HOSTS names a folder whose goproxy
# has them, laid out as Go's own proxies are. The checksum database knows only what is public, so go.sum alone has to
# vouch for these. A make within make has all this already.
ifneq ($(QUORATE_HOSTS),)
override export QUORATE_HOSTS := $(abspath $(QUORATE_HOSTS))
ifeq ($(findstring $(QUORATE_HOSTS)/goproxy,$(GOPROXY)),)
export GOPROXY := file://$(QUORATE_HOSTS)/goproxy,$(shell go env GOPROXY)
export GONOSUMDB := github.com/gardener/*,$(shell go env GONOSUMDB)
endif
endif
# These targets need a host's source. They leave out what cannot be had, and say so.
ETCDBRCTL := tools/hosts cmd/etcdbrctl

BUILDAH ?= buildah
IMAGE ?= quorate
IMAGE_ETCDBRCTL ?= etcdbrctl
# What the host's own image is made from.
BASE ?= gcr.io/distroless/static-debian12:nonroot

SCENARIO ?= healthy
STRATEGY ?= OnDelete
DURATION ?= 10m
SEED ?= 1
SOAKS ?= .build/soak/*.jsonl
HARNESS := ./harness/... ./cmd/demo/... ./cmd/flags ./versions
BENCH_COUNT ?= 6
BENCH_TIME ?= 100ms

.PHONY: help
help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'
	@echo
	@echo "  make demo SCENARIO=sick-member STRATEGY=RollingUpdate"
	@echo "                    the same cluster rolled by Kubernetes itself, with one member down"
	@echo "  make demo SCENARIO=druid"
	@echo "                    the pods of the real etcd-druid, from etcd 3.4 to 3.5 (as root; five minutes)"
	@echo "  make chaos DURATION=10m SEED=1"
	@echo "                    seeds 1, 2, … (these are the defaults); no round begins after DURATION, and"
	@echo "                    the last one ends a minute later, or ten where nothing recovers"

.PHONY: demo
demo: ## Roll a real etcd cluster before your eyes, by SCENARIO (the first time it builds for minutes, see README.md)
	@# What is small builds what is big, and shows how far it is. What go says is for whoever it fails for.
	@[ -e .build/bin/prepare ] || printf '%11s%-9s %s\n' '' demo 'compiling what builds the demo'
	@mkdir -p .build/bin && cd test && go build -o ../.build/bin/prepare ./cmd/demo/prepare 2>../.build/prepare.log \
		|| { cat ../.build/prepare.log >&2; exit 1; }
	@.build/bin/prepare
	@SCENARIO=$(SCENARIO) STRATEGY=$(STRATEGY) exec .build/bin/demo $(DEMO_ARGS)

.PHONY: chaos
chaos: ## Roll real clusters while everything fails around them, for DURATION, from SEED on
	@# Others may run this in the same checkout: nobody may start a binary that is being written.
	@mkdir -p .build/bin && cd test && flock ../.build/lock go build -o ../.build/bin/chaos ./cmd/chaos
	@exec .build/bin/chaos --duration=$(DURATION) --seed=$(SEED) $(CHAOS_ARGS)

# It lasts longer than the chaos that it is.
.PHONY: soak
soak: DURATION = 6h
soak: override CHAOS_ARGS += --soak=.build/soak/$(SEED).jsonl
soak: chaos ## Play chaos on one cluster, for six hours or DURATION, and fail if a lasting sidecar grows

.PHONY: soak-page
soak-page: ## Write docs/benchmarks/soak.md from SOAKS, the files of make soak (also .gz), and fail if anything grew
	@mkdir -p .build/bin && cd test && flock ../.build/lock go build -o ../.build/bin/chaos ./cmd/chaos
	.build/bin/chaos --page=docs/benchmarks/soak.md $(SOAKS)

.PHONY: build
build: ## Build the quorate binary into .build/bin
	go build -ldflags '-s -w' -o .build/bin/quorate ./cmd/quorate

.PHONY: build-etcdbrctl
build-etcdbrctl: ## Build etcd-backup-restore with Quorate inside into .build/bin (minutes the first time)
	$(ETCDBRCTL) go build -ldflags '-s -w' -o $(CURDIR)/.build/bin/etcdbrctl .

.PHONY: image
image: build ## Build the image IMAGE (quorate) with buildah; it needs no registry
	$(BUILDAH) build -f Dockerfile -t $(IMAGE) .build/bin

.PHONY: image-etcdbrctl
image-etcdbrctl: build-etcdbrctl ## Build the image IMAGE_ETCDBRCTL (etcdbrctl) with buildah, on the image BASE
	$(ETCDBRCTL) $(BUILDAH) build --build-arg BASE=$(BASE) -f Dockerfile -t $(IMAGE_ETCDBRCTL) $(CURDIR)/.build/bin

.PHONY: release
release: ## Make the release VERSION (v0.1.0) of this commit in .build/release, see CONTRIBUTING.md (a minute)
	@tools/release '$(VERSION)'

.PHONY: test-release
test-release: ## Make a release twice, compare the bytes, and try what it has (RELEASE_ARCHS=amd64: that alone)
	cd test && go test -count=1 -timeout 20m ./release

# A version that nobody releases, and the scenario that rolls a cluster from one release to another and back.
TRIED := v0.0.1-test.1
RELEASES := go test -count=1 -timeout 20m -v ./scenarios -run '^TestQuorateItselfIsUpgradedAndRolledBack$$'

.PHONY: test-release-nodes
test-release-nodes: ## Roll a cluster on real nodes to the image of a release, and back (as root on Debian)
	@tools/release $(TRIED)
	cd test && QUORATE_IMAGE=$(CURDIR)/.build/release/$(TRIED)/quorate-$(TRIED)-image.tar \
		QUORATE_NODES=kubelet QUORATE_REQUIRE_NODES=1 $(RELEASES)

# The last release, or as long as there is none, the last commit whose record does not know operations on members.
PREVIOUS ?= $(or $(shell git describe --tags --abbrev=0 2>/dev/null),fbb5210~1)

.PHONY: test-skew
test-skew: ## Roll a cluster from an older Quorate to this one, and back (PREVIOUS is its tag or commit)
	@rm -rf .build/previous && git clone -q --shared --no-checkout . .build/previous
	@git -C .build/previous checkout -q --detach $$(git rev-parse --verify '$(PREVIOUS)^{commit}')
	cd .build/previous && go build -ldflags '-s -w' -o ../bin/quorate-previous ./cmd/quorate
	cd test && QUORATE_PREVIOUS=$(CURDIR)/.build/bin/quorate-previous $(RELEASES)

.PHONY: test-image
test-image: ## Build the images and check what is in them, or say that buildah does not work here
	.ci/image

# The tests come in three tiers. `make test` is what a contributor runs. `make ci` calls it and adds what has to pass
# before a change lands, and `make nightly` has what CI leaves out. Each says where its time went. In CI the two first
# parts of `make test` go further: see FULL below.
TEST := test-unit test-explorer test-first
CI := versions api licences vuln lint test-image test-release test test-etcdbrctl test-tools \
	test-monitoring test-page test-harness test-nodes test-scenarios test-chaos test-bench test-demo
NIGHTLY := test-release test-release-nodes test-skew test-rig test-versions test-decision test-worlds test-walks \
	test-druid test-newest chaos test-bench-short

define in_order
	@spent=; for t in $(1); do \
		printf '\n== make %s\n' $$t; SECONDS=0; \
		$(MAKE) --no-print-directory $$t || exit; \
		spent+=$$(printf '%6d s  make %s' $$SECONDS $$t)$$'\n'; \
	done; printf '\nWhere the time went:\n%s' "$$spent"
endef

.PHONY: test
test: ## Run what a contributor runs: all units, short worlds, mutants, three scenarios (ten minutes)
	$(call in_order,$(TEST))

.PHONY: ci
ci: export FULL := 1
ci: export RELEASE_ARCHS := amd64
ci: ## Run all that has to pass before a change lands (an hour with cold caches)
	$(call in_order,$(CI))

.PHONY: nightly
nightly: export PARTS := 8
nightly: export QUORATE_REQUIRE_EMULATOR := 1
nightly: ## Run what CI leaves out: the rig, longer walks, etcd-druid, the benchmarks once (two hours)
	$(call in_order,$(NIGHTLY))

.PHONY: test-unit
test-unit: ## Run the library's tests (FULL=1: with the race detector, and for every combination of members)
ifeq ($(FULL),)
	go test -short ./...
else
	@$(GO) test $(RACE) -run '^$$' ./coordinator # So that two of those below do not compile it at the same time.
	@$(MAKE) --no-print-directory -j 2 -O test-race-a test-race-b test-race test-decision
endif

.PHONY: test-race test-race-a test-race-b
test-race:
	$(GO) test $(RACE) -timeout 20m $$(go list ./... | grep -v -e /pkg/rollout$$ -e /coordinator$$)

# The coordinator's tests start over a million goroutines, and the race detector itself crashes at that now and then,
# the more often the more of them are in one process.
test-race-a:
	@tools/race env $(GO) test $(RACE) -timeout 20m -run '^Test(A|E|F|I|L)' ./coordinator
test-race-b:
	@tools/race env $(GO) test $(RACE) -timeout 20m -skip '^Test(A|E|F|I|L)' ./coordinator

# With every combination of members. The race detector has nothing to find in a pure function.
.PHONY: test-decision
test-decision: ## Decide for every combination of members (PARTS=8: more of those of five)
	go test -timeout 40m ./pkg/rollout $(if $(PARTS),-parts $(PARTS))

.PHONY: test-etcdbrctl
test-etcdbrctl: ## Test etcd-backup-restore with Quorate inside, beside the host alone (minutes the first time)
	$(ETCDBRCTL) go test ./...

.PHONY: test-newest
test-newest: ## Run the library's tests with the newest etcd client and Kubernetes modules
	@# This is go.mod with newer versions, so that there is no second list to maintain.
	@mkdir -p .build && cp go.mod .build/newest.mod && cp go.sum .build/newest.sum
	@go get -modfile=.build/newest.mod $$(awk '/^[^#]/ && $$3 != "-" {print $$1 "@" $$3}' tools/versions.txt)
	@go mod tidy -modfile=.build/newest.mod
	go list -modfile=.build/newest.mod -m $$(awk '/^[^#]/ && $$3 != "-" {print $$1}' tools/versions.txt)
	go build -modfile=.build/newest.mod ./...
	@# The decision depends on none of these modules.
	go test -modfile=.build/newest.mod $$(go list ./... | grep -v /pkg/rollout$$)

.PHONY: test-etcd
test-etcd: ## Try every release of etcd in docs/versions.md (ten minutes of building the first time)
	cd test && go test -timeout 40m -count=1 -v ./versions -matrix

.PHONY: versions-flags
versions-flags: ## Compare the table of etcd's arguments with etcd's own sources (FLAGS_ARGS=-all for every release)
	cd test && go run ./cmd/flags $(FLAGS_ARGS)

.PHONY: test-tools
test-tools: ## Test the project's own tools
	cd tools && go test ./...

.PHONY: test-monitoring
test-monitoring: ## Test every expression of the alerts and the dashboard against the real metrics
	test/monitoring/tools .build/monitoring
	cd test && $(GO) test $(RACE) ./monitoring/fetched
	cd test && $(GO) test $(RACE) -count=1 ./monitoring $(UPDATE)

.PHONY: test-page
test-page: ## Look at the status page in a real browser (QUORATE_SCREENSHOTS=FOLDER keeps what it looks like)
	cd test && $(if $(QUORATE_SCREENSHOTS),QUORATE_SCREENSHOTS=$(abspath $(QUORATE_SCREENSHOTS))) \
		go test -count=1 ./page

.PHONY: test-explorer
test-explorer: ## Walk every interleaving of short worlds (FULL=1: 200,000 states of each), and kill every mutant
ifeq ($(FULL),)
	cd test && go test -short ./explorer
	cd test && go test ./explorer -run Mutant
else
	# The race detector sees a part of them. All of them would take far too long with it.
	cd test && $(GO) test $(RACE) -short ./explorer
	# The random walks are the same each time, so that a change is judged by what it changes.
	cd test && go test -timeout 30m -v ./explorer -most 200000 -rapid.checks=5000 -rapid.seed=1
endif
	# The mutants of the decision, and what catches each of them.
	go test -run EveryMutant ./pkg/rollout

.PHONY: mutants
mutants: ## Take away every guard, one at a time, and list what catches that (ROOMS=protocol: these alone; hours)
	@cd tools && go build -o ../.build/bin/mutants ./mutants
	@# The rooms are decision, protocol, election, view and policy. A guard that nothing catches is an error.
	.build/bin/mutants -rooms='$(ROOMS)'

.PHONY: test-worlds
test-worlds: ## Walk every interleaving of all worlds, whole
	cd test && go test -timeout 40m -v ./explorer -run Interleaving

.PHONY: test-walks
test-walks: ## Walk at random through bigger clusters, from SEED on
	cd test && go test -timeout 30m -v ./explorer -run RandomWalk -rapid.checks=100000 -rapid.seed=$(SEED)

.PHONY: test-harness
test-harness: ## Test what judges the scenarios, the demo, the Helm chart, and the quorum guard's policy
	@# make mutants takes the guard's policy apart.
	cd test && go test -p 1 -timeout 20m -skip '^TestEveryMutant' \
		./harness ./harness/apiproxy ./cmd/demo/... ./cmd/flags ./chart ./guard

.PHONY: test-versions
test-versions: ## Try the newest etcd of each minor version (test-etcd tries every release)
	cd test && go test -timeout 20m ./versions

.PHONY: test-rig
test-rig: ## Test what the scenarios run on: control plane, nodes, networks, disks (when they change)
	@# One package at a time is tested, because they build, listen and measure. All cores compile them before.
	cd test && $(GO) list $(RACE) -export -deps -test $(HARNESS) >/dev/null
	cd test && $(GO) test $(RACE) -p 1 -timeout 20m $(HARNESS)

# What is run on real nodes, where they can be had, and not by test-scenarios: upgrades, sick members, lost quorum,
# drains, lost nodes, broken revisions, members and API servers that are cut off, the quorum guard, and what only real
# nodes do.
NODES := AHealthyClusterIsUpgradedByTheNewCode|PodsAreReachedByTheirNamesInNamespacesOfTheirOwn|$\
	FiveMembersAreUpgradedScaledAndRolledTwoAtATime|ASingleMemberIsReplacedByItsOwnSidecarAndScaledOut|$\
	ASickMemberGoesFirst|LostQuorumWhoseCureIsTheUpdate|ABrokenRevisionStopsAfterOnePodAndItsFixGoesOnThere|$\
	ADrainFindsNoLeaderAndARolloutWaitsForIt|DrainsOfAllNodes|$\
	NoSecondMemberIsRemovedWhileANodeIsLost|WhoeverIsCutOffRemovesNobody|TheAPIServerIsGoneForHalfAMinute|$\
	EveryKubeletIsKilledDuringARollout|ANodeRebootsDuringARollout|$\
	TheSuccessorOfAPodThatIsDeletedByForceDoesNotWait|OneMemberOfSevenIsLeftWithTheAPIServer|$\
	NobodyTakesASecondMemberWhileTheQuorumGuardKeepsIt

# They print thousands of lines. So what failed is printed again at the end.
define scenarios
@mkdir -p .build && set -o pipefail; (cd test && set -x && $(1)) 2>&1 | tee .build/scenarios.log || { \
	printf '\n== what failed\n'; grep -A 12 -e '^ *--- FAIL' -e 'Error Trace:' -e '^panic:' .build/scenarios.log; \
	exit 1; }
endef

# What `make test` runs of them.
FIRST := AHealthyClusterIsUpgradedByTheNewCode|ASickMemberGoesFirst|LostQuorumWhoseCureIsTheUpdate

.PHONY: test-first
test-first: ## Run three of the scenarios of test-nodes: an upgrade, a sick member, and quorum lost
	$(call scenarios,QUORATE_NODES=auto go test -timeout 20m -v ./scenarios -run '^Test($(FIRST))$$')

.PHONY: test-nodes
test-nodes: ## Run the core of the scenarios on real kubelets and containerd (as root on Debian; else on the agent)
	@# The tests of a harness that is killed, and then the scenarios. Both look at what is left on the machine.
	cd test && QUORATE_NODES=auto go test -timeout 10m -v ./harness/kubelet -run Killed
	@# CI has run the first three by then.
	$(call scenarios,QUORATE_NODES=auto go test -timeout 30m -v ./scenarios -run '^Test($(NODES))$$' \
		$(if $(FULL),-skip '^Test($(FIRST))$$'))

.PHONY: test-scenarios
test-scenarios: ## Run real clusters through rollouts, but for those of test-nodes
	test/monitoring/tools .build/monitoring prometheus
	@# What is tried runs in processes of its own, where the race detector sees nothing. It watches the harness in
	@# the harness's own tests and in chaos.
	$(call scenarios,go test -timeout 40m -v ./scenarios/... -skip '^Test($(NODES))$$')

.PHONY: test-druid
test-druid: ## Run the pods of the real etcd-druid through all scenarios, also those that CI leaves out
	@# Each has a cluster of etcd-druid's, which two cores can carry. More of them stall each other.
	cd test && go test -parallel 2 -timeout 2h -v ./scenarios/... -run Druid -everything

# A healthy rollout, an upgrade, a sick member, quorum lost, drains, and the Role.
CORE := AHealthyClusterIsUpgradedByTheNewCode|PodsAreReachedByTheirNamesInNamespacesOfTheirOwn|$\
	ASickMemberGoesFirst|LostQuorumWhoseCureIsTheUpdate|LostQuorumWhoseCureFollowsAtOnce|$\
	ADrainFindsNoLeaderAndARolloutWaitsForIt|ARolloutAndADrainNeverTakeTwoMembersTogether|$\
	EveryPermissionThatIsMissingIsNamed

.PHONY: test-core
test-core: ## Run the core of the scenarios against other releases: KUBERNETES=1.35.4, ETCD=3.7.3 or both
	@# On real nodes where they can be had. From 1.37 on nobody else has to promote the current revision.
	cd test && QUORATE_NODES=$${QUORATE_NODES:-auto} QUORATE_KUBERNETES=$(KUBERNETES) QUORATE_ETCD=$(ETCD) \
		go test -timeout 40m -v ./scenarios \
		-run '^Test($(CORE))$$' \
		$(if $(filter-out 1.35.% 1.36.%,$(KUBERNETES)),-skip '/without_patch_statefulsets/status')

.PHONY: test-kubernetes
test-kubernetes: ## Run the core of the scenarios against another release of Kubernetes (VERSION=1.35.4)
	@: $(or $(VERSION),$(error say which release of Kubernetes: make test-kubernetes VERSION=1.35.4))
	@$(MAKE) --no-print-directory test-core KUBERNETES=$(VERSION)


.PHONY: test-chaos
test-chaos: ## Test the chaos tests, and play fixed seeds for five minutes
	cd test && $(GO) test $(RACE) ./chaos/...
	@# The sidecars run with the race detector too, if possible, because their logs are judged. A test
	@# knows these seeds: one begins with three members, one begins with five and scales in, and one cuts a zone off.
	QUORATE_RACE=$(if $(CC_FOUND),1,0) $(MAKE) --no-print-directory chaos DURATION=180s SEED=675905
	QUORATE_RACE=$(if $(CC_FOUND),1,0) $(MAKE) --no-print-directory chaos DURATION=1s SEED=4430254
	QUORATE_RACE=$(if $(CC_FOUND),1,0) $(MAKE) --no-print-directory chaos DURATION=1s SEED=35509

.PHONY: bench
bench: ## Measure Quorate beside Kubernetes' own RollingUpdate (hours; BENCH_ARGS=--help, BENCH_ARGS=--short)
	@mkdir -p .build/bin && cd test && go build -o ../.build/bin/bench ./cmd/bench
	@exec .build/bin/bench $(BENCH_ARGS)

.PHONY: measure-guard
measure-guard: ## Measure how late the quorum guard is, and what it costs an API server (ten minutes, nothing beside it)
	cd test && go test -count=1 -timeout 30m -v ./guard -measure -run 'HowLate|Costs' $(MEASURE_ARGS)

.PHONY: bench-micro
bench-micro: ## Run the micro-benchmarks for benchstat (two minutes; BENCH_COUNT, BENCH_TIME)
	@go test -run '^$$' -bench . -benchmem -count $(BENCH_COUNT) -benchtime $(BENCH_TIME) ./...
	@cd test && go test -run '^$$' -bench . -benchmem -count $(BENCH_COUNT) -benchtime $(BENCH_TIME) ./explorer

.PHONY: test-bench
test-bench: ## Test the benchmarks
	cd test && go test -short ./bench/... ./cmd/bench/...
	@# Go does not see that a document has changed which is not in the test's own module.
	cd test && go test -count=1 -run Published ./bench/report

.PHONY: test-bench-short
test-bench-short: ## Let each part of the benchmarks run once (the figures mean nothing)
	cd test && $(GO) test $(RACE) -short ./bench/... ./cmd/bench/...
	# The short run below cannot show that a run which is given up leaves nothing behind.
	cd test && go test -run GivenUp ./bench/fleet
	$(MAKE) --no-print-directory bench BENCH_ARGS=--short
	$(MAKE) --no-print-directory bench-micro BENCH_COUNT=1 BENCH_TIME=1x

# A newcomer runs the demo first, so it has to work too.
.PHONY: test-demo
test-demo:
	$(MAKE) --no-print-directory demo
	$(MAKE) --no-print-directory demo SCENARIO=sick-member STRATEGY=OnDelete

.PHONY: lint
lint: ## Check formatting and run the linters
	cd tools && go build -o ../.build/bin/golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	.build/bin/golangci-lint run ./...
	cd test && ../.build/bin/golangci-lint run ./...
	cd tools && ../.build/bin/golangci-lint run ./...
	$(ETCDBRCTL) ../../.build/bin/golangci-lint run ./...

.PHONY: versions
versions: ## Check that the library asks for no newer dependencies than its hosts have
	tools/versions

# What a host needs. Other packages can be imported as well, and change without notice before v1.
HOST := ./coordinator ./pkg/options ./pkg/page

.PHONY: api
api: ## Check the exported API against docs/api.txt
	@cd tools && go build -o ../.build/bin/apisurface ./apisurface
	.build/bin/apisurface -record docs/api.txt $(HOST)

.PHONY: api-update
api-update: ## Write the exported API to docs/api.txt
	@cd tools && go build -o ../.build/bin/apisurface ./apisurface
	.build/bin/apisurface -record docs/api.txt -update $(HOST)

.PHONY: licences
licences: ## Check the licences of all dependencies, of the library, of etcdbrctl and of the tests
	@cd tools && go build -o ../.build/bin/go-licenses github.com/google/go-licenses/v2
	tools/licences .build/bin/go-licenses

.PHONY: vuln
vuln: ## Look for known vulnerabilities, where their database answers
	@cd tools && go build -o ../.build/bin/govulncheck golang.org/x/vuln/cmd/govulncheck
	tools/vuln .build/bin/govulncheck
	@# What is found here is told, and is the host's to cure: none of its dependencies is raised.
	$(ETCDBRCTL) ../../tools/vuln ../../.build/bin/govulncheck || [ $$? = 3 ]

.PHONY: clean
clean: ## Remove what was built here
	rm -rf .build
