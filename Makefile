# Corral. `make demo` shows it, `make test` tests it, `make help` lists the other targets.

PREFIX     ?= /usr/local
DESTDIR    ?=
FUZZTIME   ?= 20s
ROUNDS     ?= 50
TURNS      ?= 12
TIME       ?= 1h
# The commit from which make upgrade-test starts sessions: the last one before decisions and effects
# of the supervisor were separated.
FROM       ?= bbaa65f
# The build directory: build in the source tree or, if that is read-only, a directory in the cache.
# BUILD=DIR selects another one, whose name must not contain blanks.
BUILD      := $(or $(shell [ -w . ] && echo build),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/corral-build-$(firstword $(shell pwd | cksum)))
BINDIR      = $(PREFIX)/bin
# corrald finds its shim and its agent files relative to itself, in ../libexec/corral and
# ../lib/corral: these two follow BINDIR.
LIBEXECDIR  = $(PREFIX)/libexec/corral
AGENTDIR    = $(PREFIX)/lib/corral/agents
SANDBOXDIR  = $(PREFIX)/lib/corral/sandboxes
UNITDIR     = $(PREFIX)/lib/systemd/user
CATALOGDIR  = $(PREFIX)/lib/systemd/catalog
DATADIR     = $(PREFIX)/share
DOCDIR      = $(DATADIR)/doc/corral
# corrald searches ../share/corral first for the files that it passes to agents.
SHAREDIR    = $(DATADIR)/corral
BUSDIR      = $(DATADIR)/dbus-1/services

# Use a Go that was unpacked in the place that its installation instructions name, even if it is not
# in PATH.
ifeq ($(shell command -v go 2>/dev/null),)
export PATH := $(PATH):/usr/local/go/bin
endif

# Without a git checkout, internal/version determines the version.
VERSION := $(patsubst v%,%,$(shell git describe --tags --always --dirty 2>/dev/null))
# For packages: STRIP='-s -w' and BUILDMODE=pie (position-independent executables, which start a
# millisecond later).
STRIP   ?=
BUILDMODE ?= default
# git refuses to read a checkout that belongs to another user, which would make go build fail.
ifeq ($(VERSION),)
export GOFLAGS := $(GOFLAGS) -buildvcs=false
endif
# Programs, tests and tools share what is compiled, in every checkout: without -trimpath, a compiled
# package depends on the directory of its source.
export GOFLAGS := $(GOFLAGS) -trimpath
LDFLAGS  = $(STRIP) $(if $(VERSION),-X github.com/corrald/corral/internal/version.Version=$(VERSION))
GOBUILD  = CGO_ENABLED=0 go build -buildmode=$(BUILDMODE)
# The race detector needs a C compiler; the programs do not.
GOTEST   = CGO_ENABLED=1 go test -race
# Installed with the same relative paths as in the source tree, so that their links work.
DOCUMENTS = README.md SECURITY.md CHANGELOG.md $(filter-out docs/man/%,$(wildcard docs/*.md docs/*/*.md docs/reference/*.json))
# The manual pages in roff format, and their sources. Their date is that of the last commit, so that
# the same sources yield the same pages.
MANPAGES = $(patsubst docs/man/%.md,%,$(wildcard docs/man/*.md))
MANDATE := $(or $(shell git log -1 --format=%cs 2>/dev/null),$(shell date +%F))
# Distributions that build without network access have a go-md2man of their own: MD2MAN=go-md2man.
MD2MAN  ?= go tool -modfile=tools/go.mod go-md2man
LINT     = go tool -modfile=tools/go.mod golangci-lint

# The programs that each target needs; scripts/needs.sh installs them or prints the command that
# does.
NEEDS_BUILD = go git
NEEDS_RUN   = tmux systemd dbus user-bus
NEEDS_TEST  = $(NEEDS_BUILD) $(NEEDS_RUN) bubblewrap cc procps gdbus gio-python dunst xvfb sway mako foot dbusmock curl jq zsh fish vim i3status indicator bash-completion openssh
NEEDS_E2E   = $(NEEDS_TEST) logind iproute debootstrap lintian npm
NEEDS_AGENTS = $(NEEDS_TEST) npm
NEEDS_LIMITS = $(NEEDS_TEST) debootstrap uml
NEEDS_CHECK = $(NEEDS_BUILD) systemd shellcheck mandoc man desktop-file-utils appstream makepkg nix python3
NEEDS_SCALE = supervisor s6
NEEDS_PICTURES = $(NEEDS_BUILD) $(NEEDS_RUN) xvfb dunst i3 i3status polybar waybar sway grim rofi xterm imagemagick indicator python3

.DEFAULT_GOAL := build
.PHONY: help build demo test unit-test e2e installs-test desktops-test agents-test limits-test slurm-test upgrade-test torture soak check format lint architecture shell units-verify desktop extras manual generated vulnerabilities guest pictures lines \
	bench bench-scale fuzz dist install install-files uninstall install-user uninstall-user clean needs-build needs-run needs-test needs-e2e needs-agents needs-limits needs-check needs-pictures needs-scale most-tests daemon-tests-1 daemon-tests-2

help: ## this list
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' Makefile | while IFS="$$(printf '\t')" read -r t d; do printf '  make %-15s %s\n' "$$t" "$$d"; done

needs-build needs-run needs-test needs-e2e needs-agents needs-limits needs-check needs-pictures needs-scale: needs-%:
	@scripts/needs.sh $(NEEDS_$(shell echo $* | tr a-z A-Z))

build: needs-build $(BUILD)/man/.made $(BUILD)/documents/.made $(BUILD)/licenses/.made ## corrald, corralctl, corral-shim and the manual, into build/, or BUILD=DIR
	@mkdir -p $(BUILD)
	@[ '$(BUILD)' = build ] || echo 'Building into $(BUILD)'
	$(GOBUILD) -ldflags '$(LDFLAGS)' -o $(BUILD)/ ./cmd/corrald ./cmd/corralctl
	$(GOBUILD) -ldflags '-s -w $(if $(VERSION),-X main.version=$(VERSION))' -o $(BUILD)/ ./cmd/corral-shim

$(BUILD)/man/.made: $(wildcard docs/man/*.md dbusapi/*.xml internal/manual/*.go internal/manual/*.tmpl)
	@go run ./internal/manual -o $(BUILD)/man -version '$(or $(VERSION),unknown)' -date '$(MANDATE)' docs/man/*.md
	@for page in $(MANPAGES); do $(MD2MAN) -in $(BUILD)/man/$$page.md -out $(BUILD)/man/$$page && rm $(BUILD)/man/$$page.md || exit 1; done
	@touch $@

$(BUILD)/documents/.made: $(DOCUMENTS) contrib/README.md $(wildcard internal/manual/*.go)
	@go run ./internal/manual -documents $(BUILD)/documents $(DOCUMENTS)
	@go run ./internal/manual -documents $(BUILD)/documents contrib/README.md
	@touch $@

# The licences of the linked modules, and the bill of materials.
PROGRAMS = ./cmd/corrald ./cmd/corralctl ./cmd/corral-shim
$(BUILD)/licenses/.made: go.mod go.sum LICENSE $(wildcard internal/licenses/*.go)
	@go run ./internal/licenses -o $(BUILD)/licenses -version '$(or $(VERSION),unknown)' $(PROGRAMS)
	@touch $@

demo: needs-build needs-run ## see it work: real programs supervised on a real systemd, and what became of each
	@scripts/demo.sh

# As root, the tests also boot machines on which Corral is installed and used as by a user; without
# root these tests are left out, with a message.
ifeq ($(shell id -u),0)
test: unit-test e2e ## everything; the booted machines only as root
else
test: unit-test
	@echo 'The tests on booted machines need root and were left out: sudo make e2e' >&2
endif

# Tests mostly wait. The daemon's tests take as long as all others, so they run in two halves, each
# with its own systemd and bus. The tests of the root directory, which `make check` runs as well, run
# before, once.
unit-test: needs-test architecture
	@$(MAKE) --no-print-directory -j3 --output-sync=target most-tests daemon-tests-1 daemon-tests-2

# Packages without goroutines, whose tests compute much: the race detector would find nothing there,
# and takes two minutes of CPU time for it. The target architecture tests the first one.
SEQUENTIAL = . ./supervisor/session

HALF = '^Test[A-N]'
most-tests:
	go test -timeout 12m $(filter-out .,$(SEQUENTIAL))
	$(GOTEST) -timeout 12m $$(go list ./... | grep -vxF "$$(go list $(SEQUENTIAL) ./cmd/corrald)")

daemon-tests-1:
	$(GOTEST) -timeout 12m -run $(HALF) ./cmd/corrald

daemon-tests-2:
	$(GOTEST) -timeout 12m -skip $(HALF) ./cmd/corrald

# Tests on machines with additional packages, which take minutes to create.
SLOW_E2E = TestPackages/(rpm|archlinux)|TestLogin$$|Test(Remote)?Notifications?_OnDesktop

e2e: needs-e2e build ## as root: the tests on booted machines
	go test -tags e2e -count=1 -parallel 6 -timeout 15m -skip '$(SLOW_E2E)' ./e2e/... ./internal/testbed/machine

installs-test: needs-e2e build ## as root: the packages of each format, each kind of login, a desktop
	go test -tags e2e -count=1 -timeout 25m -v -run 'TestPackages|TestLogin$$|Test(Remote)?Notifications?_OnDesktop' ./e2e

desktops-test: needs-e2e build ## as root: notifications on the screens of GNOME, KDE Plasma and XFCE; pictures into DESKTOPS_PICTURES
	go test -tags e2e,desktops -count=1 -timeout 60m -v -run '^TestDesktops$$' ./e2e

agents-test: needs-agents ## the real agents, each in real turns with a mock model; TURNS (12) turns of each; AGENTS=newest in the versions that are published now
	AGENTS=$(AGENTS) AGENT_TURNS=$(TURNS) go test -tags agents -count=1 -timeout 40m -v ./e2e/agents

limits-test: needs-limits build guest ## as root: OOM and TasksMax, in a user-mode-linux guest that has the controllers; it is made once, in a minute or two
	go test -tags limits -run '^TestLimits' -count=1 -timeout 30m $$(grep -rl --include='*_test.go' '^//go:build limits' . | xargs -n 1 dirname | sort -u)

slurm-test: needs-e2e build ## as root: sessions as jobs of a real Slurm with two nodes, on booted machines
	go test -tags e2e,slurm -run '^TestSlurm$$' -count=1 -timeout 15m -v ./e2e

upgrade-test: needs-test ## sessions of an older Corral, FROM a commit, are adopted, stopped and resumed by this one, and the other way round
	UPGRADE_FROM=$(FROM) $(GOTEST) -tags upgrade -count=1 -timeout 15m -v -run '^TestUpgrade' ./cmd/corrald

# Separate from the tests, because go test prints nothing before they have finished.
guest: needs-limits
	@go run ./internal/testbed/makeguest

check: needs-check format lint architecture shell units-verify desktop extras manual generated vulnerabilities ## formatting, lint, import rules, scripts, units, desktop files, contrib, manual, generated files, known vulnerabilities
	@echo 'check: all is well'

format:
	@out=$$(git ls-files -co --exclude-standard '*.go' | xargs gofmt -l) && [ -z "$$out" ] || { printf 'not formatted, run gofmt -w on:\n%s\n' "$$out" >&2; exit 1; }

lint:
	$(LINT) run --allow-parallel-runners ./...

architecture:
	go test -count=1 .

shell:
	@{ git ls-files -co --exclude-standard '*.sh' .ci/run; git grep --untracked -lE '^#!/bin/(ba)?sh|shellcheck shell' contrib; } | sort -u | xargs shellcheck

units-verify:
	@scripts/verify-units.sh

desktop:
	@desktop-file-validate packaging/desktop/*.desktop contrib/*/*.desktop
	@out=$$(appstreamcli validate --no-net --no-color packaging/desktop/*.metainfo.xml 2>&1) || { printf '%s\n' "$$out" >&2; exit 1; }

extras:
	@scripts/extras.sh

manual: $(BUILD)/man/.made
	@scripts/manual.sh $(BUILD)/man

generated:
	@scripts/generated.sh

vulnerabilities:
	@scripts/vulnerabilities.sh

torture: needs-test ## ROUNDS (50) rounds of random faults: everything killed, restarted, stopped; SEED and ROUND repeat a failure
	TORTURE_ROUNDS=$(ROUNDS) TORTURE_SEED=$(SEED) TORTURE_ROUND=$(ROUND) $(GOTEST) -count=1 -v -timeout 0 -run '^TestTorture$$' ./cmd/corrald

soak: needs-test ## for TIME (1h): the bus, notification servers and the display come and go; counts what is published, and the memory and descriptors of the daemon; SEED repeats it
	SOAK_TIME=$(TIME) SOAK_SEED=$(SEED) CGO_ENABLED=0 go test -count=1 -v -timeout 0 -run '^TestSoak$$' ./cmd/corrald

bench: needs-build needs-run build ## latency, start time, memory and wake-ups, each beside its floor; fails if a bar is missed; BENCH=-measure does not
	go run ./internal/bench $(BENCH)

bench-scale: needs-build needs-run needs-scale build ## 1,000 and 5,000 sessions, and other supervisors, measured side by side; writes docs/COMPARISON.md; half an hour
	go run ./internal/bench -peers -scale 1000,5000 -n 0.2 -idle 20s -report docs/COMPARISON.md $(BENCH)
	@[ "$$(id -u)" = 0 ] || echo 'Ten hosts are measured on booted machines, which needs root: sudo make bench-scale' >&2
	@[ "$$(id -u)" != 0 ] || { scripts/needs.sh $(NEEDS_E2E) && go test -tags e2e,scale -count=1 -timeout 15m -run '^TestScale' ./e2e; }

fuzz: needs-test ## every fuzz test for FUZZTIME (20s)
	@FUZZTIME=$(FUZZTIME) scripts/fuzz.sh

install: build install-files ## for all users, into PREFIX (/usr/local) below DESTDIR
	@[ -n '$(DESTDIR)' ] || journalctl --update-catalog || :
	@[ -n '$(DESTDIR)' ] || echo 'Installed. It starts when it is first used, and then at each login of that user.'

APP = io.github.corrald.Corral

# Files that are installed unchanged, as shell words `mode:source:target`, quoted because a target
# may contain spaces. uninstall removes the targets.
INSTALLED = \
	'755:$(BUILD)/corrald:$(BINDIR)/corrald' \
	'755:$(BUILD)/corralctl:$(BINDIR)/corralctl' \
	'755:$(BUILD)/corral-shim:$(LIBEXECDIR)/corral-shim' \
	'644:packaging/app-corral.slice:$(UNITDIR)/app-corral.slice' \
	'644:packaging/corral-restart@.path:$(UNITDIR)/corral-restart@.path' \
	$(if $(CATALOGDIR),'644:packaging/corral.catalog:$(CATALOGDIR)/corral.catalog') \
	'644:packaging/desktop/$(APP).desktop:$(DATADIR)/applications/$(APP).desktop' \
	'644:packaging/desktop/$(APP).metainfo.xml:$(DATADIR)/metainfo/$(APP).metainfo.xml' \
	'644:packaging/desktop/$(APP).svg:$(DATADIR)/icons/hicolor/scalable/apps/$(APP).svg' \
	'644:packaging/desktop/$(APP)-attention.svg:$(DATADIR)/icons/hicolor/scalable/apps/$(APP)-attention.svg' \
	'644:packaging/desktop/$(APP)-symbolic.svg:$(DATADIR)/icons/hicolor/symbolic/apps/$(APP)-symbolic.svg' \
	'644:packaging/completions/corralctl.bash:$(DATADIR)/bash-completion/completions/corralctl' \
	'644:packaging/completions/_corralctl:$(DATADIR)/zsh/site-functions/_corralctl' \
	'644:packaging/completions/corralctl.fish:$(DATADIR)/fish/vendor_completions.d/corralctl.fish' \
	'644:packaging/io.github.corrald.Corral1.service:$(BUSDIR)/io.github.corrald.Corral1.service' \
	$(foreach f,$(HOOKS),'644:packaging/hooks/$(f):$(SHAREDIR)/hooks/$(f)') \
	$(foreach f,$(wildcard dbusapi/*.xml),'644:$(f):$(DATADIR)/dbus-1/interfaces/$(notdir $(f))') \
	$(foreach f,$(wildcard agents/*.agent),'644:$(f):$(AGENTDIR)/$(notdir $(f))') \
	$(foreach f,$(wildcard sandboxes/*.sandbox),'644:$(f):$(SANDBOXDIR)/$(notdir $(f))') \
	$(foreach f,$(MANPAGES),'644:$(BUILD)/man/$(f):$(DATADIR)/man/man$(lastword $(subst ., ,$(f)))/$(f)') \
	$(foreach f,$(DOCUMENTS),'644:$(BUILD)/documents/$(f):$(DOCDIR)/$(f)') \
	'644:LICENSE:$(DOCDIR)/LICENSE' \
	'644:$(BUILD)/documents/contrib/README.md:$(DOCDIR)/examples/README.md' \
	$(foreach f,THIRD-PARTY-NOTICES sbom.cdx.json,'644:$(BUILD)/licenses/$(f):$(DOCDIR)/$(f)') \
	$(foreach f,$(EXTRAS),'644:contrib/$(f):$(DOCDIR)/examples/$(f)') \
	$(foreach f,$(EXTRA_PROGRAMS),'755:contrib/$(f):$(DOCDIR)/examples/$(f)')

# Examples for bars, trays, menus, sandboxes and schedulers, of which users take what they need. The files for package
# builders are not included.
EXTRAS = waybar/corral.jsonc waybar/style.css polybar/corral.ini i3/corral.conf i3/i3blocks.conf tmux/corral.conf indicator/corral-indicator.desktop sandboxes/podman.sandbox sandboxes/srt.sandbox sandboxes/srt.json slurm/shared-home.conf
EXTRA_PROGRAMS = i3/corral-i3status i3/corral-i3blocks tmux/corral-tmux rofi/corral-rofi indicator/corral-indicator slurm/corral-job slurm/corral-prolog slurm/corral-epilog

# Relative to packaging/hooks. Gemini CLI complains about hooks that another user than root can
# change, so its hooks are not installed in home directories.
HOOKS = $(patsubst packaging/hooks/%,%,$(wildcard packaging/hooks/*.* packaging/hooks/*/*.*))

# Units that contain @bindir@. UNITEDIT is a sed command for them.
SERVICES = corrald.service corral@.service corral-restart@.service corral-remote@.service
UNITEDIT =

# Separate from install, so that package builders, and `sudo make install-files` after `make build`,
# need no compiler.
install-files:
	@for f in $(INSTALLED); do \
		mode=$${f%%:*} rest=$${f#*:}; \
		install -D -m $$mode "$${rest%%:*}" "$(DESTDIR)$${rest#*:}" || exit 1; \
	done
	@for unit in $(SERVICES); do \
		sed -e 's|@bindir@|$(BINDIR)|' -e '$(UNITEDIT)' packaging/$$unit.in | install -D -m 644 /dev/stdin "$(DESTDIR)$(UNITDIR)/$$unit" || exit 1; \
	done

uninstall: ## what install put there; sessions and their records stay
	@for f in $(INSTALLED) $(foreach f,$(SERVICES),'$(UNITDIR)/$(f)'); do rm -f "$(DESTDIR)$${f##*:}"; done
	@for d in '$(LIBEXECDIR)' '$(AGENTDIR)' '$(SANDBOXDIR)' '$(PREFIX)/lib/corral' '$(SHAREDIR)/hooks/copilot' '$(SHAREDIR)/hooks' '$(SHAREDIR)' \
		$(patsubst %/,'$(DOCDIR)/%',$(filter docs/%/,$(sort $(dir $(DOCUMENTS))))) '$(DOCDIR)/docs' $(foreach d,$(sort $(filter-out ./,$(dir $(EXTRA_PROGRAMS) $(EXTRAS)))),'$(DOCDIR)/examples/$(d)') '$(DOCDIR)/examples' '$(DOCDIR)'; do \
		[ ! -d "$(DESTDIR)$$d" ] || rmdir --ignore-fail-on-non-empty "$(DESTDIR)$$d"; \
	done

USER_DATA = $(or $(XDG_DATA_HOME),$(HOME)/.local/share)
# systemd and the bus use their own environment, which may differ from that of this shell.
MANAGER_DATA = $(or $(shell scripts/user-service.sh data),$(USER_DATA))
USER_DIRS = DESTDIR= PREFIX='$(HOME)/.local' DATADIR='$(USER_DATA)' SHAREDIR='$(HOME)/.local/share/corral' UNITDIR='$(MANAGER_DATA)/systemd/user' \
	BUSDIR='$(MANAGER_DATA)/dbus-1/services' CATALOGDIR= UNITEDIT='/^ConditionUser=/d'

install-user: needs-run build ## for yourself, into ~/.local, enabled and started
	@$(MAKE) --no-print-directory install-files $(USER_DIRS) HOOKS='$(filter-out gemini.json,$(HOOKS))'
	@scripts/user-service.sh start '$(HOME)/.local/bin'

uninstall-user: ## what install-user did, undone; running agents continue
	@scripts/user-service.sh stop
	@$(MAKE) --no-print-directory uninstall $(USER_DIRS)
	@scripts/user-service.sh forget

# Without a tagged version, packages are numbered by commits, so that a newer package is an upgrade.
DISTVERSION ?= $(or $(subst -,+,$(patsubst v%,%,$(shell git describe --tags 2>/dev/null))),0~r$(shell git rev-list --count HEAD).g$(shell git rev-parse --short HEAD))

dist: needs-build ## packages for Debian, Fedora and Arch, and the sources, into build/dist/
	@scripts/dist.sh '$(DISTVERSION)' $(BUILD)/dist

pictures: needs-pictures ## what the desktops' real programs show of sessions, into build/pictures/
	@scripts/pictures.sh $(BUILD)/pictures

lines: ## lines of Go: the product, tools for developers, tests
	@scripts/lines.sh

clean: ## removes build/
	rm -rf $(BUILD)
