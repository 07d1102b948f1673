# Flamelab: one Makefile, one output tree (build/). `make help` lists the targets.
#
# Sources are found by directory, so a new file needs no line here. Objects stand under build/obj/PATH.o,
# the same with ASan+UBSan under build/san/PATH.o; -MMD -MP writes their header dependencies.

MAKEFLAGS += --no-builtin-rules
.SUFFIXES:
.DELETE_ON_ERROR:
.SECONDARY:
SHELL := /bin/bash

# As many jobs as cores, unless the caller said otherwise.
ifeq ($(filter -j%,$(MAKEFLAGS)),)
MAKEFLAGS += -j$(shell nproc)
endif

B       := build
CC      := gcc
CXX     := g++
CLANG   ?= clang
BPFTOOL ?= $(firstword $(wildcard /usr/sbin/bpftool /usr/local/sbin/bpftool) bpftool)
ARCH    := x86

# `make ARCH=arm64` builds what runs in an aarch64 VM, into build/arm64, against vm-images/sysroot.lock. The sysroot
# is named by a link in the tree, so that no path of this machine gets into the programs.
ifeq ($(ARCH),arm64)
B       := build/arm64
CROSS   := aarch64-linux-gnu-
CC      := $(CROSS)gcc --sysroot=$(B)/sysroot
CXX     := $(CROSS)g++ --sysroot=$(B)/sysroot
endif

# `make V=1` shows whole commands.
Q := $(if $(V),,@)
say = @$(if $(V),:,printf '  %-9s %s\n' '$(1)' '$(2)')

SAN      ?=
# `make SAN=address,undefined` builds everything with sanitizers, in a tree of its own.
ifneq ($(SAN),)
B        := build/with-$(subst $(comma),-,$(subst $() ,-,$(SAN)))
endif
comma    := ,
SANFLAGS  = -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer

# Always 13 characters, so that no figure of the lab moves with the text of a version. Tracked files count as dirt.
VERSION  := $(shell h=$$(git rev-parse HEAD 2>/dev/null) || { echo 0000000+nogit; exit; }; \
	    git --no-optional-locks status --porcelain -uno | grep -q . && echo $${h::7}+dirty || echo $${h::13})
# The same bytes from any directory: debug information and BTF name files as they stand in the tree.
REPRO    := -ffile-prefix-map=$(CURDIR)=.
WARN     := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wpointer-arith \
	    -Wwrite-strings -Wformat=2 -Wno-missing-field-initializers -Werror
CPPFLAGS := -D_GNU_SOURCE -Ilib -I. -I$(B)/gen
CFLAGS   ?= -O2 -g
ALL_CFLAGS = -std=gnu17 $(CFLAGS) $(REPRO) -fno-omit-frame-pointer $(WARN) $(if $(SAN),-fsanitize=$(SAN) -fno-sanitize-recover=undefined)
LDFLAGS  ?= -Wl,--as-needed -Wl,-z,relro,-z,now
LIBS_BASE  := -lxxhash -lnettle
LIBS_PROF  := $(LIBS_BASE) -lz -lm
LIBS_AGENT := $(LIBS_PROF) -lbpf -ldw -lelf -llzma -lcjson -lseccomp -lcap -l:libstdc++.a
LIBS_BACKEND := $(LIBS_PROF) -lgnutls -lmicrohttpd -lsqlite3 -lcjson -lpthread
LIBS_LAB   := $(LIBS_PROF) -lcjson

srcs      = $(sort $(wildcard $(addsuffix /*.c,$(1))))
obj       = $(patsubst %.c,$(B)/obj/%.o,$(1))
san       = $(patsubst %.c,$(B)/san/%.o,$(1))
BASE_SRC := $(call srcs,lib/base)
PROF_SRC := $(call srcs,lib/prof)
AGENT_SRC := $(filter-out agent/main.c agent/fault_none.c agent/fault_seeded.c,$(call srcs,agent))
BACKEND_SRC := $(filter-out backend/main.c backend/fault_none.c backend/fault_seeded.c,$(call srcs,backend))
LAB_SRC  := $(filter-out lab/main.c,$(call srcs,lab))
GUEST_SRC := $(call srcs,lab/guest)
BPF_SRC  := $(wildcard agent/bpf/*.bpf.c)
SKELS    := $(patsubst agent/bpf/%.bpf.c,$(B)/gen/agent/bpf/%.skel.h,$(BPF_SRC))
FUZZ_SRC := $(call srcs,tests/fuzz)
FUZZERS  := $(filter %_fuzz.c,$(FUZZ_SRC))
UNIT_LAYERS := $(notdir $(patsubst %/,%,$(dir $(wildcard tests/unit/*/.))))
UNIT_LAYERS := $(foreach l,base prof agent backend lab,$(if $(wildcard tests/unit/$(l)/*_test.c),$(l)))

PROGRAMS := $(if $(CROSS),,$(B)/flamelab) $(B)/flame-agent $(B)/flame-backend $(B)/flame-backend-faulty $(B)/flame-agent-faulty $(B)/lab-init
WORKLOADS := $(patsubst workloads/cpp/%.cpp,$(B)/workloads/%,$(wildcard workloads/cpp/*.cpp)) \
	     $(addprefix $(B)/workloads/,chain_nofp chain_stripped chain_static_pie tail_noreturn_nofp \
	     inline_three_debug inline_three_stripped)

# Go's names are apart from the C++ programs'. Without Go they are not built here, and installed for the lab.
GO_NAMES := cpu_split lock_convoy io_fsync cache_miss ping_pong cgo_split
GO_WORKLOADS := $(if $(CROSS),,$(addprefix $(B)/workloads/go_,$(GO_NAMES) cpu_split_stripped cpu_split_pie))

.PHONY: all
all: $(PROGRAMS) $(WORKLOADS) $(if $(shell command -v go),$(GO_WORKLOADS)) ## build everything (the second run does nothing)

##
## --- set-up ----------------------------------------------------------------------------------------

# A stamp a group, so that `make` alone installs only what building needs.
$(B)/deps/%: tools/packages.txt tools/deps.sh
	@tools/deps.sh $* $(if $(CROSS),arm64)
	@mkdir -p $(@D) && touch $@
ifneq ($(CROSS),)
# The cache may have been emptied since.
ifeq ($(wildcard $(B)/sysroot/usr/include),)
.PHONY: $(B)/sysroot
endif
$(B)/deps/build: | $(B)/sysroot
$(B)/sysroot: vm-images/sysroot.lock vm-images/sysroot.list vm-images/sysroot.sh vm-images/debs.sh
	@mkdir -p $(@D)
	@dir=$$(vm-images/sysroot.sh --print-dir) && ln -sfn "$$dir" $@
endif

.PHONY: deps
deps: ## install the Debian packages that all targets need
	@tools/deps.sh build check lab bench

##
## --- compiling -------------------------------------------------------------------------------------

DEPS_BUILD := | $(B)/deps/build

$(B)/obj/%.o: %.c $(DEPS_BUILD)
	@mkdir -p $(@D)
	$(call say,CC,$@)
	$(Q)$(CC) $(CPPFLAGS) $(ALL_CFLAGS) -MMD -MP -c $< -o $@

$(B)/san/%.o: %.c $(DEPS_BUILD)
	@mkdir -p $(@D)
	$(call say,CC,$@)
	$(Q)$(CC) $(CPPFLAGS) $(ALL_CFLAGS) -O1 $(SANFLAGS) -MMD -MP -c $< -o $@

# Only the programs' main files know the version, so a commit rebuilds two objects.
$(B)/gen/version.h: FORCE
	@mkdir -p $(@D)
	@echo '#define FLAME_VERSION "$(VERSION)"' | cmp -s - $@ || echo '#define FLAME_VERSION "$(VERSION)"' >$@
.PHONY: FORCE
FORCE:

# BPF: clang -> object -> skeleton. -g for BTF; CO-RE needs no kernel headers.
BPF_CFLAGS := -target bpf -D__TARGET_ARCH_$(ARCH) -mcpu=v3 -O2 -g -std=gnu17 -Wall -Wextra -Werror \
	      -Wno-unused-parameter -Wno-missing-declarations $(REPRO) -I. -I$(B)/gen
$(B)/obj/agent/bpf/%.bpf.o: agent/bpf/%.bpf.c $(DEPS_BUILD)
	@mkdir -p $(@D)
	$(call say,BPF,$@)
	$(Q)$(CLANG) $(BPF_CFLAGS) -MMD -MP -c $< -o $@
# bench/unwind.sh makes its own; here it is built by `make check`, so that the agent's headers do not move away from it.
$(B)/obj/bench/%.bpf.o: bench/%.bpf.c $(DEPS_BUILD)
	@mkdir -p $(@D)
	$(call say,BPF,$@)
	$(Q)$(CLANG) $(BPF_CFLAGS) -MMD -MP -c $< -o $@
$(B)/gen/agent/bpf/%.skel.h: $(B)/obj/agent/bpf/%.bpf.o
	@mkdir -p $(@D)
	$(call say,SKEL,$@)
	$(Q)$(BPFTOOL) gen skeleton $< name $*_bpf >$@

$(call obj,$(AGENT_SRC) agent/main.c) $(call san,$(AGENT_SRC)): | $(SKELS)
$(call obj,agent/main.c lab/main.c backend/main.c): $(B)/gen/version.h

##
## --- programs --------------------------------------------------------------------------------------

$(B)/flame-agent: $(call obj,agent/main.c agent/fault_none.c $(AGENT_SRC) $(PROF_SRC) $(BASE_SRC))
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) $^ -o $@ $(LIBS_AGENT)
# The same agent with the seeded faults that `flamelab selftest` switches on; never shipped.
$(B)/flame-agent-faulty: $(call obj,agent/main.c agent/fault_seeded.c $(AGENT_SRC) $(PROF_SRC) $(BASE_SRC))
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) $^ -o $@ $(LIBS_AGENT)
$(B)/flame-backend: $(call obj,backend/main.c backend/fault_none.c $(BACKEND_SRC) $(PROF_SRC) $(BASE_SRC))
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) $^ -o $@ $(LIBS_BACKEND)
# The same backend with its seeded faults; never shipped.
$(B)/flame-backend-faulty: $(call obj,backend/main.c backend/fault_seeded.c $(BACKEND_SRC) $(PROF_SRC) $(BASE_SRC))
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) $^ -o $@ $(LIBS_BACKEND)
# The assembler includes the page's files, which -MMD does not see.
$(call obj,backend/api_page.c) $(call san,backend/api_page.c): $(wildcard backend/web/*)
$(B)/flamelab: $(call obj,lab/main.c $(LAB_SRC) $(PROF_SRC) $(BASE_SRC))
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) $^ -o $@ $(LIBS_LAB)
# PID 1 of the guest: static, libc only, so that it runs before any file system is there.
$(call obj,$(GUEST_SRC)): $(DEPS_BUILD)
# The assembler includes the recorded windows, which -MMD does not see.
$(B)/lab-init $(call obj,lab/guest/fleet_ingest.c): $(wildcard fixtures/push/*.spool)
$(B)/lab-init: $(GUEST_SRC) $(DEPS_BUILD)
	@mkdir -p $(B)/obj/lab/guest
	$(call say,LD,$@)
	$(Q)$(CC) $(CPPFLAGS) -std=gnu17 -O2 -g $(REPRO) $(WARN) -static -MMD -MP -MF $(B)/obj/lab/guest/init.d -MT $@ $(GUEST_SRC) -o $@

# Workloads keep frame pointers and their own functions apart; they include nothing of ours. On aarch64 each of their
# return addresses is signed, also those that stay in the link register.
WORKLOAD_FLAGS := -std=gnu++17 -O2 -g $(REPRO) -fno-omit-frame-pointer -fno-optimize-sibling-calls -fno-ipa-icf \
		  $(if $(CROSS),-mno-omit-leaf-frame-pointer -mbranch-protection=pac-ret+leaf,-fcf-protection=none) -Wall -Wextra -Werror
build_workload = $(CXX) $(WORKLOAD_FLAGS) $(WORKLOAD_EXTRA) -MMD -MP -MF $@.d $< -o $@ -pthread
$(B)/workloads/%: workloads/cpp/%.cpp $(DEPS_BUILD)
	@mkdir -p $(@D)
	$(call say,CXX,$@)
	$(Q)$(build_workload)
# Nothing keeps a frame pointer here: what unwinding by tables is for.
NO_FRAMES := -fomit-frame-pointer -DBURN_NO_FRAME
$(addprefix $(B)/workloads/,recursion signal_middle libc_calls container container_inside chain_nofp tail_noreturn_nofp): WORKLOAD_EXTRA := $(NO_FRAMES)
$(B)/workloads/inline_three: WORKLOAD_EXTRA := $(NO_FRAMES) -O3
$(B)/workloads/chain_stripped: WORKLOAD_EXTRA := $(NO_FRAMES) -rdynamic -s
$(B)/workloads/chain_static_pie: WORKLOAD_EXTRA := $(NO_FRAMES) -static-pie
$(B)/workloads/late_library $(B)/workloads/churn: WORKLOAD_EXTRA := $(NO_FRAMES) -DLATE_SO='"$(B)/workloads/late/late_work.so"'
$(B)/workloads/late_library $(B)/workloads/churn: $(B)/workloads/late/late_work.so
$(B)/workloads/late/late_work.so: workloads/cpp/late/late_work.cpp workloads/cpp/burn.hpp $(DEPS_BUILD)
	@mkdir -p $(@D)
	$(call say,CXX,$@)
	$(Q)$(CXX) $(WORKLOAD_FLAGS) $(NO_FRAMES) -Iworkloads/cpp -shared -fPIC $< -o $@
$(addprefix $(B)/workloads/chain_,nofp stripped static_pie): workloads/cpp/chain.cpp $(DEPS_BUILD)
	@mkdir -p $(@D)
	$(call say,CXX,$@)
	$(Q)$(build_workload)
# What distributions ship: no symbols in the program, all of them in a file of their own, found by build ID.
INLINE_ID := f1a9e1ab00000000000000000000000000000003
$(B)/workloads/inline_three_debug: workloads/cpp/inline_three.cpp $(DEPS_BUILD)
	@mkdir -p $(B)/workloads/debug/inline_three_debug/.build-id/$(shell echo $(INLINE_ID) | cut -c1-2)
	$(call say,CXX,$@)
	$(Q)$(build_workload)
	$(Q)$(CROSS)objcopy --only-keep-debug $@ $(B)/workloads/debug/inline_three_debug/.build-id/$(shell echo $(INLINE_ID) | sed 's/^../&\//').debug
	$(Q)$(CROSS)strip $@
$(B)/workloads/inline_three_debug: WORKLOAD_EXTRA := $(NO_FRAMES) -O3 -Wl,--build-id=0x$(INLINE_ID)
$(B)/workloads/inline_three_stripped: WORKLOAD_EXTRA := $(NO_FRAMES) -O3 -s
$(B)/workloads/inline_three_stripped: workloads/cpp/inline_three.cpp $(DEPS_BUILD)
	@mkdir -p $(@D)
	$(call say,CXX,$@)
	$(Q)$(build_workload)
$(B)/workloads/tail_noreturn_nofp: workloads/cpp/tail_noreturn.cpp $(DEPS_BUILD)
	@mkdir -p $(@D)
	$(call say,CXX,$@)
	$(Q)$(build_workload)

# The same bytes from the same Go, which asks no network and takes no other version of itself.
GO_ENV = GO111MODULE=on GOTOOLCHAIN=local GOPROXY=off GOWORK=off GOFLAGS='-trimpath -buildvcs=false' GOCACHE=$(CURDIR)/$(B)/go-cache \
	 CGO_ENABLED=$(if $(filter %cgo_split,$@),1 CC=$(CC),0)
go_build = cd workloads/go && $(GO_ENV) go build $(GO_EXTRA) -o $(CURDIR)/$@ ./$(1)
$(B)/workloads/go_cpu_split_stripped: GO_EXTRA := -ldflags '-s -w'
$(B)/workloads/go_cpu_split_pie: GO_EXTRA := -buildmode=pie
$(GO_WORKLOADS): $(wildcard workloads/go/go.mod workloads/go/truth/*) | $(B)/deps/$(if $(shell command -v go),build,lab)
define go_workload
$(2): $$(wildcard workloads/go/$(1)/*)
	@mkdir -p $$(@D)
	$$(call say,GO,$$@)
	$$(Q)$$(call go_build,$(1))
endef
$(foreach n,$(GO_NAMES),$(eval $(call go_workload,$(n),$(B)/workloads/go_$(n))))
$(eval $(call go_workload,cpu_split,$(addprefix $(B)/workloads/go_cpu_split_,stripped pie)))

##
## --- tests -----------------------------------------------------------------------------------------

.PHONY: check check-unit check-fuzz check-e2e
check: ## set-up, build, unit tests, corpus replay under ASan+UBSan, lint, end-to-end on this kernel
	@tests/check.sh $(B)
check-unit: $(B)/obj/bench/unwind.bpf.o $(UNIT_LAYERS:%=$(B)/tests/unit-%) $(UNIT_LAYERS:%=$(B)/san/tests/unit-%)
check-fuzz: $(FUZZERS:tests/fuzz/%.c=$(B)/san/tests/%)

# What a layer's tests link: its own objects and those below it.
LINK_base  := $(BASE_SRC)
LINK_prof  := $(PROF_SRC) $(BASE_SRC)
LINK_agent := $(AGENT_SRC) agent/fault_none.c $(PROF_SRC) $(BASE_SRC)
LINK_backend := $(BACKEND_SRC) $(PROF_SRC) $(BASE_SRC)
LINK_lab   := $(LAB_SRC) $(PROF_SRC) $(BASE_SRC)
LIBS_base  := $(LIBS_BASE)
LIBS_prof  := $(LIBS_PROF)
LIBS_agent := $(LIBS_AGENT)
LIBS_backend := $(LIBS_BACKEND)
LIBS_lab   := $(LIBS_LAB)

define unit_layer
$(B)/tests/unit-$(1): $$(call obj,$$(call srcs,tests/unit/$(1)) $$(LINK_$(1)))
	@mkdir -p $$(@D)
	$$(call say,LD,$$@)
	$$(Q)$$(CC) $$(ALL_CFLAGS) $$^ -o $$@ -lcriterion $$(LIBS_$(1))
$(B)/san/tests/unit-$(1): $$(call san,$$(call srcs,tests/unit/$(1)) $$(LINK_$(1)))
	@mkdir -p $$(@D)
	$$(call say,LD,$$@)
	$$(Q)$$(CC) $$(ALL_CFLAGS) $$(SANFLAGS) $$^ -o $$@ -lcriterion $$(LIBS_$(1))
endef
$(foreach l,$(UNIT_LAYERS),$(eval $(call unit_layer,$(l))))
$(B)/obj/tests/unit/%.o $(B)/san/tests/unit/%.o: | $(B)/deps/check $(SKELS)

# Targets of tests/e2e/unwind_differential.sh and the program that watches them.
$(B)/tests/unwind_differential: $(call obj,$(sort $(wildcard tests/e2e/unwind_differential*.c)) $(LINK_agent))
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $^ -o $@ $(LIBS_agent)
$(B)/tests/unwind_differential_cxx: tests/e2e/unwind_differential_cxx.cpp $(DEPS_BUILD)
	@mkdir -p $(@D)
	$(Q)$(CXX) -std=gnu++17 -O2 -Wall -Wextra -Werror $< -o $@
$(B)/tests/unwind_differential_go: tests/e2e/unwind_differential_go.go $(DEPS_BUILD)
	@mkdir -p $(@D)
	$(Q)GO111MODULE=off GOFLAGS= CGO_ENABLED=0 go build -o $@ $<

# A fuzz target is LLVMFuzzerTestOneInput; replay_main.c runs it over the corpus without libFuzzer.
# Its first line says which layer it links: /* links: prof */
fuzz_layer = $(shell sed -n '1s/.*links: *\([a-z]*\).*/\1/p' $(1))
define fuzz_target
$(B)/san/tests/$(notdir $(basename $(1))): $$(call san,$(1) tests/fuzz/replay_main.c $$(LINK_$(2)))
	@mkdir -p $$(@D)
	$$(call say,LD,$$@)
	$$(Q)$$(CC) $$(ALL_CFLAGS) $$(SANFLAGS) $$^ -o $$@ $$(LIBS_$(2))
$(B)/fuzz/$(notdir $(basename $(1))): $(1) $$(LINK_$(2)) | $$(SKELS)
	@mkdir -p $$(@D)
	$$(call say,FUZZ,$$@)
	$$(Q)$$(CLANG) $$(CPPFLAGS) -std=gnu17 -g -O1 -fsanitize=fuzzer,address,undefined $(1) $$(LINK_$(2)) -o $$@ $$(LIBS_$(2))
endef
$(foreach f,$(FUZZERS),$(eval $(call fuzz_target,$(f),$(call fuzz_layer,$(f)))))

.PHONY: fuzz
FUZZ_SECONDS ?= 60
fuzz: $(FUZZERS:tests/fuzz/%.c=$(B)/fuzz/%) ## run every fuzz target for FUZZ_SECONDS (needs libclang-rt-dev)
	@for f in $^; do n=$$(basename $$f _fuzz); mkdir -p $(B)/fuzz/corpus-$$n; echo "== $$n"; \
	  $$f -max_total_time=$(FUZZ_SECONDS) -print_final_stats=0 -verbosity=0 $(B)/fuzz/corpus-$$n tests/fuzz/corpus/$$n || exit 1; done

# In a tree of its own: the one TSan cannot share with ASan.
.PHONY: tsan tsan-run
TSAN_SECONDS ?= 60
tsan: ## the backend and its store under ThreadSanitizer, TSAN_SECONDS each
	@$(MAKE) --no-print-directory SAN=thread tsan-run
$(B)/tests/tsan-crowd: $(call obj,tests/tsan/crowd.c $(LINK_backend))
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $^ -o $@ $(LIBS_backend)
tsan-run: $(B)/tests/tsan-crowd $(B)/flame-backend
	@tests/tsan/run.sh $(B) $(TSAN_SECONDS)

.PHONY: lint format
TIDY_SRC := $(BASE_SRC) $(PROF_SRC) $(AGENT_SRC) $(BACKEND_SRC) $(LAB_SRC) $(GUEST_SRC) agent/main.c agent/fault_seeded.c \
	    lab/main.c backend/main.c backend/fault_seeded.c
lint: $(B)/deps/check $(TIDY_SRC:%.c=$(B)/lint/%.ok) ## format, layers, sizes, cppcheck, clang-tidy
	@tools/lint.sh $(B)
# The object stands for the file and all its headers, so only what changed is read again.
$(B)/lint/%.ok: $(B)/obj/%.o .clang-tidy | $(B)/deps/check
	@mkdir -p $(@D)
	@printf '  %-9s %s\n' TIDY $*.c; clang-tidy --quiet $*.c -- -std=gnu17 $(CPPFLAGS) 2>$@.log && touch $@ || { cat $@.log; exit 1; }
format: ## rewrite sources the way clang-format decides
	@tools/lint.sh --fix-format

##
## --- lab and bench ---------------------------------------------------------------------------------

LAB_DEPS := $(B)/deps/build $(B)/deps/lab
LAB_BINS := $(PROGRAMS) $(WORKLOADS) $(GO_WORKLOADS)

.PHONY: lab lab-full lab-arm64 image image-refresh bench
# What scenarios on aarch64 need. Without compilers or packages they are skipped, and say so; code that does not
# compile is an error.
lab-arm64: | $(LAB_DEPS)
	@if tools/deps.sh arm64 && vm-images/sysroot.sh && vm-images/build-arm64.sh; then \
	    $(MAKE) --no-print-directory ARCH=arm64 all; \
	else \
	    rm -f $(B)/arm64/flame-agent; echo "lab: scenarios on aarch64 are skipped, see above" >&2; \
	fi
lab: $(LAB_DEPS) $(LAB_BINS) lab-arm64 ## boot VMs, run the smoke scenarios, judge, write build/lab/
	@$(B)/flamelab run --suite smoke
lab-full: $(LAB_DEPS) $(LAB_BINS) lab-arm64 ## everything: all scenarios, selftest, perturb 100
	@$(B)/flamelab run --suite full
image: $(LAB_DEPS) ## build or fetch from the cache the VM image
	@vm-images/build.sh
image-refresh: $(LAB_DEPS) ## move the image's package lock to what the archive serves now
	@vm-images/build.sh --refresh-lock
bench: $(B)/deps/bench $(LAB_DEPS) $(LAB_BINS) ## timings and plots into build/bench/
	@bench/record.sh $(B)
	@bench/ingest.sh $(B)
	@bench/unwind_tables.sh $(B)
	@bench/names.sh $(B)
	@bench/query.sh $(B)
	@bench/fleet.sh $(B)
	@bench/unwind.sh $(B)
	@bench/sideband.sh $(B)

##
## --- the rest --------------------------------------------------------------------------------------

.PHONY: clean help
clean: ## remove build/ (the image cache stays)
	rm -rf build
help: ## this list
	@awk -F'## ' '/^[a-z][a-z-]*:.*## /{split($$1, t, ":"); printf "  make %-14s %s\n", t[1], $$2}' Makefile

-include $(shell find $(B) -name '*.d' 2>/dev/null)
