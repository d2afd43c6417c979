# make help lists what there is.

SHELL       := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# One way to compile for everything but the race detector: what vet made, the linters, the build and the tests find.
export GOFLAGS     := $(GOFLAGS) -trimpath
export CGO_ENABLED := 0

GO      ?= go
BIN     := bin
TOOLS   := .tools
# The version of each tool is pinned; its file carries the version, so that a new one is a new file.
LINT_VERSION := v2.15.0
LINT    := $(TOOLS)/golangci-lint-$(LINT_VERSION)

# Of `make run`: where it listens, and where it keeps everything if not where metald dev does by itself.
LISTEN   ?= 127.0.0.1:8080
DATA_DIR ?=

.PHONY: help
help: ## list the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: ## check Go, and install PostgreSQL and a C compiler where they are missing (Debian)
	@.ci/setup

.PHONY: build
build: ## build the programs into bin/
	$(GO) build -ldflags='-s -w' -o $(BIN)/ ./cmd/...

.PHONY: run
run: setup build ## run a control plane on this machine, with its own PostgreSQL
	$(BIN)/metald dev --listen "$(LISTEN)" $(if $(DATA_DIR),--data-dir "$(DATA_DIR)")

.PHONY: demo
demo: setup build ## six simulated machines through their lives; stays up until Ctrl-C
	test/demo.sh

.PHONY: demo-once
demo-once: setup build ## the same, and ends: with 0 only if every step came out right
	test/demo.sh --once

.PHONY: demo-machine
demo-machine: setup build lab-assets $(BIN)/labmachine ## the life of one machine in QEMU, with its console; stays up until Ctrl-C
	test/demo-machine.sh

.PHONY: demo-machine-once
demo-machine-once: setup build lab-assets $(BIN)/labmachine ## the same, and ends: with 0 only if every step came out right
	test/demo-machine.sh --once

.PHONY: $(BIN)/labmachine
$(BIN)/labmachine:
	$(GO) build -o $@ ./test/machine/labmachine

.PHONY: test
test: setup fmt-check vet lint test-race ## everything that must be green: set-up, format, vet, lint, tests with the race detector

.PHONY: check
check: test ## the same as test

.PHONY: test-fast
test-fast: ## the tests without the race detector
	$(GO) test ./...

# Tests that run whole programs as processes gain nothing from a race detector of their own.
WHOLE := /test/(bench|chaos|cli|e2e|lab|machine|netns)

.PHONY: test-race
test-race: build ## the tests, with the race detector where the code runs in the test's own process
	CGO_ENABLED=1 $(GO) test -race -timeout 15m $$($(GO) list ./... | grep -Ev '$(WHOLE)')
	METAL_LAB_PROGRAMS="$(CURDIR)/$(BIN)" $(GO) test -timeout 15m $$($(GO) list ./... | grep -E '$(WHOLE)')

.PHONY: lab-assets
lab-assets: ## fetch QEMU, firmware and a kernel for the machine lab into .cache/lab (Debian packages; nothing is installed)
	@test/machine/assets/fetch.sh .cache/lab

.PHONY: lab-assets-full
lab-assets-full: ## the same, and the kernel for any machine, which the full suite needs
	@test/machine/assets/fetch.sh .cache/lab --generic

.PHONY: test-netns
test-netns: ## network boot on a network of namespaces, with a real DHCP client (needs root and iproute2)
	$(GO) test -tags netns -count=1 ./test/netns/... ./adapters/agent/ramdisk

# Tests whose machines need no network but QEMU's own, hence no rights; and those of the full suite alone.
PLAIN := ALifeByVirtualMedia|ALifeInAUsersNetwork|FirmwareStartsTheImage|PowerButtonEndsTheRamdisk
FULL := ^TestFull
ON_MACHINES := METAL_LAB_PROGRAMS="$(CURDIR)/$(BIN)" $(GO) test -tags qemu -count=1

.PHONY: test-machine
test-machine: setup build test-netns lab-assets ## the product against real machines in QEMU
	$(ON_MACHINES) -timeout 30m -skip '$(PLAIN)|$(FULL)' ./test/machine/...
	METAL_LAB_NETWORK=none $(ON_MACHINES) -timeout 30m -run '$(PLAIN)' ./test/machine

.PHONY: test-machine-full
test-machine-full: test-machine lab-assets-full ## and every kind of firmware, kernel and disk, eight machines at once, a site agent that dies, rescue
	$(ON_MACHINES) -timeout 60m -v -run '$(FULL)' ./test/machine

.PHONY: vet
vet: ## go vet, also of the tests that need QEMU or namespaces
	$(GO) vet -tags qemu,netns ./...

.PHONY: fmt
fmt: ## format all Go files
	gofmt -l -w -s $$(git ls-files -co --exclude-standard '*.go')

.PHONY: fmt-check
fmt-check: ## fail where a Go file is not formatted
	@wrong="$$(find . -name '*.go' -not -path './$(TOOLS)/*' -exec gofmt -l -s {} +)"; \
	if [ -n "$$wrong" ]; then echo "not formatted (make fmt):"; echo "$$wrong"; exit 1; fi

.PHONY: lint
lint: $(LINT) ## golangci-lint with .golangci.yml, which names the build tags
	$(LINT) run --allow-parallel-runners ./...

.PHONY: golden
golden: ## write generated documents and golden files again; look at the difference before you commit it
	$(GO) test $$(git grep -l 'flag.Bool("update"' -- '*_test.go' | xargs -n1 dirname | sort -u | sed 's,^,./,') -update

.PHONY: fuzz
fuzz: ## run every fuzz target for a while (FUZZ_TIME, 30s each)
	@git grep -o '^func Fuzz[A-Za-z0-9_]*' -- '*_test.go' | while IFS=: read -r file target; do \
		$(GO) test -run '^$$' -fuzz "^$${target#func }\$$" -fuzztime "$${FUZZ_TIME:-30s}" "./$$(dirname "$$file")"; done

.PHONY: bench
bench: setup ## measure the figures of the log and the API as ratios to pgbench in the same run
	$(GO) run ./test/bench

.PHONY: clean
clean: ## remove what was built, and the tools
	rm -rf $(BIN) $(TOOLS)

# A golangci-lint of that very version that is installed already saves building one.
$(LINT):
	@mkdir -p $(TOOLS)
	@for found in "$$(command -v golangci-lint || true)" "$$($(GO) env GOPATH)/bin/golangci-lint"; do \
		if [ -x "$$found" ] && "$$found" version 2>/dev/null | grep -q "version $(LINT_VERSION:v%=%) "; then \
			ln -sf "$$found" $@; exit 0; \
		fi; \
	done; \
	echo "building golangci-lint $(LINT_VERSION) (once, some minutes)"; \
	GOBIN="$(CURDIR)/$(TOOLS)" $(GO) install -ldflags="-s -w" \
		github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VERSION); \
	mv $(TOOLS)/golangci-lint $@
