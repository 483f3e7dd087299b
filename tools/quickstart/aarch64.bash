# Sourced by quickstart: the part aarch64 of the check. Debian's cross compiler compiles the library and its tests for
# aarch64, and qemu-user runs them, which emulates one program.
# This shows errors in types, instructions and atomics. It does not show errors that only a weaker order of memory
# accesses makes: qemu's threads run on this machine's processor, and x86 keeps a stronger order.
# Uses: root, build_dir, check_dir, jobs; log_command and its kin.
# shellcheck shell=bash

aarch64_tools=(g++-aarch64-linux-gnu qemu-user)
# What the tests link with and run with. They are unpacked into the build directory, and never installed.
aarch64_libraries=(libc6 libgcc-s1 libstdc++6 libfmt-dev libfmt9 libgtest-dev libsodium-dev libsodium23)
aarch64_root=$check_dir/aarch64-root

# aarch64_apt FOLDER ARGUMENT...: apt for the other architecture. Its lists and its status are in FOLDER, so this
# machine's stay as they are. It downloads into FOLDER/packages.
aarch64_apt() {
  (cd "$1/packages" && apt-get -o APT::Sandbox::User=root -o Acquire::Retries=3 -o APT::Architecture=arm64 \
    -o APT::Architectures::=arm64 -o Dir::State="$1/state" -o Dir::State::status="$1/status" \
    -o Dir::Cache="$1/cache" "${@:2}")
}

# Unpacks the libraries into $aarch64_root, unless they are there.
get_aarch64_libraries() {
  local work=$check_dir/aarch64-apt package
  if [[ -d $aarch64_root ]] && is_current aarch64 "${aarch64_libraries[*]}"; then return; fi
  clear_stamps aarch64
  rm -rf "$work" "$aarch64_root"
  mkdir -p "$work"/{state/lists/partial,cache/archives/partial,packages} "$aarch64_root"
  : >"$work/status"
  must aarch64-lists 'check the network and /etc/apt/sources.list*' aarch64_apt "$work" update
  must aarch64-download 'does this distribution have arm64?' \
    aarch64_apt "$work" download "${aarch64_libraries[@]}"
  for package in "$work/packages"/*.deb; do
    must aarch64-unpack 'is the disk full?' dpkg-deb --extract "$package" "$aarch64_root"
  done
  rm -rf "$work"
  set_stamp aarch64 "${aarch64_libraries[*]}"
}

# Tests of code without locks, of code that depends on the architecture, and of the engine on top of it.
aarch64_tests=(test/unit_tests test/shm_tests test/nic_tests test/target_tests test/engine_tests test/simulation_tests
  test/introduction_tests test/tcp_tests)

# What qemu 7.2 cannot run: it has no process_vm_readv() and no process_vm_writev(), its programs cannot start each
# other by execv(), tests of fork() fail, and the one of a thousand engines was killed. The last two tests need
# libibverbs and hwloc.
aarch64_left_out=('ClientMemoryTest.*' 'KernelReach.*' 'RefusedCopies.*' 'HostileOtherProcess.*' 'Nicd*' 'Clients/Nicd*'
  'Readable/Nicd*' 'ProcessDriver*' 'ProcessThread.*' 'RunnerRelay.*' '*/Other' 'TargetPortsOfAnotherProcess.*'
  'TargetAddressesTest.*' 'TargetServer.RefusesMemory*' 'TargetServer.AClientWithoutTheMemory*'
  'NodeSettings.WhatNames*' 'WindowsTest.WhatTheProcessorHasNotMapped*' 'SharedWrite.*' 'SlowReader.*'
  'Shm/ProviderWrites.*' 'Shm/ProviderSleepWithWrites.*' 'OneConnection.AWriteWaits*'
  'ShmProviderTest.ASignalDuringAWrite*' 'ShmProviderTest.AWriteToMemory*' 'ShmProviderTest.WhoCopiesSaysSo'
  'ChannelCounters.OfTheRings*'
  'Elsewhere/WhereverTheMemoryIs.*/1' 'Simulation.AThousandEngines*' 'ChannelWarnings.OfTheNode*'
  'ChannelThread.IsNotThere*')

check_aarch64() {
  local directory=$build_dir/aarch64
  install_packages "${aarch64_tools[@]}"
  get_aarch64_libraries
  generate_configure
  export PKG_CONFIG_SYSROOT_DIR=$aarch64_root
  export PKG_CONFIG_LIBDIR=$aarch64_root/usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig
  configure_library "$directory" aarch64 --host=aarch64-linux-gnu --build="$(gcc -dumpmachine)" --disable-shared \
    --enable-joined-sources --without-verbs --without-ucm --without-hwloc --without-isal CXXFLAGS='-O1 -g1'
  must aarch64-build 'a compiler error: fix the source' make -C "$directory" -j"$jobs" libcore.la libportals_calls.la
  export CH3_OFFLOAD_SIM_SEEDS=1..20 GTEST_FILTER
  GTEST_FILTER=-$(IFS=: && echo "${aarch64_left_out[*]}")
  make_check aarch64 "$directory" make -j"$jobs" check-TESTS check_LIBRARIES= check_PROGRAMS="${aarch64_tests[*]}" \
    TESTS="${aarch64_tests[*]}" LOG_COMPILER="qemu-aarch64 -L $aarch64_root" CXXFLAGS='-O1 -g1'
}
