# Sourced by quickstart and by the tests that are scripts: a wait that starts no process. `sleep` takes 1 to 2 ms of a
# processor, and in an emulated guest of the lab longer than most waits.
# shellcheck shell=bash

# pause DIRECTORY SECONDS: makes a named pipe in the directory, and waits for what never comes through it. Others may
# make it at the same time.
pause() {
  [[ -p $1/silent ]] || mkfifo "$1/silent" 2>/dev/null || [[ -p $1/silent ]]
  read -r -t "$2" <>"$1/silent" || true
}
