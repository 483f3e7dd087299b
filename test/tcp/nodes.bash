# Sourced: two nodes, which are two network namespaces with a cable between them. 10.77.0.1 is where the script runs,
# 10.77.0.2 is the other one.
# shellcheck shell=bash

# enter_first_node TITLE ARGUMENT...: begins the script again, with its arguments, in a namespace of its own. Where that
# is not allowed, it says so, and ends.
enter_first_node() {
  [[ -z ${CH3_OFFLOAD_TEST_NODE:-} ]] || return 0
  local title=$1
  shift
  local -a namespace
  if unshare -n true 2>/dev/null; then namespace=(unshare -n)
  elif unshare -rn true 2>/dev/null; then namespace=(unshare -rn)
  else
    echo "skip  $title: this machine allows no network namespaces"
    echo '0 passed, 0 failed, 1 skipped'
    exit 0
  fi
  CH3_OFFLOAD_TEST_NODE=1 exec "${namespace[@]}" "$0" "$@"
}

# Sets other_node, a process of the other one, and elsewhere, the command that runs another one there.
make_other_node() {
  ip link set lo up
  unshare -n sleep infinity &
  other_node=$!
  trap end_other_node EXIT
  # Until it is in its namespace, the cable cannot lead there.
  while [[ $(readlink "/proc/$other_node/ns/net") == "$(readlink /proc/self/ns/net)" ]]; do sleep 0.02; done
  elsewhere=(nsenter -t "$other_node" -n)
  ip link add cable0 type veth peer name cable1 netns "$other_node"
  ip addr add 10.77.0.1/24 dev cable0
  ip link set cable0 up
  "${elsewhere[@]}" ip link set lo up
  "${elsewhere[@]}" ip addr add 10.77.0.2/24 dev cable1
  "${elsewhere[@]}" ip link set cable1 up
}

end_other_node() {
  kill "$other_node" 2>/dev/null || true
  end_checks
}
