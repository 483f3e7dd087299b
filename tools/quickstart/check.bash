# Sourced by quickstart: what the parts of `quickstart check` do. declare_parts(), at the end, lists them.
# shellcheck shell=bash

show_log_tail() {
  note "log: $log_dir/$1.log; its last lines:"
  tail -n "${2:-40}" "$log_dir/$1.log" | sed 's/^/        /'
}

# run_counted NAME SCRIPT...: runs a script whose last line is "N passed, N failed[, N skipped]". Its lines
# "skip  TEST: WHY" and "FAIL  TEST" name the skipped and the failed tests.
run_counted() {
  local name=$1 line passed failed skipped status=0
  shift
  log_command "$name" "$@" || status=$?
  line=$(grep -aE '^[0-9]+ passed, [0-9]+ failed(, [0-9]+ skipped)?$' "$log_dir/$name.log" | tail -n 1) || true
  if [[ -z $line ]]; then
    show_log_tail "$name"
    note "$name ended with status $status and did not count its tests"
    count "$name" 0 1 0
    return
  fi
  read -r passed failed skipped _ < <(sed -E 's/ passed, / /; s/ failed(, )?/ /; s/ skipped//; s/$/ 0/' <<<"$line")
  ((failed == 0 && status == 0)) || show_log_tail "$name"
  ((failed > 0 || status == 0)) || failed=1
  sed -n 's/^skip  //p' "$log_dir/$name.log" | skipped "$name"
  sed -n 's/^FAIL  //p' "$log_dir/$name.log" | failed "$name"
  count "$name" "$passed" "$failed" "$skipped"
}

# count_make_check NAME DIRECTORY: prints the sums of what `make check` left in DIRECTORY. A GoogleTest program
# adds its own counts, any other program is one test. Skipped and failed tests are named for the part NAME.
count_make_check() {
  local name=$1 directory=$2 result log passed=0 failed=0 skipped=0 p f s
  while IFS= read -r result; do
    log=${result%.trs}.log
    p=$(sed -nE 's/^\[  PASSED  \] ([0-9]+) tests?\.$/\1/p' "$log" | tail -n 1)
    f=$(sed -nE 's/^\[  FAILED  \] ([0-9]+) tests?, listed below:$/\1/p' "$log" | tail -n 1)
    s=$(sed -nE 's/^\[  SKIPPED \] ([0-9]+) tests?, listed below:$/\1/p' "$log" | tail -n 1)
    sed -nE 's/^\[  SKIPPED \] ([^ ]+)$/\1/p' "$log" | LC_ALL=C sort -u | skipped "$name"
    case $(sed -n 's/^:test-result: //p' "$result" | tail -n 1) in
      PASS*) passed=$((passed + ${p:-1})) skipped=$((skipped + ${s:-0})) ;;
      SKIP*)
        skipped=$((skipped + 1))
        printf '%s: %s\n' "$(basename "$log" .log)" "$(tail -n 2 "$log" | head -n 1)" | skipped "$name"
        ;;
      *)
        passed=$((passed + ${p:-0})) failed=$((failed + ${f:-1})) skipped=$((skipped + ${s:-0}))
        { sed -nE 's/^\[  FAILED  \] ([^ ]+\.[^ ,]+).*/\1/p' "$log" | LC_ALL=C sort -u | grep . ||
          basename "$log" .log; } | failed "$name"
        ;;
    esac
  done < <(find "$directory/test" -name '*.trs' | LC_ALL=C sort)
  echo "$passed $failed $skipped"
}

# show_failed_tests DIRECTORY: the messages and the names of the tests that failed in DIRECTORY.
show_failed_tests() {
  local directory=$1 result log
  while IFS= read -r result; do
    log=${result%.trs}.log
    note "failed: $log"
    if grep -q '^\[  FAILED  \]' "$log"; then
      awk '/: Failure$/ { shown = 1 } shown || /^\[  FAILED  \]/ { print "        " $0 } /^\[/ { shown = 0 }' "$log" |
        head -n 80 || true
    else
      tail -n 40 "$log" | sed 's/^/        /'
    fi
  done < <(grep -lE '^:test-result: (FAIL|ERROR|XPASS)' -r --include='*.trs' "$directory/test" | LC_ALL=C sort)
}

# Most tests are compiled without optimization, because compiling them takes longer than running them. The library
# and the tests that compute much are optimized (check-optimized).
test_flags=(CXXFLAGS='-O0 -g1')

# The builds with clang ask the same of it and of the machine. Each configure of a check takes the answers of those
# before it. The flags are the same, for else a configure refuses them; a part whose compilation takes others gives
# them to make.
clang_options=(CC=clang CXX=clang++ CXXFLAGS='-O1 -g1 -fPIC' --cache-file="$check_dir/clang.cache")

# make_check NAME DIRECTORY COMMAND...: runs COMMAND, some form of `make check`, in DIRECTORY and counts the tests.
make_check() {
  local name=$1 directory=$2 status=0 passed failed skipped
  shift 2
  find "$directory/test" -name '*.trs' -delete
  log_command "$name" env --chdir="$directory" "$@" || status=$?
  read -r passed failed skipped < <(count_make_check "$name" "$directory")
  # A run of no test is a failure, too: a list of tests is empty.
  ((failed > 0 || status == 0 && passed + skipped > 0)) || failed=1
  if ((failed > 0)); then
    show_log_tail "$name" 10
    show_failed_tests "$directory"
  fi
  count "$name" "$passed" "$failed" "$skipped"
}

check_packages_there() {
  install_packages "${build_packages[@]}" "${check_packages[@]}"
  [[ -z ${part_state[clusters]:-} ]] || install_cluster_packages
  install_fortran
}

# If the check runs asan and dist, what is the same there runs there only (test/Makefile.mk).
check_unit() {
  local target=check
  [[ -z ${part_state[asan]:-} || -z ${part_state[dist]:-} || $check_scope == all ]] || target=check-beside-others
  must unit-build 'a compiler error: fix the source' make -C "$library_build_dir" -j"$jobs" check-optimized
  must unit-header 'is GoogleTest complete (libgtest-dev)?' \
    make -C "$library_build_dir" test/googletest.h.gch "${test_flags[@]}"
  make_check unit "$library_build_dir" make -j"$jobs" "$target" "${test_flags[@]}"
}

# check_sanitizer NAME KIND TARGET OPTIMIZED: compiled by clang++, which takes half of the time of g++. OPTIMIZED is what
# is compiled optimized of the tests. With --all TARGET is check, all tests of verbs run, and UBSan looks at the tests'
# own code, too. That doubles the time to compile it. Otherwise the contract is tested in the configurations that differ
# most.
check_sanitizer() {
  local name=$1 kind=$2 target=$3 optimized=$4 directory=$build_dir/$1
  local left_out='Simulation.AThousandEnginesShareOneProcess'
  local quick=-O0 ubsan=-fno-sanitize=undefined
  local -a joined=(--enable-joined-sources)
  # Beside the engine, the library takes longer to optimize than its tests take to run. The tests of threads take
  # longer to run than to compile.
  if [[ $kind == thread ]]; then
    quick=-O1
    left_out='Verbs/*/roomy:Verbs/*/uneven:Verbs/*/on_demand:Verbs/*/slow'
    left_out+=':Tcp/*/uneven:Tcp/*/renumbered:PinDownModel.OneThread:RefusedCopies.*:HostileTargets.*'
  fi
  # The part unit runs all seeds of the simulation.
  if [[ $check_scope == all ]]; then
    target=check optimized=check-optimized left_out= ubsan=
    joined=()
  else
    export CH3_OFFLOAD_SIM_SEEDS=1..10
  fi
  export GTEST_FILTER=-$left_out
  generate_configure
  # -fPIC: the objects go into a shared library, too (test/sanitized-glue).
  configure_library "$directory" "$name" "${clang_options[@]}" --enable-sanitizers="$kind" --enable-werror \
    --disable-shared "${joined[@]}"
  must "$name-build" 'a compiler error: fix the source' env --chdir="$directory" bash -euc '
    libraries=libcore.la
    [[ $0 != address ]] || libraries+=" libportals_calls.la BESIDE_ENGINE_FLAGS=$3"
    make -j"$1" $libraries
    # Of an earlier check: clang refuses the header for other flags, and make does not see when these objects are
    # old (the configuration tracks no dependencies).
    rm -f test/googletest.h.gch
    find test tools -name "*.o" -delete
    make -j"$1" "$2" CXXFLAGS="-O1 -g1 $4"
    [[ $0 != address ]] || make -j"$1" libtools.a CXXFLAGS="$3 -g1"
    make test/googletest.h.gch CXXFLAGS="$3 -g1 $4" AHEAD_FLAGS=-fpch-instantiate-templates' "$kind" "$jobs" "$optimized" "$quick" "$ubsan"
  export ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1 UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
  export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1
  # setarch -R: ThreadSanitizer's shadow does not fit the address randomization of newer kernels.
  make_check "$name" "$directory" setarch "$(uname -m)" -R make -j"$jobs" "$target" \
    CXXFLAGS="$quick -g1 $ubsan"
}

# distcheck builds from the tarball, installs, tries the installed graft, and uninstalls. It leaves out the
# libraries that a user may not have, and builds the static library; the other parts build with them, and the
# shared one. Each source is compiled for itself, where the other parts join them.
check_dist() {
  local tracked missing surplus headers=$build_dir/dist-headers
  rm -rf "$build_dir/dist"
  rm -f "$library_build_dir"/ch3-offload-*.tar.xz   # of another version
  mkdir -p "$headers"
  cp "$root/tools/quickstart/standard.h" "$headers"
  # Never from a cache of compilations: clang refuses it if standard.h has another time than then.
  must dist-headers 'is clang complete?' env CCACHE_DISABLE=1 clang++ -std=c++20 -pthread -fvisibility=hidden \
    -fvisibility-inlines-hidden -O0 -x c++-header -o "$headers/standard.h.gch" "$headers/standard.h"
  # -1: the tarball is made twice, and is for this check alone.
  must dist 'is a new file missing from a Makefile.mk?' env XZ_OPT=-1 make -C "$library_build_dir" -j"$jobs" distcheck \
    DISTCHECK_CONFIGURE_FLAGS="--without-sodium --without-verbs --without-ucm --without-hwloc --without-lua --without-isal --disable-shared \
      --disable-dependency-tracking ${clang_options[*]@Q}" CXXFLAGS=-O0 \
    STANDARD_HEADERS="-include $headers/standard.h" XFAIL_TESTS= \
    KEEP_INSTALL="$build_dir/dist" check_LIBRARIES= check_PROGRAMS=test/absent_tests \
    TESTS='test/include_rules test/absent_tests'
  [[ -e $root/.git ]] || return 0
  # The sources that were not compiled must be in the tarball, too.
  tracked=$(git -c safe.directory="$root" -C "$root" ls-files) || stop "git cannot list the files of $root" \
    'the message above says why'
  missing=$(comm -23 <(grep -vE '^(\.ci/|\.gitignore$)' <<<"$tracked" | LC_ALL=C sort) \
    <(tar -tf "$library_build_dir"/ch3-offload-*.tar.xz | sed 's,^[^/]*/,,' | LC_ALL=C sort))
  [[ -z $missing ]] || stop 'the tarball lacks files of the tree: list them in a Makefile.mk' "$missing"
  surplus=$(comm -13 <(LC_ALL=C sort <<<"$tracked") <(tar -tf "$library_build_dir"/ch3-offload-*.tar.xz |
    sed 's,^[^/]*/,,' | grep -vE '^$|/$|^(aclocal\.m4|confdb/.*|configure|Makefile\.in)$' | LC_ALL=C sort))
  [[ -z $surplus ]] || stop 'the tarball has files that git does not know (dist-hook in Makefile.am)' "$surplus"
}

# Grafts with what distcheck has installed, if that part ran.
check_mpich() {
  local graft_program=
  [[ ${part_state[dist]:-} != done || ! -x $build_dir/dist/bin/ch3-offload-graft ]] ||
    graft_program=$build_dir/dist/bin/ch3-offload-graft
  get_mpich_source
  graft_glue
  configure_mpich
  build_mpich
  local device
  device=$(installed_device)
  [[ $device == ch3:offload ]] || stop "mpichversion says the device is '$device', not ch3:offload"
}

# script NAME OPTION...: test/NAME/run over the installed MPICH.
script() {
  local name=$1
  shift
  run_counted "$name" "$root/test/$name/run" --prefix "$prefix" "$@"
}

run_mpich_tests=("$root/test/mpich/run-mpich-tests" --mpich-src "$mpich_source_dir" --build-dir "$build_dir/mpich-tests")

mpich_tests_build() {
  must mpich-tests-build 'the log says which step of the build failed' \
    "${run_mpich_tests[@]}" --prefix "$prefix" --build-only
}

mpich_tests() {
  run_counted mpich-tests "${run_mpich_tests[@]}" --prefix "$prefix" --parallel 2 --minutes 25
}

# mpich_tests_with NAME DRIVER: those of the tests that give a network processor most to do.
mpich_tests_with() {
  local processors
  processors=$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)
  # On processors that were chosen, no thread says that it shares them: to these tests, any output is a failure.
  MPIR_CVAR_CH3_OFFLOAD_NIC=$2 MPIR_CVAR_CH3_OFFLOAD_NIC_CORES=$processors \
    run_counted "$1" "${run_mpich_tests[@]}" --prefix "$prefix" --parallel 2 --minutes 10 \
    --dirs pt2pt,rma,threads/pt2pt,threads/comm --without "$root/test/mpich/host-tests"
}

# The collective operations that block, as the nonblocking ones whose schedules a network processor carries out.
check_mpich_nb() {
  local nic operation processors
  processors=$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)
  for nic in host thread process; do
    local -a settings=("MPIR_CVAR_CH3_OFFLOAD_NIC=$nic" "MPIR_CVAR_CH3_OFFLOAD_NIC_CORES=$processors")
    for operation in BARRIER BCAST GATHER GATHERV SCATTER SCATTERV ALLGATHER ALLGATHERV ALLTOALL ALLTOALLV ALLTOALLW \
      REDUCE ALLREDUCE REDUCE_SCATTER REDUCE_SCATTER_BLOCK SCAN EXSCAN; do
      settings+=("MPIR_CVAR_${operation}_INTRA_ALGORITHM=nb")
    done
    run_counted "mpich-nb-$nic" env "${settings[@]}" "${run_mpich_tests[@]}" --prefix "$prefix" --minutes 30 --dirs coll --all
  done
}

check_mpich_tcp() {
  run_counted mpich-tcp "$root/test/tcp/mpich-tests" --prefix "$prefix" --tests "$build_dir/mpich-tests" \
    --mpich-src "$mpich_source_dir"
}

check_sanitized_glue() {
  local long=
  [[ $check_scope != all ]] || long=--long
  script sanitized-glue --mpich-build "$mpich_build_dir" --build "$build_dir/asan" \
    --tests "$build_dir/mpich-tests" --mpich-src "$mpich_source_dir" $long
}

check_lab() {
  local long=
  local -a programs=(test/verbs_lab_tests test/dme/real_memory)
  [[ $check_scope != all ]] || long=--long
  must lab-build 'a compiler error: fix the source' \
    make -C "$library_build_dir" -j"$jobs" "${test_flags[@]}" "${programs[@]}"
  script lab --build "$library_build_dir" --tests "$build_dir/mpich-tests" $long
}

# Packages that are built as a user builds them, in a Debian that has nothing else.
check_debian_packages() {
  install_packages "${packaging_packages[@]}" lintian mmdebstrap
  build_debian_packages
  run_counted debian-packages "$root/test/debian-packages/run" "$packages_dir"
}

# Programs that Debian has built with its MPICH.
check_applications() {
  # shellcheck source=test/applications/programs.bash
  . "$root/test/applications/programs.bash"
  install_packages "${application_packages[@]}"
  script applications
}

# What the README says under "Into an MPICH tree of your own", word by word, from the tarball. The library's prefix holds
# another MPICH, which no program may get. The part mpich has built Fortran; this one leaves it out.
check_own_tree() {
  local work=$build_dir/own-tree tarball
  local mpich_source_dir=$work/mpich-tree library=$work/ch3-offload
  rm -rf "$work"
  mkdir -p "$work/source" "$library/lib"
  tarball=$(echo "$library_build_dir"/ch3-offload-*.tar.xz)
  must own-tree-unpack 'is the disk full?' tar -C "$work/source" --strip-components=1 -xf "$tarball"
  if [[ -n $user_mpich_source ]]; then copy_user_tree; else unpack_debian_source; fi
  cp -a "$prefix"/lib/libmpi*.so* "$library/lib"
  must own-tree-library 'compare with a build in the tree' env --chdir="$work/source" bash -euc \
    './configure --prefix="$1" && make -j"$2" && make install' library "$library" "$jobs"
  must own-tree-graft 'is a file of the glue missing from its Makefile.mk?' "$library/bin/ch3-offload-graft" \
    "$mpich_source_dir"
  must own-tree-mpich 'a compiler error in the glue?' env --chdir="$mpich_source_dir" bash -euc \
    './configure --with-device=ch3:offload --with-ch3-offload="$1" --prefix="$2" "${@:4}"
     make -j"$3" install' \
    mpich "$library" "$work/mpich" "$jobs" --disable-fortran
  run_counted own-tree "$root/test/wrappers/run" --prefix "$work/mpich"
}

# In a build of its own: the check's other tests are not optimized.
check_soak() {
  configure_library "$build_dir/soak" soak --disable-shared
  run_counted soak make -C "$build_dir/soak" -j"$jobs" soak SOAK_PREFIX="$prefix"
}

# Each fuzz target for ten minutes, and forged messages of many seeds.
check_fuzz() {
  must fuzz 'test/fuzz/README.md says what to do with a finding' make -C "$library_build_dir" fuzz FUZZ_SECONDS=600
  must fuzz-messages 'the log names the seed' env CH3_OFFLOAD_FUZZ_SEEDS=100000 \
    "$build_dir/asan/test/engine_tests" --gtest_filter='*Fuzz.*'
}

check_seeded_faults() {
  run_counted seeded-faults "$root/test/seeded-faults/run"
}

# The parts, in the order in which they start; part() in parts.bash explains the columns. To add one, write a
# script test/NAME/run whose last line is "N passed, N failed[, N skipped]" (test/checks.bash counts and prints
# them), and add a line here. A test that takes more than a minute belongs into `all`, or looks at
# CH3_OFFLOAD_CHECK_ALL, which is 1 there. tsan waits for tests-build, so that it runs beside sanitized-glue,
# which leaves a processor idle half of the time.
declare_parts() {
  #    name         when  how    needs       title
  part packages     fast  alone  -           'packages' check_packages_there
  part library      fast  alone  packages    'libch3offload' build_library
  part dist         check beside library     'make distcheck' check_dist
  part mpich        fast  beside library,dist? 'MPICH over ch3:offload' check_mpich
  part unit         fast  beside library     'make check' check_unit
  part asan         check beside library     'AddressSanitizer and UndefinedBehaviorSanitizer' check_sanitizer asan address check-address check-optimized
  part tests-build  check beside mpich       "MPICH's own tests: build" mpich_tests_build
  part tsan         check beside library,tests-build? 'ThreadSanitizer' check_sanitizer tsan thread check-threads test/dme/model_tests
  part sanitized-glue check beside asan,tests-build 'the channel under the sanitizers' check_sanitized_glue
  part wrappers     fast  alone  mpich       'compiler wrappers' script wrappers
  part bench        check alone  mpich       'benchmarks with data check' script bench
  part imb          check alone  mpich       'IMB runner' script imb
  part bad-input    fast  alone  mpich       'bad input' script bad-input --mpich-src "$mpich_source_dir"
  part flood        check alone  mpich       'a flood of small messages' script flood
  part waiting      fast  alone  mpich       'threads that wait' script waiting
  part trace        fast  alone  mpich       "a job's trace" script trace
  part instructions fast  alone  mpich       'instructions of a message' script instructions
  part over-mpi     check alone  mpich       'programs over MPI' script over-mpi
  part shared-windows check alone mpich      'shared windows' script shared-windows
  part worlds       check alone  mpich       'processes of different worlds' script worlds
  part tcp          check alone  mpich       'TCP between two nodes' script tcp
  part check-nodes  check alone  mpich       'checks of nodes' script check-nodes
  part clusters     check alone  mpich       'a cluster of two nodes: ssh, Slurm, a firewall' script clusters
  part portals      check alone  mpich       'programs over libportals' script portals
  part packet-errors check alone mpich       'packets that cannot be taken' script packet-errors
  part faults       check alone  mpich       'faults' script faults
  part netpipe      check alone  mpich       'NetPIPE' script netpipe
  part mpich-tests  check alone  tests-build "MPICH's own tests" mpich_tests
  part mpich-threads check alone tests-build "MPICH's own tests, in threads" mpich_tests_with mpich-threads thread
  part mpich-process check alone tests-build "MPICH's own tests, in a process" mpich_tests_with mpich-process process
  part mpich-nb     all   alone  tests-build "MPICH's own tests of collective operations, all nonblocking" check_mpich_nb
  part mpich-tcp    all   alone  tests-build "MPICH's own tests and NetPIPE between two nodes over TCP" check_mpich_tcp
  part lab          check alone  unit?,tests-build 'RDMA lab: emulated guests with software RoCE' check_lab
  part own-tree     all   alone  dist,mpich  'an MPICH tree of your own, as the README has it' check_own_tree
  part applications all   alone  mpich       "Debian's programs for MPICH" check_applications
  part debian-packages all alone library      'Debian packages' check_debian_packages
  part soak         all   alone  mpich        'soak' check_soak
  part fuzz         all   alone  asan        'fuzzing' check_fuzz
  part aarch64      all   alone  packages    'tests for aarch64, emulated' check_aarch64
  part seeded-faults all  alone  library     'seeded faults' check_seeded_faults
}

run_check() {
  [[ -n $only_parts ]] || want_parts "$check_scope"
  [[ $check_scope != all ]] || export CH3_OFFLOAD_CHECK_ALL=1
  # A machine that is several times slower than ours gives a verdict, too.
  [[ -n $minutes || $check_scope == all || -n $only_parts ]] || minutes=70
  run_parts "$((10#${minutes:-0}))"
  print_summary
}
