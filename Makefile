# Regroup. `make` lists the verbs; `make demo` and `make test` are the two that a newcomer needs.
SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

GO          ?= go
BIN         := bin
TOOLS       := $(CURDIR)/.tools
GOLANGCI    := v2.5.0
SEEDS       ?= 10000
FUZZTIME    ?= 20s
KILLS       ?= 1000
RUNS        ?= 20
ORDERS      ?= 1000
BASE        ?= $(shell git rev-parse -q --verify main || echo HEAD)
FROM        ?= 1d4fddfb0b0866e1c6575b99a353ca4dc4dda755
NUMBER      := $(shell sed -nE 's/^const Number = "(.*)"$$/\1/p' internal/version/version.go)
COMMIT      ?= $(shell git rev-parse -q --verify HEAD 2>/dev/null)
# release = this commit has the tag of its version, and nothing is changed; dirty = something is.
DESCRIBED   := $(shell git describe --tags --exact-match --match 'v$(NUMBER)' --dirty 2>/dev/null || git describe --always --dirty 2>/dev/null)
STATE       := $(if $(filter v$(NUMBER),$(DESCRIBED)),release,$(if $(filter %-dirty,$(DESCRIBED)),dirty))
STAMP       := github.com/regroup-io/regroup/internal/version
LDFLAGS      = -s -w -X $(STAMP).commit=$(COMMIT) -X $(STAMP).state=$(STATE)
SOURCES     := $(shell find . -name '*.go' -not -path './.tools/*' 2>/dev/null) $(wildcard services/gateway/dashboard/files/* services/gateway/dashboard/files/vendor/* deploy/systemd/regroup* docs/*.md docs/tutorials/*.md) go.mod go.sum

OTEL        := 1.30.0
JAEGER      := $(TOOLS)/jaeger-v1.76.0/jaeger
PYTHON      ?= /usr/bin/python3
TORCH       ?= 2.15.0
# The Python with PyTorch that tests use: the active one if it has it, otherwise that of make torch.
PYTHON_TORCH = $(if $(findstring command,$(origin TORCH)),$(TOOLS)/torch-$(TORCH)/bin/python,$(shell deploy/torch.sh))
ZIG         ?= 0.17.1
WHEELS      := $(BIN)/linux-amd64 $(BIN)/linux-arm64

# Packages that test-all tests without the race detector: their tests start processes, which make soak builds with it, or
# nothing in them is concurrent.
PLAIN       := regroup-io/regroup$$|/regroup/e2e/|/regroup/examples/|/(agent/preflight|agent/worker|collective/kernel|collective/schedule|liveness|plan|registry/job|rendezvous/round)$$
# Packages that it tests with the race detector and without: these tests of theirs do one thing after the other and become ten
# times as slow with it, or are random histories, of which half are enough with it.
BOTH        := /regroup/elastic(/checkpoint)?$$
NOT_RACE    := TestASetIsWholeAfterACrashAtAnyWrite|TestAGoodCheckpointIsFoundAfterACrashAtAnyWrite|TestDamageOfPartsIsFound|TestAShardedStateUnderKillsAndJoins/_1[0-9]_
# Two minutes of jobs that are killed, which show little that other tests do not: make test and make soak run them.
# TestSeeds is sim's, with more of them.
NOT_ALL     := ^TestTutorials$$|^TestSeeds$$
# Packages whose tests need root, Python, gcc or brokers, or more than a few seconds.
NOT_QUICK   := /regroup/(e2e|examples|agent|elastic|jetstream|collective|cmd|client)(/|$$)
# Four processes that do nothing but use the processors, for as long as the recipe's shell.
BUSY        := for n in 1 2 3 4; do (while :; do :; done) & done; trap 'kill $$(jobs -p)' EXIT

# Runs the suite of the verb's name.
BENCH        = $(GO) run ./e2e/bench $(@:bench-%=%) -out docs/benchmarks.md

# What some verbs install first, by the names of deploy/setup.sh.
INSTALLED   := hatch net mpi node browser jaeger

.PHONY: $(INSTALLED) torch test-race test-plain test-pure $(shell sed -nE 's/^([a-z0-9-]+):.*#[:\#] .*/\1/p' $(firstword $(MAKEFILE_LIST)))

help: ## Every day: list the verbs
	@sed -nE 's/^([a-z0-9-]+):.*## ([^:]+): (.*)/\2\t\1\t\3/p' $(MAKEFILE_LIST) | awk -F'\t' '!($$1 in verbs) {groups[++n] = $$1} \
	  {verbs[$$1] = verbs[$$1] sprintf("  %-12s %s\n", $$2, $$3)} END {for (i = 1; i <= n; i++) printf "%s%s\n%s", (i > 1 ? "\n" : ""), groups[i], verbs[groups[i]]}'

suites: ## What takes long: list what e2e and bench take as SUITE, and judge as PEER
	@for verb in e2e bench judge; do echo; echo "make $$verb $$([ $$verb = judge ] && echo PEER || echo SUITE)=..."; \
	  sed -nE "s/^$$verb-([a-z0-9-]+):.*#: (.*)/\1\t\2/p" $(MAKEFILE_LIST) | awk -F'\t' '{printf "  %-20s %s\n", $$1, $$2}'; done

e2e: e2e-$(or $(SUITE),local) ## What takes long: real processes, machines and peers: one of the suites, SUITE=local if none is named

bench: bench-$(or $(SUITE),recovery) ## What takes long: measure, and write the figures into docs/benchmarks.md: SUITE=recovery if none is named

judge: judge-$(or $(PEER),torch) ## What takes long: the own tests of PyTorch, its launcher and its store, and of Horovod: PEER=torch if none is named

setup: ## Build: install what building and testing needs (NEEDS="net node": more of what deploy/setup.sh lists)
	@for need in go $(NEEDS); do deploy/setup.sh $$need; done

$(INSTALLED):
	@deploy/setup.sh $@

torch: # PyTorch from PyPI, about 3 GB, once
	@[ -x "$(PYTHON_TORCH)" ] || $(MAKE) --no-print-directory $(TOOLS)/torch-$(TORCH)/ready

build: setup $(BIN)/regroup $(BIN)/mnist $(BIN)/counter $(BIN)/recorder $(BIN)/state ## Build: bin/regroup, and the workers bin/mnist, bin/counter and bin/recorder

$(BIN)/regroup: $(SOURCES)
	@CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $@ ./cmd/regroup

$(BIN)/mnist: $(SOURCES)
	@CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o $@ ./examples/mnist

$(BIN)/counter: $(SOURCES)
	@CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o $@ ./examples/counter

$(BIN)/recorder: $(SOURCES)
	@CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o $@ ./e2e/recorder

$(BIN)/state: # for the images
	@mkdir -p -m 0700 $@

# Without a build id: it depends on the flags, which name this folder.
LIBREGROUP = CGO_ENABLED=1 $(GO) build -trimpath -buildmode=c-shared \
  -ldflags "$(LDFLAGS) -buildid= -extldflags '-Wl,--version-script=$(CURDIR)/collective/cabi/exports.map'"

libregroup: setup $(BIN)/libregroup.so ## Build: bin/libregroup.so, the C library (collective/cabi/regroup.h), and a copy for python/

$(BIN)/libregroup.so: $(SOURCES) $(wildcard collective/cabi/*.[ch] collective/cabi/exports.map)
	@$(LIBREGROUP) -o $(BIN)/new/libregroup.so ./collective/cabi
	@cp $(BIN)/new/libregroup.so python/regroup/libregroup.so.new && mv python/regroup/libregroup.so.new python/regroup/libregroup.so
	@mv $(BIN)/new/libregroup.so $@ && rm -r $(BIN)/new

wheel: build libregroup hatch ## Build: python/dist/regroup_elastic-*.whl with the binary and the C library, for this machine and its glibc (no network)
	@cd python && $(PYTHON) -m hatchling build -c -t wheel

wheels: setup hatch $(WHEELS:%=%/regroup) $(WHEELS:%=%/mnist) $(WHEELS:%=%/libregroup.so) ## Build: the same for x86_64 and aarch64, from glibc 2.17 on, and the source distribution, in python/dist/release
	@rm -rf python/dist/release
	@cd python && for folder in $(WHEELS); do WHEEL_BINARIES=$(CURDIR)/$$folder $(PYTHON) -m hatchling build -t wheel -d dist/release; done
	@cd python && REGROUP_STAMP='$(COMMIT) $(STATE)' $(PYTHON) -m hatchling build -t sdist -d dist/release && chmod 0644 dist/release/*

$(BIN)/linux-%/regroup: $(SOURCES)
	@CGO_ENABLED=0 GOOS=linux GOARCH=$* $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $@ ./cmd/regroup

$(BIN)/linux-%/mnist: $(SOURCES)
	@CGO_ENABLED=0 GOOS=linux GOARCH=$* $(GO) build -trimpath -ldflags '-s -w' -o $@ ./examples/mnist

$(BIN)/linux-%/counter: $(SOURCES)
	@CGO_ENABLED=0 GOOS=linux GOARCH=$* $(GO) build -trimpath -ldflags '-s -w' -o $@ ./examples/counter

RELEASE = $(GO) run -C deploy/release .

# The binaries are built again: those that are there may be of the commit before the tag.
release: setup hatch ## Build: everything that a release has, into dist/: the commit must have the tag of its version (docs/release.md; COSIGN_KEY=FILE signs)
	@deploy/setup.sh image
	@$(RELEASE) check
	@rm -rf $(WHEELS)
	@export SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct); $(MAKE) --no-print-directory wheels $(WHEELS:%=%/counter); \
	  mkdir -p $(BIN)/images; for arch in amd64 arm64; do for target in regroup agent; do \
	  ARCH=$$arch VERSION=$(NUMBER) deploy/image.sh $$target $(BIN)/images/$$target-$$arch.tar >/dev/null; done; done
	@$(RELEASE) assemble -dist $(CURDIR)/dist $(if $(COSIGN_KEY),-key $(if $(findstring ://,$(COSIGN_KEY)),$(COSIGN_KEY),$(abspath $(COSIGN_KEY))))

version: ## Build: put a version into every file that has it (VERSION=0.2.0; DATE=2026-12-31 when it is released)
	@$(RELEASE) version -date '$(DATE)' '$(VERSION)'

$(BIN)/linux-amd64/libregroup.so: TARGET = x86_64-linux-gnu.2.17
$(BIN)/linux-arm64/libregroup.so: TARGET = aarch64-linux-gnu.2.17
$(BIN)/linux-%/libregroup.so: $(SOURCES) $(wildcard collective/cabi/*.[ch] collective/cabi/exports.map) $(TOOLS)/zig-$(ZIG)/ready
	@GOOS=linux GOARCH=$* CC='$(TOOLS)/zig-$(ZIG)/bin/python -m ziglang cc -target $(TARGET)' $(LIBREGROUP) -o $@ ./collective/cabi

$(TOOLS)/zig-$(ZIG)/ready: | hatch
	@$(PYTHON) -m venv $(@D) && $(@D)/bin/pip install --quiet ziglang==$(ZIG)
	@touch $@

image: build ## Build: bin/images/*.tar for docker load, with the id that this commit has everywhere
	@mkdir -p $(BIN)/images
	@for target in regroup agent; do id=$$(deploy/image.sh $$target $(BIN)/images/$$target.tar); echo "$$target $$id"; done

e2e-images: setup #: the images of the last commit, built twice from clones: the ids must be equal
	@deploy/image-check.sh

python-test: build libregroup torch hatch ## Every day: the Python package: operations, DDP, torch.distributed, elastic jobs whose workers are killed, agents of torchrun
	@cd python && REGROUP_BINARY=$(CURDIR)/$(BIN)/regroup $(PYTHON_TORCH) -W ignore -m unittest discover -t . -s tests

test-torch: build libregroup torch ## Every day: python-test with every case of its jobs, and what the rest of PyTorch does with the package: FSDP2, DTensor, meshes, torchrun beside regroup torchrun, the store, other frameworks (TORCH=2.9.0: with that version)
	@EVERY_CASE=1 $(MAKE) --no-print-directory python-test
	@cd python && REGROUP_BINARY=$(CURDIR)/$(BIN)/regroup $(PYTHON_TORCH) -W ignore -m unittest discover -t . -s compat
	@PYTHON_TORCH=$(PYTHON_TORCH) $(GO) test -count=1 ./e2e/tcpstore
	@$(MAKE) --no-print-directory e2e-integrations

e2e-integrations: build libregroup $(TOOLS)/torch-$(TORCH)/integrations e2e-trackers #: the examples for transformers, accelerate, Lightning, FSDP2 and DDP, with torchrun and with a worker that is killed; runs of trackers (a part of test-torch)
	@cd python && REGROUP_BINARY=$(CURDIR)/$(BIN)/regroup $(TOOLS)/torch-$(TORCH)/bin/python -W ignore -m unittest integrations.test_integrations

e2e-trackers: build $(TOOLS)/trackers/ready #: a job that loses a worker, in runs of TensorBoard, MLflow and Weights & Biases, read back from their files (a part of integrations)
	@cd python && REGROUP_BINARY=$(CURDIR)/$(BIN)/regroup $(TOOLS)/trackers/bin/python -W ignore -m unittest integrations.test_watch

$(TOOLS)/trackers/ready: python/integrations/trackers.txt | hatch
	@$(PYTHON) -m venv $(@D) && $(@D)/bin/pip install --quiet --no-deps -r $<
	@touch $@

$(TOOLS)/torch-$(TORCH)/ready: | hatch
	@$(PYTHON) -m venv $(@D) && $(@D)/bin/pip install --quiet torch==$(TORCH) numpy
	@touch $@

$(TOOLS)/torch-$(TORCH)/integrations: python/integrations/requirements.txt | $(TOOLS)/torch-$(TORCH)/ready
	@$(TOOLS)/torch-$(TORCH)/bin/pip install --quiet --no-deps -r $<
	@touch $@

$(TOOLS)/torch-$(TORCH)/torchft/ready: python/bench/torchft.txt | $(TOOLS)/torch-$(TORCH)/ready
	@$(TOOLS)/torch-$(TORCH)/bin/pip install --quiet --no-deps --target $(@D) -r $<
	@touch $@

judge-horovod: build libregroup $(TOOLS)/torch-$(TORCH)/ready #: Horovod's own tests, from a checkout of it (CHECKOUT=/path/to/horovod)
	@$(TOOLS)/torch-$(TORCH)/bin/pip install --quiet pytest mock cloudpickle psutil pyyaml
	@$(TOOLS)/torch-$(TORCH)/bin/python e2e/horovod/operations.py $(CHECKOUT)
	@REGROUP_BINARY=$(CURDIR)/$(BIN)/regroup $(TOOLS)/torch-$(TORCH)/bin/python e2e/horovod/elastic.py $(CHECKOUT)

judge-torch: libregroup $(TOOLS)/torch-$(TORCH)/ready #: PyTorch's own tests of torch.distributed, beside gloo; CHECKOUT=/path/to/pytorch for those that its wheel lacks
	@$(TOOLS)/torch-$(TORCH)/bin/pip install --quiet expecttest
	@$(TOOLS)/torch-$(TORCH)/bin/python e2e/torch/upstream.py $(CHECKOUT)
	@cd python && for n in 2 3; do $(TOOLS)/torch-$(TORCH)/bin/python -W ignore ../e2e/torch/every_type.py --ranks $$n; done

judge-torchelastic: build $(TOOLS)/torch-$(TORCH)/ready #: PyTorch's own tests of torchrun and its agent, on regroup torchrun and on its rendezvous for stock agents, beside c10d; CHECKOUT=/path/to/pytorch, or its source package, has them (AGAIN=--alone: without c10d)
	@$(TOOLS)/torch-$(TORCH)/bin/pip install --quiet expecttest
	@$(TOOLS)/torch-$(TORCH)/bin/python -W ignore e2e/torch/torchelastic.py $(AGAIN) $(CHECKOUT)

judge-store: $(BIN)/tcpstore $(TOOLS)/torch-$(TORCH)/ready #: PyTorch's own tests of TCPStore on the store of an agent; CHECKOUT=/path/to/pytorch has them
	@$(TOOLS)/torch-$(TORCH)/bin/python -W ignore e2e/torch/store.py --server $(BIN)/tcpstore $(CHECKOUT)

$(BIN)/tcpstore: $(SOURCES)
	@CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o $@ ./e2e/tcpstore

e2e-orders: build libregroup torch #: 1,000 random programs of operations on 2, 3 and 4 ranks, beside what should come out (ORDERS)
	@cd python && ORDERS=$(ORDERS) PATIENCE=1200 $(PYTHON_TORCH) -W ignore -m unittest -v tests.test_matching.Matching

demo: build ## Two that a newcomer needs: train MNIST on three nodes, kill a worker, lose a node, add a node, and watch it finish
	@$(BIN)/regroup demo

dev: build ## Every day: a cluster in one process, to play with
	@$(BIN)/regroup up

test: setup torch net node build ## Two that a newcomer needs: every level up to real processes, without the race detector (docs/testing.md says where its minutes go)
	@$(GO) test -p $$(($$(nproc) + 1)) -timeout 30m ./...

quick: $(TOOLS)/golangci-lint ## Every day: while you write: lint of what differs from BASE, and the tests that need only Go (no root, no PyTorch, no brokers)
	@packages=$$({ git diff --name-only --diff-filter=d $(BASE) -- '*.go'; git ls-files -o --exclude-standard -- '*.go'; } | sed -nE '/^deploy\/(helm|grafana|otel)\/check\//d; s,(.*)/[^/]*,./\1,p; s,^[^/.]+\.go$$,.,p' | sort -u); \
	  if [ -n "$$packages" ]; then $(TOOLS)/golangci-lint run $$packages; fi
	@$(GO) test -skip TestWorkedChanges $$($(GO) list ./... | grep -Ev '$(NOT_QUICK)')

test-race: setup torch net node build # packages with goroutines of their own, with the race detector
	@$(GO) test -race -timeout 30m -skip '$(NOT_RACE)' $$($(GO) list ./... | grep -Ev '$(PLAIN)')

test-plain: setup torch net node build # the others; most of these wait for processes most of their time
	@$(GO) test -timeout 30m -skip '$(NOT_ALL)' $$($(GO) list ./... | grep -E '$(PLAIN)|$(BOTH)')

test-pure: # one after the other, beside the Python package, which takes longest
	@failed=; for part in 'sim SEEDS=400' test-race; do $(MAKE) --no-print-directory $$part || failed=yes; done; test -z "$$failed"

# What starts clusters of processes comes first and alone: it waits more than it computes.
test-all: setup torch net node hatch build libregroup ## Every day: what every change must pass: packages that start processes, then side by side concurrent ones with the race detector, the Python package, 400 seeds of the simulation
	@failed=; $(MAKE) --no-print-directory test-plain || failed=yes; \
	  $(MAKE) --no-print-directory --keep-going --output-sync=target -j 2 python-test test-pure || failed=yes; test -z "$$failed"

soak: setup torch net node build ## What takes long: what takes hours, before a release: everything with the race detector in all processes, beside four busy processes; 10,000 seeds; 200 random faults
	@$(BUSY); $(GO) test -race -count=1 -timeout 90m ./...
	@$(BUSY); EVERY_CASE=1 $(MAKE) --no-print-directory python-test
	@$(MAKE) --no-print-directory sim chaos

sim: ## What takes long: all machines together under faults in virtual time, and the parts of sharded states (SEEDS=10000: about ten minutes on two cores)
	@$(GO) test -count=1 -timeout 20m ./e2e/sim ./elastic/shards -run TestSeeds -seeds $(SEEDS) -v | { grep -vE "^=== |--- PASS: TestSeeds/" || true; }

e2e-local: build torch node #: real processes: kill every role in turn
	@$(GO) test -count=1 -timeout 20m -v ./e2e/local

e2e-network: build net #: real processes on hosts of their own: links cut, packets lost, processes frozen (Linux, root)
	@$(GO) test -count=1 -timeout 20m -v ./e2e/network

e2e-dashboard: build browser #: the dashboard in a browser: every page without errors and faults of accessibility, an incident within a second, 4,096 simulated workers (SHOTS=DIR keeps pictures; OUTAGE=240: the server is away for so many seconds)
	@cd e2e/dashboard && node --test --test-concurrency=1 --test-reporter=spec dashboard.test.mjs many.test.mjs

e2e-upgrade: setup #: a cluster of an older build (FROM=COMMIT) is replaced by this one, process by process, under running jobs, and its services taken back
	@$(GO) run ./e2e/upgrade -from $(FROM)

e2e-traces: setup jaeger $(TOOLS)/opentelemetry/ready #: traces of a job that loses workers, read back from a real Jaeger: each is one tree, and tells what happened
	@$(GO) run ./e2e/traces -jaeger $(JAEGER) -python $(TOOLS)/opentelemetry/bin/python

$(TOOLS)/opentelemetry/ready: | hatch
	@$(PYTHON) -m venv $(@D) && $(@D)/bin/pip install --quiet opentelemetry-sdk==$(OTEL) opentelemetry-exporter-otlp-proto-http==$(OTEL)
	@touch $@

chaos: build net ## What takes long: one job under 200 random faults of everything (CHAOS='-seed 7 -faults 100 -guarded': with identities and TLS; Linux, root), into docs/reliability.md
	@$(GO) run ./e2e/chaos -out docs/reliability.md $(CHAOS)

e2e-reliability: chaos #: docs/reliability.md: every kind of network fault, and the chaos run
	@$(GO) test -count=1 -timeout 20m ./e2e/network -reliability $(CURDIR)/docs/reliability.md

e2e-containers: #: the compose file with TLS and identities: a job by curl, containers killed and cut off in turn (root)
	@deploy/e2e-containers.sh

e2e-containers-upgrade: #: the same cluster, each container in turn replaced by one of another image while a job trains (root)
	@deploy/e2e-upgrade-containers.sh

e2e-containers-torch: #: the same with jobs of PyTorch, in an image of the target regroup-torch that is made of Debian's packages (root; 3 GB)
	@deploy/e2e-containers.sh torch

e2e-slurm: build torch #: the batch script for Slurm on a cluster of this machine alone: a node is lost, a job gets SIGTERM (root)
	@deploy/e2e-slurm.sh

e2e-kubernetes: build #: the Helm chart on a control plane of Kubernetes with simulated nodes: installed, drained, upgraded (builds Kubernetes once, a quarter of an hour)
	@deploy/e2e-kubernetes.sh

e2e-queues: build #: the files of deploy/queues for Kubernetes, with Kueue, JobSet and Kubeflow Trainer: pods are processes that train, and come and go as the queue says (builds the controllers once, half an hour)
	@deploy/e2e-kubernetes.sh queues

e2e-recipes: build net $(TOOLS)/recipes/ready #: the files of deploy/queues for SkyPilot and dstack, by their parsers, and for Ray, on two local nodes
	@unshare --map-root-user --net --pid --fork --kill-child --mount-proc \
	  bash -c 'ip link set lo up && exec $(TOOLS)/recipes/bin/python -W ignore e2e/recipes/check.py'

$(TOOLS)/recipes/ready: e2e/recipes/requirements.txt | hatch
	@$(PYTHON) -m venv $(@D) && $(@D)/bin/pip install --quiet -r $<
	@touch $@

e2e-cgroup2: setup #: the tests of agent/proc on an emulated kernel with control groups of version 2, at their top and in a delegated group
	@deploy/e2e-cgroup2.sh

fuzz: ## What takes long: every decoder for FUZZTIME each
	@for target in $$(grep -rlE '^func Fuzz' --include='*_test.go' . | sort); do \
	  for name in $$(grep -oE '^func Fuzz[A-Za-z0-9]+' $$target | sed 's/func //'); do \
	    echo "$$name in $$(dirname $$target)"; $(GO) test -run '^$$' -fuzz "^$$name$$" -fuzztime $(FUZZTIME) ./$$(dirname $$target); done; done

bench-recovery: build net #: recovery, submit and idle figures into docs/benchmarks.md
	@$(BENCH)

bench-guarded: build #: recovery, start and idle figures with identities and TLS, beside those without, into docs/benchmarks.md
	@$(BENCH)

bench-control: build net #: 1,000 kills of services and brokers while a job trains (KILLS, RUNS): what a step notices
	@$(BENCH) -kills $(KILLS) -runs $(RUNS)

bench-scale: build #: 64, 512 and 5000 simulated agents on three brokers: ranks, notices, memory, into docs/benchmarks.md
	@$(BENCH)

bench-http: build #: 2,000 CloudEvents a second over HTTP, and 1,000 clients that follow all facts, into docs/benchmarks.md
	@$(BENCH)

bench-abuse: build #: a viewer, a submitter and an agent that do their worst beside a training job: memory of the broker, steps, into docs/benchmarks.md
	@$(BENCH)

bench-queue: build #: 300 jobs at once on 8 slots, 10,000 jobs queued: placement of the next, memory, into docs/benchmarks.md
	@$(BENCH)

bench-collective: setup libregroup torch mpi #: allreduce beside gloo and Open MPI, and what a lost rank costs, into docs/benchmarks.md
	@$(BENCH) -python $(PYTHON_TORCH)

bench-state: setup #: commits beside copies of memory, and syncs beside plain transfers, into docs/benchmarks.md
	@$(BENCH)

bench-torch: build libregroup $(TOOLS)/torch-$(TORCH)/ready #: kills of PyTorch workers, reconfigured groups, a busy machine, timeouts, beside gloo, into docs/benchmarks.md
	@$(BENCH) -python $(TOOLS)/torch-$(TORCH)/bin/python

bench-store: $(BIN)/tcpstore $(TOOLS)/torch-$(TORCH)/ready #: PyTorch's clients at the store of an agent and at PyTorch's own, 64 to 4,096 of them, into docs/benchmarks.md
	@$(GO) build -o $(BIN)/bench ./e2e/bench
	@unshare --net --map-root-user bash -c 'ip link set lo up && exec $(BIN)/bench store -out docs/benchmarks.md -python $(TOOLS)/torch-$(TORCH)/bin/python'

bench-torchrun: build libregroup net $(TOOLS)/torch-$(TORCH)/torchft/ready #: restarts of PyTorch jobs, after kills, joins and a cut, beside torchrun; jobs that survive, beside torchft; into docs/benchmarks.md (40 minutes)
	@$(BENCH) -python $(TOOLS)/torch-$(TORCH)/bin/python -torchft $(TOOLS)/torch-$(TORCH)/torchft

gpu-check: setup $(BIN)/gpucheck ## What takes long: on a machine with an NVIDIA GPU: NCCL, the driver and our engine together (docs/gpu.md); Error 3 = there is none
	@$(BIN)/gpucheck $(GPUCHECK)

$(BIN)/gpucheck: $(SOURCES)
	@CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o $@ ./e2e/gpucheck

e2e-chart: build #: lint the Helm chart, render it, and decode its objects as strictly as an API server does
	@cd deploy/helm/check && $(GO) test -count=1 ./...

e2e-release: setup hatch $(TOOLS)/golangci-lint #: the workflows by actionlint, and a release made twice from clones of the last commit: the same bytes, a whole SBOM, wheel and source distribution in each Python of this machine (KEEP=DIR keeps it; cosign on PATH: signed too)
	@deploy/setup.sh image
	@deploy/setup.sh packages
	@cd deploy/release && $(TOOLS)/golangci-lint run -c $(CURDIR)/.golangci.yml ./... && $(GO) test -count=1 ./...
	@$(GO) run ./e2e/release $(if $(KEEP),-keep $(abspath $(KEEP)))

e2e-collector: build #: the sample of an OpenTelemetry Collector: spans, metrics and output of a job come through it, by gRPC and HTTP
	@cd deploy/otel/check && $(GO) test -count=1 ./...

e2e-grafana: setup #: the dashboard for Grafana, by its schema, by the parser of Prometheus and by the series that a gateway has
	@cd deploy/grafana/check && $(GO) test -count=1 ./...

e2e-alerts: build #: check and try the alert rules with promtool, and what a gateway tells Prometheus
	@deploy/setup.sh promtool
	@deploy/prometheus/check.sh

lint: setup build $(TOOLS)/golangci-lint ## Every day: golangci-lint and gofumpt, shellcheck, systemd-analyze
	@$(TOOLS)/golangci-lint run ./...
	@deploy/check.sh

$(TOOLS)/golangci-lint:
	@echo "building golangci-lint $(GOLANGCI) (about three minutes, once)"
	@GOBIN=$(TOOLS) GOFLAGS= $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI)

fmt: $(TOOLS)/golangci-lint ## Every day: format
	@$(TOOLS)/golangci-lint fmt ./...

docs: $(TOOLS)/docs/ready deploy/docs/node_modules ## Build: the site of README.md and docs/, with a search, into bin/docs; a dead link fails it
	@NO_MKDOCS_2_WARNING=1 $(TOOLS)/docs/bin/mkdocs build --strict -f deploy/docs/mkdocs.yaml
	@echo "file://$(CURDIR)/$(BIN)/docs/index.html (search needs a server: python3 -m http.server -d $(BIN)/docs)"

docs-version: $(TOOLS)/docs/ready deploy/docs/node_modules ## Build: the site as one of several versions, on the branch gh-pages (VERSION=0.1.0 ALIAS=latest PUSH=--push)
	@NO_MKDOCS_2_WARNING=1 PATH="$(TOOLS)/docs/bin:$$PATH" mike deploy -F deploy/docs/mkdocs.yaml --update-aliases $(PUSH) $(VERSION) $(ALIAS)
	@$(if $(ALIAS),PATH="$(TOOLS)/docs/bin:$$PATH" mike set-default -F deploy/docs/mkdocs.yaml $(PUSH) $(ALIAS))

pictures: build browser $(TOOLS)/docs/ready ## Build: the pictures of the documentation and a recording of the demo anew, in docs/pictures, from live runs
	@cd e2e/dashboard && node pictures.mjs $(CURDIR)/docs/pictures
	@state=$$(mktemp -d); trap 'rm -rf "$$state"' EXIT; TERM=xterm-256color $(TOOLS)/docs/bin/asciinema rec --quiet --overwrite --cols 120 --rows 36 --env '' --title 'regroup demo' \
	  --command "$(BIN)/regroup demo --state-dir $$state" docs/pictures/demo.cast </dev/null

deploy/docs/node_modules: deploy/docs/package-lock.json | node
	@cd $(@D) && npm ci --silent --no-fund --no-audit
	@touch $@

$(TOOLS)/docs/ready: deploy/docs/requirements.txt | hatch
	@$(PYTHON) -m venv $(@D) && $(@D)/bin/pip install --quiet --no-deps -r $<
	@touch $@

man: build ## Build: the manual pages, into bin/man
	@$(BIN)/regroup docs man $(BIN)/man

generate: ## Every day: docs that are made from code
	@for page in events limits environment; do $(GO) run ./cmd/regroup docs generate $$page > docs/$$page.md || exit 1; done
	@$(GO) test ./events/spec -run TestJobDocs -rewrite
	@sed -i '/^| subject | may publish/,$$d' docs/security.md && $(GO) run ./cmd/regroup docs generate access >> docs/security.md
	@sed -i '/^| of | flag/,$$d' docs/launchers.md && $(GO) run ./cmd/regroup docs generate launchers >> docs/launchers.md
	@sed -i '/^| flag | default/,$$d' docs/torchrun.md && $(GO) run ./cmd/regroup docs generate torchrun >> docs/torchrun.md

clean: ## Build: remove what was built
	@rm -rf $(BIN) .tools
