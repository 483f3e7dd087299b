# Sourced by quickstart: numbered steps with elapsed time, commands whose output goes to a log, and failures
# that name their log and the remedy. Uses: log_dir.
# shellcheck shell=bash

step_number=0
step_count=0
step_title=
step_start=$SECONDS
inside_part=0
console_start=$SECONDS
running_child=

# A step: "[3/8] title". Inside a part of `quickstart check`, a step is one of the part's and has no number.
begin_step() {
  step_title=$1
  step_start=$SECONDS
  if ((inside_part)); then
    printf '      - %s\n' "$step_title"
  else
    step_number=$((step_number + 1))
    printf '[%d/%d] %s\n' "$step_number" "$step_count" "$step_title"
  fi
}

end_step() {
  printf '      %s (%d s; %d s in all)\n' "${1:-done}" $((SECONDS - step_start)) $((SECONDS - console_start))
}

note() {
  printf '      %s\n' "$*"
}

# stop MESSAGE REMEDY...: ends with a message; nothing was logged.
stop() {
  printf '\nquickstart: %s\n' "$1" >&2
  shift
  (($# == 0)) || printf '  %s\n' "$@" >&2
  exit 1
}

# Ends the running command and all that it started, by process group.
end_running_child() {
  if [[ -n $running_child ]]; then
    kill -TERM -- "-$running_child" 2>/dev/null || true
    wait "$running_child" 2>/dev/null || true
    running_child=
  fi
}

show_live_line() {
  local log=$1 begin=$2 text last
  last=$(tail -c 400 "$log" 2>/dev/null | tr '\r\t' '\n ' | grep -av '^[[:space:]]*$' | tail -n 1) || last=
  text=$(printf '      %d s  %s' $((SECONDS - begin)) "$last")
  printf '\r\033[K%.*s' "${COLUMNS:-100}" "$text"
}

# log_command NAME COMMAND...: runs it in a process group of its own, output to log_dir/NAME.log.
# A live counter on a terminal, else a line each half minute. Returns the command's status.
log_command() {
  local name=$1 log=$log_dir/$1.log begin=$SECONDS status=0 next_line=30
  shift
  if [[ -t 1 ]]; then COLUMNS=$(tput cols 2>/dev/null || echo 100); fi
  printf '$ %s\n' "$*" >"$log"
  set -m
  "$@" >>"$log" 2>&1 </dev/null &
  running_child=$!
  set +m
  while kill -0 "$running_child" 2>/dev/null; do
    if [[ -t 1 ]]; then
      show_live_line "$log" "$begin"
    elif ((SECONDS - begin >= next_line)); then
      note "$name: $((SECONDS - begin)) s"
      next_line=$((next_line + 30))
    fi
    sleep 0.3
  done
  [[ ! -t 1 ]] || printf '\r\033[K'
  wait "$running_child" || status=$?
  running_child=
  return "$status"
}

# must NAME REMEDY COMMAND...: as log_command, but a failure ends quickstart.
must() {
  local name=$1 remedy=$2 status=0
  shift 2
  log_command "$name" "$@" || status=$?
  ((status == 0)) && return
  {
    printf '\nquickstart: step %d (%s) failed: %s ended with status %d\n' \
      "$step_number" "$step_title" "$name" "$status"
    printf '  log:    %s\n' "$log_dir/$name.log"
    printf '  remedy: %s\n' "$remedy"
    printf '  its last lines:\n'
    tail -n 20 "$log_dir/$name.log" | sed 's/^/    /'
  } >&2
  exit 1
}
