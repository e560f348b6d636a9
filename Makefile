# make test      all tests, with the race detector where there is a C compiler
# make bench     all benchmarks
# make lint      gofmt, go vet, and the linters pinned in .ci/lint
# make generate  what is generated and committed
# make check     the whole check, as CI runs it

GO        ?= go
PKGS      ?= ./...
TESTFLAGS ?=

# go env says 0 when no C compiler is found. WP_RACE=required makes that an
# error instead of a plain run.
ifeq ($(shell $(GO) env CGO_ENABLED),1)
race := -race
endif

.PHONY: test bench lint generate check

test:
ifndef race
	@echo 'make test: no C compiler found, so the race detector is off' >&2
	@test '$(WP_RACE)' != required
endif
	$(GO) test $(race) $(TESTFLAGS) $(PKGS)

bench:
	$(GO) test -run '^$$' -bench . -benchmem $(TESTFLAGS) $(PKGS)

lint:
	.ci/lint

generate:
	$(GO) generate $(PKGS)

check:
	.ci/run
