# `make help` lists the targets. Needed: Go, git, make and a C compiler.
SHELL := /bin/bash
.DEFAULT_GOAL := help
# A target whose recipe failed half-way must not look done the next time.
.DELETE_ON_ERROR:

TOOLS  := $(CURDIR)/.tools
BINARY := bin/otelcol-wandbsys
# The tools' versions are those of internal/tools/go.mod.
TOOLS_MOD := internal/tools/go.mod internal/tools/go.sum
PROTO_TOOLS := $(TOOLS)/protogen $(TOOLS)/protoc-gen-go $(TOOLS)/protoc-gen-go-grpc
# Systems beside this one that must compile.
CROSS := darwin/arm64 darwin/amd64 windows/amd64
FUZZTIME ?= 50000x
# Go's own flags, without the compiler's warnings of NVML's old functions.
export CGO_CFLAGS ?= -O2 -g -w

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-14s %s\n", $$1, $$2}'

.PHONY: run
run: build ## build the collector and show this machine's metrics live (PID=n: with that process; WANDBSYS_WANDB_DIR=d: also as W&B runs)
	@echo
	@echo "This machine's metrics follow, every 3 seconds. Prometheus endpoint: http://$${WANDBSYS_PROMETHEUS:-localhost:9464}/metrics"
	@echo "Stop with Ctrl-C."
	@echo
	@[ -z "$$WANDBSYS_WANDB_DIR" ] || printf 'W&B runs: %s (wandb beta leet shows them)\n\n' "$$WANDBSYS_WANDB_DIR"
	@WANDBSYS_PID="$${PID:-$(or $(PID),self)}" $(BINARY) --config config/quickstart.yaml $${WANDBSYS_WANDB_DIR:+--config config/quickstart-wandb.yaml}

.PHONY: build
build: build/main.go ## build bin/otelcol-wandbsys, and bin/libtpu-reader where TPUs are
	@scripts/compile build $(abspath $(BINARY))
	@case "$$(go env GOOS)/$$(go env GOARCH)" in linux/amd64|linux/arm64) \
		CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o $(dir $(abspath $(BINARY))) ./cmd/libtpu-reader ;; esac

# ocb writes the collector's main package; the compiler is run by us, for ocb
# shows nothing for the minutes that a cold compile takes.
build/main.go: builder-config.yaml go.mod go.sum $(TOOLS)/builder
	@echo "Writing the collector's sources (downloads its modules the first time)..."
	@CGO_ENABLED=1 $(TOOLS)/builder --config builder-config.yaml --skip-compilation > .build.log 2>&1 || { cat .build.log; exit 1; }
	@rm -f .build.log; touch build/main.go

.PHONY: test
test: ## unit tests with the race detector
	CGO_ENABLED=1 go test -race -timeout 10m ./...

.PHONY: e2e
e2e: build ## end-to-end tests: the built collector as a user runs it
	cd test/e2e && OTELCOL_WANDBSYS=$(abspath $(BINARY)) go test -count=1 -timeout 20m ./...

.PHONY: fuzz
fuzz: ## run every fuzz test FUZZTIME (50000x, or a time as 30s)
	@scripts/fuzz $(FUZZTIME)

.PHONY: bench
bench: ## benchmarks, and the comparison with W&B's way of reading the host
	go test -run '^$$' -bench . -benchmem ./internal/... ./receiver/... ./exporter/...

.PHONY: bench-host
bench-host: ## the comparisons alone
	go test -run '^$$' -bench 'BenchmarkHost/(without|one)_process' -benchtime 3000x ./internal/scrapers/host
	go test -run '^$$' -bench BenchmarkHost/process_tree -benchtime 500x ./internal/scrapers/host
	go test -run '^$$' -bench BenchmarkTreeAgainstChildren -benchtime 20x ./internal/workload
	go test -run '^$$' -bench BenchmarkDiscovery -benchtime 10x ./internal/workload

.PHONY: generate
generate: $(TOOLS)/mdatagen $(PROTO_TOOLS) ## regenerate what metadata.yaml and the .proto files describe
	@set -e; d=$$(mktemp -d); trap 'rm -rf "$$d"' EXIT; ln -s "$(CURDIR)" "$$d/wandbsys"; cd "$$d/wandbsys" && "$(TOOLS)/mdatagen" metadata.yaml && "$(TOOLS)/mdatagen" exporter/wandbfileexporter/metadata.yaml
	@$(TOOLS)/protogen . internal/scrapers/tpu/runtimepb/runtime.proto $(TOOLS)/protoc-gen-go $(TOOLS)/protoc-gen-go-grpc
	@$(TOOLS)/protogen . internal/wandbfile/wandbpb/wandb.proto $(TOOLS)/protoc-gen-go

.PHONY: lint
lint: $(TOOLS)/golangci-lint ## golangci-lint
	$(TOOLS)/golangci-lint run ./...
	cd test/e2e && $(TOOLS)/golangci-lint run --config ../../.golangci.yaml ./...

.PHONY: fmt
fmt: $(TOOLS)/golangci-lint ## format
	$(TOOLS)/golangci-lint fmt ./...

.PHONY: cross
cross: ## compile and vet for the other systems, and without cgo
	@set -e; for target in $(CROSS); do \
		echo "compile and vet $$target"; export GOOS=$${target%/*} GOARCH=$${target#*/} CGO_ENABLED=0; \
		go build ./... && go vet ./...; \
	done; echo "compile and vet without cgo"; unset GOOS GOARCH; export CGO_ENABLED=0; go build ./... && go vet ./...

.PHONY: vulncheck
vulncheck: $(TOOLS)/govulncheck ## known vulnerabilities (needs the vulnerability database's site)
	$(TOOLS)/govulncheck ./...

.PHONY: tidy
tidy: ## go mod tidy in every module
	go mod tidy
	cd test/e2e && go mod tidy
	cd internal/tools && go mod tidy

.PHONY: clean
clean: ## remove what was built
	rm -rf bin build .tools

tool = go build -C internal/tools -o $(TOOLS)/$(notdir $@) $(1)

$(TOOLS)/builder: $(TOOLS_MOD)
	@echo "Building ocb..."; $(call tool,go.opentelemetry.io/collector/cmd/builder)
$(TOOLS)/mdatagen: $(TOOLS_MOD)
	@echo "Building mdatagen..."; $(call tool,go.opentelemetry.io/collector/cmd/mdatagen)
$(TOOLS)/protogen: $(TOOLS_MOD) internal/tools/protogen/main.go
	@echo "Building protogen..."; $(call tool,./protogen)
$(TOOLS)/protoc-gen-go: $(TOOLS_MOD)
	@$(call tool,google.golang.org/protobuf/cmd/protoc-gen-go)
$(TOOLS)/protoc-gen-go-grpc: $(TOOLS_MOD)
	@$(call tool,google.golang.org/grpc/cmd/protoc-gen-go-grpc)
$(TOOLS)/golangci-lint: $(TOOLS_MOD)
	@echo "Building golangci-lint (takes minutes the first time)..."; $(call tool,github.com/golangci/golangci-lint/v2/cmd/golangci-lint)
$(TOOLS)/govulncheck: $(TOOLS_MOD)
	@$(call tool,golang.org/x/vuln/cmd/govulncheck)
