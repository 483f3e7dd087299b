# Sourced by quickstart: `quickstart check`, every test of the project. Each part runs even if an earlier one
# failed, and leaves its counts in build/check; the last line printed sums them.
# shellcheck shell=bash

check_dir=$build_dir/check
part_child=

# run_part NAME TITLE FUNCTION...: in a subshell, because what fails in there exits.
run_part() {
  local name=$1 title=$2 status=0 begin=$SECONDS counts
  shift 2
  rm -f "$check_dir/$name"
  begin_step "$title"
  (
    inside_part=1
    trap end_running_child EXIT
    trap 'exit 143' TERM
    "$@"
  ) &
  part_child=$!
  wait "$part_child" || status=$?
  part_child=
  # A part that ended without counting, or badly after counting no failure, is a failure.
  if [[ ! -s $check_dir/$name ]]; then
    if ((status == 0)); then counts='1 0 0'; else counts='0 1 0'; fi
    echo "$counts" >"$check_dir/$name"
  elif ((status != 0)) && read -r p f s <"$check_dir/$name" && ((f == 0)); then
    echo "$p 1 $s" >"$check_dir/$name"
  fi
  printf '%s %d %s\n' "$name" $((SECONDS - begin)) "$(<"$check_dir/$name")" >>"$check_dir/parts"
  read -r p f s <"$check_dir/$name"
  end_step "$p passed, $f failed, $s skipped"
}

end_part() {
  if [[ -n $part_child ]]; then
    kill -TERM "$part_child" 2>/dev/null || true
    wait "$part_child" 2>/dev/null || true
  fi
  end_running_child
}

# count NAME PASSED FAILED SKIPPED: what the part NAME came to.
count() {
  echo "$2 $3 $4" >"$check_dir/$1"
}

show_log_tail() {
  note "log: $log_dir/$1.log; its last lines:"
  tail -n "${2:-40}" "$log_dir/$1.log" | sed 's/^/        /'
}

# A script whose last line is "N passed, N failed[, N skipped]".
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
  count "$name" "$passed" "$failed" "$skipped"
}

# Adds up what `make check` left in DIRECTORY: GoogleTest's own counts where a program is one, else the program.
count_make_check() {
  local directory=$1 result log passed=0 failed=0 skipped=0 p f s
  while IFS= read -r result; do
    log=${result%.trs}.log
    p=$(sed -nE 's/^\[  PASSED  \] ([0-9]+) tests?\.$/\1/p' "$log" | tail -n 1)
    f=$(sed -nE 's/^\[  FAILED  \] ([0-9]+) tests?, listed below:$/\1/p' "$log" | tail -n 1)
    s=$(sed -nE 's/^\[  SKIPPED \] ([0-9]+) tests?, listed below:$/\1/p' "$log" | tail -n 1)
    case $(sed -n 's/^:test-result: //p' "$result" | tail -n 1) in
      PASS*) passed=$((passed + ${p:-1})) skipped=$((skipped + ${s:-0})) ;;
      SKIP*) skipped=$((skipped + 1)) ;;
      *) passed=$((passed + ${p:-0})) failed=$((failed + ${f:-1})) skipped=$((skipped + ${s:-0})) ;;
    esac
  done < <(find "$directory" -name '*.trs' | LC_ALL=C sort)
  echo "$passed $failed $skipped"
}

# make_check NAME DIRECTORY COMMAND...: builds and runs `make check`; COMMAND is put before make.
make_check() {
  local name=$1 directory=$2 status=0 passed failed skipped
  shift 2
  find "$directory" -name '*.trs' -delete
  log_command "$name" "$@" make -C "$directory" -j"$jobs" check || status=$?
  read -r passed failed skipped < <(count_make_check "$directory")
  ((status == 0 || failed > 0)) || failed=1
  if ((failed > 0)); then show_log_tail "$name" 60; fi
  count "$name" "$passed" "$failed" "$skipped"
}

check_packages_there() {
  install_packages "${build_packages[@]}" "${check_packages[@]}"
}

check_unit() {
  make_check unit "$library_build_dir" env
}

check_sanitizer() {
  local name=$1 kind=$2
  generate_configure
  # -O1: with -O2 the instrumented tests take twice as long to compile and find nothing more.
  configure_library "$build_dir/$name" "$name" --enable-sanitizers="$kind" --enable-werror --disable-shared CXXFLAGS='-O1 -g'
  # setarch -R: ThreadSanitizer's shadow does not fit the address randomization of newer kernels.
  make_check "$name" "$build_dir/$name" setarch "$(uname -m)" -R env \
    ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1 UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 \
    TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1
}

check_dist() {
  local begin=$SECONDS
  # The tests ran in three builds already: here it is about what the tarball holds, and about install.
  must dist 'is a new file missing from a Makefile.mk?' make -C "$library_build_dir" -j"$jobs" distcheck \
    DISTCHECK_CONFIGURE_FLAGS="CXXFLAGS=-O0" XFAIL_TESTS= check_PROGRAMS= TESTS="test/include_rules"
  note "distcheck: $((SECONDS - begin)) s"
}

check_mpich_build() {
  get_mpich_source
  graft_glue
  configure_mpich
  build_mpich
  build_benchmark
  local device
  device=$(installed_device)
  [[ $device == ch3:offload ]] || stop "mpichversion says the device is '$device', not ch3:offload"
}

needs_mpich() {
  if [[ $(<"$check_dir/mpich") != '1 0 0' ]]; then
    note 'not run: there is no MPICH to test'
    count "$1" 0 1 0
    return 1
  fi
}

check_over_mpich() {
  local name=$1
  shift
  needs_mpich "$name" || return 0
  run_counted "$name" "$@"
}

print_summary() {
  local name seconds p f s
  passed=0 failed=0 skipped=0
  printf '\n%-12s %8s %8s %8s %8s\n' part passed failed skipped seconds
  while read -r name seconds p f s; do
    printf '%-12s %8d %8d %8d %8d\n' "$name" "$p" "$f" "$s" "$seconds"
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
  done <"$check_dir/parts"
  printf '%-12s %8d %8d %8d %8d\n\n' 'in all' "$passed" "$failed" "$skipped" $((SECONDS - console_start))
  printf '%d passed, %d failed\n' "$passed" "$failed"
}

run_all_checks() {
  local passed failed skipped p f s
  rm -rf "$check_dir"
  mkdir -p "$check_dir"
  trap end_part EXIT
  step_count=18
  run_part packages 'packages' check_packages_there
  run_part library 'libch3offload' build_library
  run_part unit 'make check' check_unit
  run_part asan 'AddressSanitizer and UndefinedBehaviorSanitizer' check_sanitizer asan address
  run_part tsan 'ThreadSanitizer' check_sanitizer tsan thread
  run_part dist 'make distcheck' check_dist
  run_part mpich 'MPICH over ch3:offload' check_mpich_build
  run_part bench 'benchmarks with data check' check_over_mpich bench \
    "$root/test/bench/run" --prefix "$prefix" --bench "$build_dir/bench/ch3_offload_bench"
  run_part imb 'IMB runner' check_over_mpich imb "$root/test/imb/run" --prefix "$prefix"
  run_part bad-input 'bad input' check_over_mpich bad-input \
    "$root/test/bad-input/run" --prefix "$prefix" --mpich-src "$mpich_source_dir"
  run_part waiting 'threads that wait' check_over_mpich waiting "$root/test/waiting/run" --prefix "$prefix"
  run_part over-mpi 'programs over MPI' check_over_mpich over-mpi "$root/test/over-mpi/run" --prefix "$prefix"
  run_part windows 'shared windows' check_over_mpich windows \
    "$root/test/shared-windows/run" --prefix "$prefix"
  run_part packets 'packets that cannot be taken' check_over_mpich packets \
    "$root/test/packet-errors/run" --prefix "$prefix"
  run_part faults 'faults' check_over_mpich faults "$root/test/faults/run" --prefix "$prefix"
  run_part netpipe 'NetPIPE' check_over_mpich netpipe "$root/test/netpipe/run" --prefix "$prefix"
  run_part mpich-tests "MPICH's own tests" check_over_mpich mpich-tests \
    "$root/test/mpich/run-mpich-tests" --prefix "$prefix" --mpich-src "$mpich_source_dir" \
    --build-dir "$build_dir/mpich-tests" --minutes 25
  # Last: some of MPICH's tests run there, too.
  run_part lab 'RDMA lab: emulated guests with software RoCE' check_over_mpich lab \
    "$root/test/lab/run" --prefix "$prefix" --build "$library_build_dir" --tests "$build_dir/mpich-tests"
  print_summary
  ((failed == 0))
}
