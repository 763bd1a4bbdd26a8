# Targets are described in README.md; `make help` lists them.
SHELL := /bin/bash
TOOLS := $(CURDIR)/.tools

.PHONY: generate
generate: ## regenerate internal/metadata and documentation.md from metadata.yaml
	@set -e; d=$$(mktemp -d); trap 'rm -rf "$$d"' EXIT; ln -s "$(CURDIR)" "$$d/wandbsys"; cd "$$d/wandbsys" && "$(TOOLS)/mdatagen" metadata.yaml
