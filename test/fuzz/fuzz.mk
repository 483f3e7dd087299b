# The fuzz targets with libFuzzer. `make fuzz` and `make fuzz-corpus` of the top Makefile call this, and say
# what to build of what. GNU make. Everything is compiled anew, with clang, into fuzz/ of the build folder:
#
#   fuzz/TARGET            the program
#   fuzz/corpus/TARGET     what it found worth keeping, on top of the tree's corpus and the target's seeds
#   fuzz/found/TARGET-*    inputs that fail
#   fuzz/TARGET.log
#
# No target starts programs, so there is no folder of them. Given: top_srcdir, targets, common_sources (of
# each target), TARGET_sources, TARGET_libs, common_libs, tools_flags, verbs_flags.

FUZZ_CXX = clang++
FUZZ_CXXFLAGS = -O1 -g
FUZZ_SECONDS = 60
FUZZ_TARGET = $(targets)

flags = -std=c++20 -pthread -fsanitize=address,undefined -fno-sanitize-recover=undefined \
	-fno-omit-frame-pointer -I$(top_srcdir)/src -I$(top_srcdir)/src/engine -I$(top_srcdir)/src/rdma \
	-I$(top_srcdir)/test -I$(top_srcdir)/tools -DCH3_OFFLOAD_BINDIR='"/nonexistent"' \
	$(tools_flags) $(verbs_flags)

unknown = $(filter-out $(targets),$(FUZZ_TARGET))
ifneq ($(unknown),)
$(error There is no fuzz target $(unknown); there are $(targets))
endif

fuzz: $(FUZZ_TARGET:%=fuzz/%) fuzz/seeds
	@status=0; for target in $(FUZZ_TARGET); do \
	  $(top_srcdir)/test/fuzz/run search "$$target" $(FUZZ_SECONDS) $(top_srcdir) || status=1; \
	done; exit $$status

fuzz-corpus: $(FUZZ_TARGET:%=fuzz/%) fuzz/seeds
	@for target in $(FUZZ_TARGET); do $(top_srcdir)/test/fuzz/run keep "$$target" 0 $(top_srcdir) || exit 1; done

# Written each time: they follow the sources.
fuzz/seeds: FORCE
	@rm -rf fuzz/seeds
	@test/fuzz/replay --seeds fuzz/seeds

objects_of = $(patsubst %.cc,fuzz/objects/%.o,$(filter %.cc,$(1)))

define target_rule
fuzz/$(1): $(call objects_of,$(common_sources) $($(1)_sources) test/fuzz/fuzzer_main.cc)
	@echo '  FUZZLD  ' $$@
	@$$(FUZZ_CXX) $$(FUZZ_CXXFLAGS) $$(flags) -fsanitize=fuzzer $$^ $($(1)_libs) $(common_libs) -o $$@
endef
$(foreach target,$(targets),$(eval $(call target_rule,$(target))))

# Coverage counts in what is tested, not in the targets: an input is worth keeping for what the former does.
fuzz/objects/src/%.o fuzz/objects/tools/%.o: coverage = -fsanitize=fuzzer-no-link

fuzz/objects/%.o: $(top_srcdir)/%.cc | fuzz/compiler
	@mkdir -p $(@D)
	@echo '  FUZZCXX ' $*.cc
	@$(FUZZ_CXX) $(FUZZ_CXXFLAGS) $(flags) $(coverage) -MMD -MP -c $< -o $@

# Says what is missing before the first object is compiled.
fuzz/compiler: FORCE
	@mkdir -p fuzz
	@$(top_srcdir)/test/fuzz/run compiler '$(FUZZ_CXX)'

-include $(shell find fuzz/objects -name '*.d' 2>/dev/null)

FORCE:
.PHONY: fuzz fuzz-corpus FORCE
.SECONDARY:
