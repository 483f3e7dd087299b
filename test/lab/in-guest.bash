# Sourced by the scripts that rdma-lab runs in a guest, one-node and two-nodes: what a check is, and what several need.
# Uses: prefix, programs, build, tests, long (from test/checks.bash).
# shellcheck shell=bash

# shellcheck source=test/checks.bash
. "$(dirname "${BASH_SOURCE[0]}")/../checks.bash"
parse_check_options "$@"
PATH=$prefix/bin:$PATH

check_number=0

# Called when a check failed: whoever breaks more than processes says here how it is repaired.
repair() {
  :
}

# What hangs: the state of the devices and connections, and of the processes that MPI started here.
state_of_node() {
  local pid
  local -a processes
  rdma resource show qp | grep -w RC || true
  (cd /sys/class/infiniband && grep -H . ./*/ports/1/state ./*/ports/1/hw_counters/*err && ss -tnio) | grep -v ':0$'
  mapfile -t processes < <(grep -lsz '^PMI_RANK=' /proc/[0-9]*/environ | cut -d/ -f3 | head -n 2)
  for pid in "${processes[@]}"; do
    echo "process $pid: $(tr '\0' ' ' <"/proc/$pid/cmdline") $(cut -d' ' -f3,14,15 "/proc/$pid/stat") $(cat "/proc/$pid/wchan")"
    # Half a minute in a guest.
    ! command -v gdb >/dev/null || gdb -nx -p "$pid" -batch -ex bt </dev/null 2>/dev/null | grep '^#' | head -n 12 || true
  done
}

# A kernel that hangs must not keep the check from its end, so another shell asks.
diagnose() {
  timeout -k 5 100 bash -c "$(declare -f state_of_node); state_of_node" 2>&1
}

# check NAME SECONDS COMMAND...: a command or a function, in a subshell with set -e, must end well within the seconds.
# Status 77 is a skip. Of what it prints, "note: TEXT" is added to its line; all of it stays in $LAB_OUT.
check() {
  start_check "$@"
  finish_check "$1"
}

declare -A check_job=() check_log=() check_begin=() check_seconds=()   # of what was started, by NAME

# start_check NAME SECONDS COMMAND...: a check that runs beside others, until finish_check. Its $work_dir is
# its own.
start_check() {
  local name=$1
  check_number=$((check_number + 1))
  check_log[$name]=$LAB_OUT/${0##*/}-$check_number.log
  check_begin[$name]=${EPOCHREALTIME/./}
  check_seconds[$name]=$2
  : >"$LAB_OUT/checked"
  start_job "${check_log[$name]}" apart "${check_log[$name]}.end" "${@:3}"
  check_job[$name]=$job
}

# apart FILE COMMAND...: FILE gets the time of the end.
apart() {
  # shellcheck disable=SC2064  # the name of now
  trap "echo \"\${EPOCHREALTIME/./}\" >'$1'" EXIT
  work_dir=$(mktemp -d "$work_dir/check.XXXXXX")
  "${@:2}"
}

# finish_check NAME: waits for it, and says how it ended.
finish_check() {
  local name=$1 log=${check_log[$1]} begin=${check_begin[$1]} seconds=${check_seconds[$1]} note took end
  job=${check_job[$name]}
  wait_job $((seconds - (${EPOCHREALTIME/./} - begin) / 1000000)) >>"$log"
  unset "check_job[$name]"
  end=${EPOCHREALTIME/./}
  [[ ! -s $log.end ]] || end=$(<"$log.end")
  # A check that ended by itself, but after its time: nobody waited for it then.
  ((job_status != 0 || end - begin <= seconds * 1000000)) || job_status=124
  took=$(((end - begin) / 100000))
  took="$((took / 10)).$((took % 10)) s"
  note=$(sed -n 's/^note: //p' "$log" | tail -n 1)
  case $job_status in
    0) pass "$name${note:+: $note} ($took)" ;;
    77) skip "$name" "${note:-no reason given} ($took)" ;;
    124) fail "$name" "not done after $seconds s" "$log" ;;
    *) fail "$name" "${note:+$note; }status $job_status ($took)" "$log" ;;
  esac
  ((job_status == 0 || job_status == 77)) || repair
}

waiting_checks=()
processors=$(nproc)

# beside NAME SECONDS COMMAND...: a check that disturbs no other one. As many of them run at once as there are
# processors. One whose time is over is ended. finish_beside must follow before a check that is disturbed.
beside() {
  local name running
  local -a left
  while :; do
    running=0
    left=()
    for name in "${waiting_checks[@]}"; do
      if [[ ! -s ${check_log[$name]}.end ]]; then
        if ((${EPOCHREALTIME/./} - check_begin[$name] > check_seconds[$name] * 1000000)); then
          finish_check "$name"
          continue
        fi
        running=$((running + 1))
      fi
      left+=("$name")
    done
    waiting_checks=("${left[@]}")
    ((running >= processors)) || break
    sleep 0.05
  done
  start_check "$@"
  waiting_checks+=("$1")
}

finish_beside() {
  local name
  for name in "${waiting_checks[@]}"; do finish_check "$name"; done
  waiting_checks=()
}

# all_checks: whether --long or CH3_OFFLOAD_CHECK_ALL=1 was given.
all_checks() {
  [[ -n $long || -n ${CH3_OFFLOAD_CHECK_ALL:-} ]]
}

# long_check NAME SECONDS COMMAND...: a check of the lab's own tools, of code that the library does not contain, or of
# what the unit tests show of the fake device, too. With all_checks() only.
long_check() {
  ! all_checks || check "$@"
}

# The same, as beside() does it.
long_beside() {
  ! all_checks || beside "$@"
}

# expect STATUS COMMAND...: fails unless it ends so.
expect() {
  local expected=$1 status=0
  shift
  "$@" || status=$?
  ((status == expected)) || { echo "note: status $status instead of $expected of: $*"; return 1; }
}

device_is_active() {
  local device=$1 port=/sys/class/infiniband/$1/ports/1
  cat "$port/state" "$port/gids/$(lab-gid "$device")"
  grep -q ': ACTIVE$' "$port/state"
  ibv_devinfo -d "$device" -i 1 >"$work_dir/devinfo"
  cat "$work_dir/devinfo"
  grep -Eq '^[[:space:]]*state:[[:space:]]*PORT_ACTIVE' "$work_dir/devinfo"
  grep -Eq '^[[:space:]]*link_layer:[[:space:]]*Ethernet' "$work_dir/devinfo"
}

# perftest SERVER PROGRAM OPTION...: a program of perftest on rxe0, its server on the node SERVER and its client here.
# What it measures is not looked at: it counts processor cycles, and emulated ones have no frequency.
perftest() {
  local server=$1 program=$2 row
  shift 2
  local -a options=(-d rxe0 -F "$@")
  lab-rsh "$server" "$program -x \$(lab-gid) ${options[*]}" &
  # The client gives up at once where nobody listens.
  lab-rsh "$server" 'for i in {1..200}; do ss -Hltn sport = :18515 | grep -q . && exit; sleep 0.1; done; exit 1'
  "$program" -x "$(lab-gid)" "${options[@]}" "$server" >"$work_dir/client"
  wait $!
  cat "$work_dir/client"
  row=$(awk '$1 ~ /^[0-9]+$/ && NF >= 5' "$work_dir/client" | tail -n 1)
  [[ -n $row ]] || { echo 'note: there is no result'; return 1; }
}

# hello RANKS OPTION...: of mpiexec. All ranks must have met.
hello() {
  local ranks=$1
  shift
  mpiexec -n "$ranks" "$@" "$programs/hello" >"$work_dir/hello"
  cat "$work_dir/hello"
  sed -n 's/^hello.*; /note: /p' "$work_dir/hello"
  grep -q "^hello from $ranks ranks" "$work_dir/hello"
}

# ch3-offload-info names the port, says that it can be used, and what would be chosen. info_names PORT... (best first; all are used)
info_names() {
  local info=$prefix/bin/ch3-offload-info port used
  [[ -x $info ]] || { echo "note: $info is not installed: built without libfmt or CLI11?"; return 1; }
  "$info" >"$work_dir/info"
  cat "$work_dir/info"
  sed -n '/^RDMA ports/,/^$/p' "$work_dir/info" >"$work_dir/ports"
  for port in "$@"; do
    grep -Eq "^  $port:1 +yes +.*10\.9\.[01]\.1" "$work_dir/ports"
  done
  (($(grep -c '^  ' "$work_dir/ports") == $#))
  used=$(printf ' and %s:1' "$@")
  used=${used# and }
  grep -Eq "^  verbs provider +yes +.*$used" "$work_dir/info"
  grep -qx "  between nodes: verbs on $used; TCP to nodes that have no verbs" "$work_dir/info"
  grep -qx "  RDMA port: $used" "$work_dir/info"
  grep -qx '  within a node: shm' "$work_dir/info"
  MPIR_CVAR_CH3_OFFLOAD_FABRIC=verbs "$info" >"$work_dir/info"
  grep -qx "  within a node: verbs on $used" "$work_dir/info"
}

# over_verbs COMMAND...: with all messages over verbs, on the same node too.
over_verbs() {
  MPIR_CVAR_CH3_OFFLOAD_FABRIC=verbs "$@"
}

# portals PROGRAM...: a program over libportals, with the key of all nodes.
portals() {
  CH3_OFFLOAD_KEY_FILE=$programs/portals-key "$@" | tee "$work_dir/portals"
  grep -qx 'data check: 0 errors' "$work_dir/portals"
}

# built PROGRAM CONDITIONAL: below $build. 77 (a skip) only where nobody said --build, or where configure was told to do without
# CONDITIONAL, as Makefile.mk names it.
built() {
  local program=$build/$1 conditional=$2
  [[ -n $build ]] || { echo 'note: no --build'; return 77; }
  if grep -q "^S\[\"${conditional}_TRUE\"\]=\"#\"" "$build/config.status"; then
    echo "note: built without $conditional"
    return 77
  fi
  [[ -x $program ]] || { echo "note: $program is not built"; return 1; }
}

# Suites of build/test/verbs_lab_tests, of which some tests must run and none may be skipped: lab_tests FILTER.
lab_tests() {
  local output=$work_dir/gtest tests_run
  built test/verbs_lab_tests HAVE_VERBS
  "$build/test/verbs_lab_tests" --gtest_brief=1 --gtest_filter="$1" 2>&1 | tee "$output"
  tests_run=$(sed -n 's/^\[==========\] \([0-9]*\) tests\? from .* ran\..*/\1/p' "$output")
  if grep -q '^\[  SKIPPED \]' "$output"; then
    echo "note: some of ${tests_run:-?} tests were skipped"
    return 1
  fi
  ((${tests_run:-0} > 0)) || { echo 'note: no test was run'; return 1; }
  echo "note: $tests_run tests"
}

# mpich_tests SECONDS OPTION...: programs of MPICH's own tests (mpich-programs has the options).
mpich_tests() {
  local seconds=$1 status=0
  shift
  [[ -n $tests ]] || { echo 'note: MPICH'"'"'s tests are not built (test/mpich/run-mpich-tests does)'; return 77; }
  "$(dirname "${BASH_SOURCE[0]}")/mpich-programs" --tests "$tests" --seconds "$seconds" "$@" | tee "$work_dir/mpich" ||
    status=$?
  echo "note: $(tail -n 1 "$work_dir/mpich")$(sed -n 's/^breaks of links: /; breaks of links: /p' "$work_dir/mpich")"
  return "$status"
}

# check_mpich_tests NAME LIST MPIEXEC_OPTION...: those that the file LIST beside this one names; with --long, all of pt2pt and coll
# whose ranks do not need ages to take turns. `how` may be "beside".
check_mpich_tests() {
  local name=$1 list how=${how:-check}
  list=$(dirname "${BASH_SOURCE[0]}")/$2
  shift 2
  if [[ -n $long ]]; then
    "$how" "$name: all" 7200 mpich_tests 7100 --timeout 300 --max-ranks 8 -- "$@"
  else
    "$how" "$name: some" 300 mpich_tests 280 --timeout 90 --select "$list" -- "$@"
  fi
}

# lines_come COUNT SECONDS PATTERN FILE...: waits until so many lines of the files begin with PATTERN. A file need
# not be there yet. The look itself starts no process, which would take the processor from those that are waited for.
lines_come() {
  local count=$1 end=$((SECONDS + $2)) pattern=$3 file line found
  shift 3
  while ((SECONDS < end)); do
    found=0
    for file in "$@"; do
      [[ -f $file ]] || continue
      while read -r line; do [[ $line != "$pattern"* ]] || found=$((found + 1)); done <"$file"
    done
    ((found < count)) || return 0
    sleep 0.1
  done
  return 1
}

# Packets that this node has sent over all of its devices.
# device_counter NAME: of all devices of this node together.
device_counter() {
  cat /sys/class/infiniband/rxe*/ports/1/hw_counters/"$1" | awk '{ sum += $1 } END { print sum }'
}

packets_sent() {
  device_counter sent_pkts
}

# A long message: one announcement, one answer, one write with immediate. counted_rendezvous MPIEXEC_OPTION...
# counted_memory=mpi: between memory of MPI_Alloc_mem.
counted_rendezvous() {
  local before after retries
  retries=$(device_counter completer_retry_err)
  before=$(packets_sent)
  mpiexec -n 2 "$@" "$programs/counted" 1048576 ${counted_memory:-} >"$work_dir/counted"
  after=$(packets_sent)
  cat "$work_dir/counted"
  grep -qx 'sent_rendezvous:1,0' "$work_dir/counted"
  grep -qx 'bulk_written:1,0' "$work_dir/counted"
  ! grep -q 'bulk_bounced' "$work_dir/counted" || return 1
  echo "note: $((after - before)) packets, MPI_Init to MPI_Finalize"
  retries=$(($(device_counter completer_retry_err) - retries))
  # 1 MiB in packets of 4096 bytes, and little else. A guest that had no turn for a while gets some of them again.
  ((retries == 0)) || echo "note: $((after - before)) packets, as the device began $retries times again"
  ((after - before >= 256 && after - before < (256 + 200) * (1 + retries)))
}
