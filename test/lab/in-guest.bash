# Sourced by the scripts that rdma-lab runs in a guest, one-node and two-nodes: what a check is, and what several need.
# Uses: prefix, programs, build (from test/checks.bash).
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

# check NAME SECONDS COMMAND...: a command or a function, in a subshell with set -e, must end well within the seconds.
# Status 77 is a skip. Of what it prints, "note: TEXT" is added to its line; all of it stays in $LAB_OUT.
check() {
  local name=$1 seconds=$2 begin=${EPOCHREALTIME/./} log note took
  shift 2
  check_number=$((check_number + 1))
  log=$LAB_OUT/${0##*/}-$check_number.log
  start_job "$log" "$@"
  wait_job "$seconds"
  took=$(((${EPOCHREALTIME/./} - begin) / 100000))
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
