# Sourced by quickstart: what need not be done again. A stamp holds the hash of all that its step depends on.
# Uses: stamp_dir.
# shellcheck shell=bash

# Prints one hash of a text and of files (names and contents).
# hash_of TEXT PATH...: directories count with all files below, without editors' leftovers.
hash_of() {
  local text=$1
  shift
  {
    printf '%s\n' "$text"
    # Without a path, find would take the current directory.
    (($# == 0)) || find "$@" -type f ! -name '*~' ! -name '.*.swp' ! -name '*.pyc' -print0 2>/dev/null |
      LC_ALL=C sort -z | xargs -0 -r sha256sum
  } | sha256sum | cut -d' ' -f1
}

is_current() {
  [[ -f $stamp_dir/$1 && $(<"$stamp_dir/$1") == "$2" ]]
}

set_stamp() {
  printf '%s\n' "$2" >"$stamp_dir/$1"
}

clear_stamps() {
  local name
  for name in "$@"; do rm -f "$stamp_dir/$name"; done
}
