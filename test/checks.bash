# Sourced by the tests that are scripts over an installed MPICH: options, counting, and no leftovers.
# The last line printed is "N passed, N failed[, N skipped]"; the exit status is 0 when nothing failed.
# shellcheck shell=bash

export CH3_OFFLOAD_SETTINGS_FILE=   # not those of who runs the tests

passed=0
failed=0
skipped=0
prefix=
# shellcheck disable=SC2034  # for those tests that take them
mpich_source='' mpich_build='' build='' programs='' tests='' long=''

# Sets prefix, mpich_source, mpich_build, build, programs and tests from the options of these names, and long
# (1) from --long.
parse_check_options() {
  while (($# > 0)); do
    case $1 in
      --long) long=1; shift ;;
      --prefix | --mpich-src | --mpich-build | --build | --programs | --tests)
        (($# > 1)) || { echo "${0##*/}: $1 needs a value" >&2; exit 2; }
        case $1 in
          --prefix) prefix=$(realpath "$2") ;;
          --mpich-src) mpich_source=$(realpath "$2") ;;
          --mpich-build) mpich_build=$(realpath "$2") ;;
          --build) build=$(realpath "$2") ;;
          --programs) programs=$(realpath "$2") ;;
          --tests) tests=$(realpath "$2") ;;
        esac
        shift 2
        ;;
      *)
        echo "${0##*/}: unknown option: $1 (takes --prefix, --mpich-src, --mpich-build, --build, --programs," \
          '--tests, --long)' >&2
        exit 2
        ;;
    esac
  done
  [[ -n $prefix && -x $prefix/bin/mpicc && -x $prefix/bin/mpiexec ]] || {
    echo "${0##*/}: --prefix DIR: no MPICH in '$prefix'" >&2
    exit 2
  }
  begin_checks
}

# Makes work_dir, which goes with the script, as its job does.
begin_checks() {
  work_dir=$(mktemp -d "${TMPDIR:-/tmp}/ch3-offload-test.XXXXXX")
  trap end_checks EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
}

pass() {
  passed=$((passed + 1))
  printf 'pass  %s\n' "$1"
}

# fail NAME [WHY [FILE]]: FILE's end is shown.
fail() {
  failed=$((failed + 1))
  printf 'FAIL  %s%s\n' "$1" "${2:+: $2}"
  if [[ -n ${3:-} && -f $3 ]]; then tail -n 40 "$3" | sed 's/^/        /'; fi
}

skip() {
  skipped=$((skipped + 1))
  printf 'skip  %s: %s\n' "$1" "$2"
}

job=
# start_job FILE COMMAND...: in the background, in a process group of its own; output to FILE. Sets job.
start_job() {
  local output=$1
  shift
  : >"$output"
  set -m
  "$@" >>"$output" 2>&1 </dev/null &
  job=$!
  set +m
}

# Called when a job takes too long, before it is ended: whoever knows how prints what may tell why.
diagnose() {
  :
}

# Waits for the job at most SECONDS. Sets job_status (124: it was still running and has been killed).
wait_job() {
  local deadline=$((${EPOCHREALTIME/./} + $1 * 1000000))
  while kill -0 "$job" 2>/dev/null; do
    if ((${EPOCHREALTIME/./} > deadline)); then
      diagnose || true
      end_job
      job_status=124
      return
    fi
    sleep 0.05
  done
  job_status=0
  wait "$job" || job_status=$?
  job=
}

# Ends the job and its ranks: hydra's proxy and the ranks have sessions and groups of their own, so by parentage.
end_job() {
  [[ -n $job ]] || return 0
  local -a family
  mapfile -t family < <(descendants "$job")
  kill -TERM "$job" 2>/dev/null || true
  sleep 0.5
  kill -KILL "$job" "${family[@]}" 2>/dev/null || true
  wait "$job" 2>/dev/null || true
  job=
}

# Process ids of all that PID started, and they in turn.
descendants() {
  local child
  while read -r child; do
    [[ -n $child ]] || continue
    echo "$child"
    descendants "$child"
  done < <(ps -o pid= --ppid "$1" | tr -d ' ')
}

end_checks() {
  trap - EXIT
  end_job
  rm -rf "$work_dir"
}

# Prints the counts; the status is the test's. To have counted nothing is a failure.
finish() {
  ((passed + failed + skipped > 0)) || fail 'any test' 'none was run'
  if ((skipped > 0)); then
    printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
  else
    printf '%d passed, %d failed\n' "$passed" "$failed"
  fi
  ((failed == 0))
}

# make_survivor: work_dir/survivor runs a command whose ranks may die. Hydra 4.0.2 ends all processes of a node where one
# ended by a signal: it sees a shell that ends in good order instead, and that ignores the SIGUSR1 that hydra sends to
# those that live.
make_survivor() {
  printf '%s\n' '#!/bin/sh' "trap '' USR1" '"$@"' 'exit $?' >"$work_dir/survivor"
  chmod +x "$work_dir/survivor"
}

# compile NAME SOURCE...: MPI program into work_dir/NAME.
compile() {
  "$prefix/bin/mpicc" -std=gnu99 -O2 -Wall -o "$work_dir/$1" "${@:2}" >"$work_dir/$1.log" 2>&1 || {
    cat "$work_dir/$1.log"
    fail "$1" 'does not compile'
    finish
    exit 1
  }
}
