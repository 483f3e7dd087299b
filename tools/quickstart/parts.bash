# Sourced by quickstart: runs the parts of `quickstart check`, two at a time where they allow it, and sums up.
# In build/check a part leaves its counts (NAME.count), the names of skipped and of failed tests
# (NAME.skipped, NAME.failed) and its output (NAME.out).
# Uses: build_dir, jobs; log_command and its kin.
# shellcheck shell=bash

check_dir=$build_dir/check

part_names=()                # In the order in which they start.
declare -A part_when=()
declare -A part_how=()
declare -A part_needs=()
declare -A part_title=()
declare -A part_command=()
declare -A part_state=()     # Empty, wanted, running or done.
declare -A part_process=()   # Of a running part: its subshell.
declare -A part_output=()    # Of a running part: the descriptor from which its output is read.
declare -A part_partial=()   # The last line of the output, if it has no end yet.
declare -A part_begin=()     # SECONDS at its start.

# part NAME WHEN HOW NEEDS TITLE COMMAND...: declares a part.
#   WHEN   the shortest check that runs it: fast, check or all
#   HOW    beside: another such part may run at the same time; alone: it measures or waits, so nothing else runs
#   NEEDS  "-", or names with commas between them: these parts must pass first. "NAME?": if this check runs
#          NAME, it must end first
#   COMMAND counts its tests with count(); a command that does not is one test.
part() {
  local name=$1
  part_names+=("$name")
  part_when[$name]=$2
  part_how[$name]=$3
  part_needs[$name]=${4//,/ }
  [[ $4 != - ]] || part_needs[$name]=
  part_title[$name]=$5
  shift 5
  part_command[$name]=${*@Q}
}

# want_part NAME: marks the part, and those that it needs, to be run.
want_part() {
  local needed
  [[ -z ${part_state[$1]:-} ]] || return 0
  part_state[$1]=wanted
  for needed in ${part_needs[$1]}; do
    [[ $needed == *\? ]] || want_part "$needed"
  done
}

# want_parts SCOPE [NAMES]: SCOPE is fast, check or all. With NAMES (commas between them), those parts only.
want_parts() {
  local scope=$1 names=${2:-} name
  if [[ -n $names ]]; then
    for name in ${names//,/ }; do
      [[ -n ${part_title[$name]:-} ]] || bad_option "--only: there is no part '$name'; there are: ${part_names[*]}"
      want_part "$name"
    done
    return
  fi
  for name in "${part_names[@]}"; do
    case $scope:${part_when[$name]} in
      fast:fast | check:fast | check:check | all:*) want_part "$name" ;;
    esac
  done
}

# count NAME PASSED FAILED SKIPPED: the counts of the part NAME.
count() {
  echo "$2 $3 $4" >"$check_dir/$1.count"
}

# skipped NAME: reads the names of skipped tests of the part NAME, one a line.
skipped() {
  cat >>"$check_dir/$1.skipped"
}

# failed NAME: the same for failed tests.
failed() {
  cat >>"$check_dir/$1.failed"
}

# Runs in a subshell of its own, because a command that fails ends it.
run_part() {
  local name=$1
  # shellcheck disable=SC2034  # begin_step looks at it
  inside_part=1
  trap 'end_running_child; times >"$check_dir/$name.times"' EXIT
  trap 'exit 143' TERM
  eval "${part_command[$name]}"
}

start_part() {
  local name=$1 needed output=$check_dir/$1.out fd
  part_begin[$name]=$SECONDS
  if ((minutes_to_begin > 0 && SECONDS - console_start >= 60 * minutes_to_begin)); then
    say_of "$name" "not run: $minutes_to_begin minutes have passed"
    echo "all of it: $minutes_to_begin minutes had passed (--minutes)" | skipped "$name"
    count "$name" 0 0 1
    end_part "$name" 0
    return
  fi
  for needed in ${part_needs[$name]}; do
    if [[ $needed != *\? && $(cut -d' ' -f2 "$check_dir/$needed.count") != 0 ]]; then
      say_of "$name" "not run: $needed failed"
      count "$name" 0 1 0
      end_part "$name" 0
      return
    fi
  done
  say_of "$name" "${part_title[$name]}"
  : >"$output"
  run_part "$name" >"$output" 2>&1 </dev/null &
  part_process[$name]=$!
  part_state[$name]=running
  exec {fd}<"$output"
  part_output[$name]=$fd
}

say_of() {
  [[ ! -t 1 ]] || printf '\r\033[K'
  printf '%-12s %s\n' "$1" "$2"
}

# Prints the lines that the part has printed since the last call.
show_output() {
  local name=$1 line
  while IFS= read -r line <&"${part_output[$name]}"; do
    say_of "$name" "${part_partial[$name]:-}$line"
    part_partial[$name]=
  done
  part_partial[$name]=${part_partial[$name]:-}$line
}

# A part that ended without counting, or badly after counting no failure, is a failure.
end_part() {
  local name=$1 status=$2 p f s processor=0
  if [[ ! -s $check_dir/$name.count ]]; then
    if ((status == 0)); then count "$name" 1 0 0; else count "$name" 0 1 0; fi
  fi
  read -r p f s <"$check_dir/$name.count"
  ((status == 0 || f > 0)) || f=1
  count "$name" "$p" "$f" "$s"
  [[ ! -s $check_dir/$name.times ]] || processor=$(awk 'NR == 2 {
    for (i = 1; i <= 2; i++) { split($i, t, /[ms]/); sum += 60 * t[1] + t[2] } printf "%d", sum }' "$check_dir/$name.times")
  echo "$name $p $f $s $((SECONDS - part_begin[$name])) $processor" >>"$check_dir/parts"
  part_state[$name]=done
  say_of "$name" "$p passed, $f failed, $s skipped ($((SECONDS - part_begin[$name])) s; $((SECONDS - console_start)) s in all)"
}

reap_part() {
  local name=$1 status=0 fd=${part_output[$1]}
  wait "${part_process[$name]}" || status=$?
  show_output "$name"
  [[ -z ${part_partial[$name]} ]] || say_of "$name" "${part_partial[$name]}"
  exec {fd}<&-
  unset "part_process[$name]"
  end_part "$name" "$status"
}

# Ends the running parts. Each of them ends the command that it has started.
end_parts() {
  local process
  for process in "${part_process[@]}"; do kill -TERM "$process" 2>/dev/null || true; done
  for process in "${part_process[@]}"; do wait "$process" 2>/dev/null || true; done
}

# Whether the part may start now.
may_start() {
  local name=$1 needed
  ((${#part_process[@]} == 0)) ||
    [[ ${#part_process[@]} == 1 && ${part_how[$name]} == beside && ${part_how[${!part_process[*]}]} == beside ]] || return 1
  for needed in ${part_needs[$name]}; do
    [[ ${part_state[${needed%\?}]:-} == done || $needed == *\? && -z ${part_state[${needed%\?}]:-} ]] || return 1
  done
}

show_running() {
  local name text=
  for name in "${!part_process[@]}"; do
    text+="$name $((SECONDS - part_begin[$name])) s  $(tail -c 400 "$check_dir/$name.out" | tail -n 1 | tr -s ' ')  "
  done
  printf '\r\033[K%.*s' "$(tput cols 2>/dev/null || echo 100)" "$((SECONDS - console_start)) s: $text"
}

# run_parts [MINUTES]: runs the wanted parts, at most two at a time. Of those that may start, the first in the order
# starts first. What could begin only after so many minutes is skipped; 0: there is no limit.
run_parts() {
  local name ran=1 minutes_to_begin=${1:-0}
  rm -rf "$check_dir"
  mkdir -p "$check_dir"
  trap end_parts EXIT
  while ((ran || ${#part_process[@]} > 0)); do
    ran=0
    for name in "${part_names[@]}"; do
      if [[ ${part_state[$name]:-} == wanted ]] && may_start "$name"; then
        start_part "$name"
        ran=1
      fi
    done
    for name in "${!part_process[@]}"; do
      show_output "$name"
      if ! kill -0 "${part_process[$name]}" 2>/dev/null; then
        reap_part "$name"
        ran=1
      fi
    done
    [[ ! -t 1 || ${#part_process[@]} == 0 ]] || show_running
    ((ran)) || sleep 0.1
  done
  for name in "${part_names[@]}"; do
    [[ ${part_state[$name]:-} == wanted ]] || continue
    say_of "$name" "not run: it waits for a part that does not end (${part_needs[$name]})"
    part_begin[$name]=$SECONDS
    count "$name" 0 1 0
    end_part "$name" 0
  done
  trap - EXIT
}

# Prints where the time went, what was skipped, what failed, and the counts. Fails if a test has failed.
print_summary() {
  local name p f s seconds processor in_all=0 passed=0 failed=0 skipped=0
  printf '\n%-18s %8s %8s %8s %8s %10s\n' part passed failed skipped seconds 'processor'
  while read -r name p f s seconds processor; do
    printf '%-18s %8d %8d %8d %8d %10d\n' "$name" "$p" "$f" "$s" "$seconds" "$processor"
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s)) in_all=$((in_all + processor))
  done <"$check_dir/parts"
  printf '%-18s %8d %8d %8d %8d %10d\n\n' 'in all' "$passed" "$failed" "$skipped" $((SECONDS - console_start)) "$in_all"
  for name in "${part_names[@]}"; do
    [[ ! -s $check_dir/$name.skipped ]] || sed "s/^/skipped  $name: /" "$check_dir/$name.skipped"
  done
  # Last, because it is what the reader of a long log looks for.
  for name in "${part_names[@]}"; do
    [[ ! -s $check_dir/$name.failed ]] || sed "s/^/failed   $name: /" "$check_dir/$name.failed"
  done
  if ((skipped > 0)); then
    printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
  else
    printf '%d passed, %d failed\n' "$passed" "$failed"
  fi
  ((failed == 0))
}
