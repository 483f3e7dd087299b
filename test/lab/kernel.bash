# Sourced by rdma-lab: a kernel for the guests from Debian's package linux-image-amd64. It is unpacked into the cache,
# never installed; of its files only the kernel and the modules that the guests load are kept.
# Uses: cache, progress, lab_failure. Sets: kernel_dir, which then holds vmlinuz, version, load-order, *.ko; and
# unpacker, a process group to end, while it unpacks.
# shellcheck shell=bash

# In the order of need: rdma_rxe asks for the checksum "crc32" when a device is made, and then it must be there.
guest_modules=(virtio_pci virtio_net virtio_console 9pnet_virtio 9p overlay crc32_generic crc32c_generic ib_uverbs
  rdma_ucm rdma_rxe dummy macvlan ifb sch_netem sch_ingress act_mirred cls_matchall)

# What a whole cache looks like: every file's size and name, and what was asked for.
kernel_manifest() {
  echo "modules: ${guest_modules[*]}"
  (cd "$1" && find . -type f ! -name manifest -printf '%s %P\n' | LC_ALL=C sort)
}

kernel_is_whole() {
  [[ -f $kernel_dir/manifest ]] && kernel_manifest "$kernel_dir" | cmp -s - "$kernel_dir/manifest"
}

unpacker=
get_kernel() {
  local lock status=0
  kernel_dir=${cache:?}/kernel
  mkdir -p "$cache" 2>/dev/null || lab_failure "cannot write to the cache $cache" \
    'choose another with --cache DIR or RDMA_LAB_CACHE'
  exec {lock}>"$cache/lock"
  flock -w 600 "$lock" || lab_failure "another rdma-lab has held $cache/lock for 10 minutes"
  if ! kernel_is_whole; then
    [[ ! -e $kernel_dir ]] || progress 'the kernel in the cache is not whole, or lacks a module: getting it again'
    set -m   # a process group of its own: clean_up ends all of it
    (unpack_kernel) &
    unpacker=$!
    set +m
    wait "$unpacker" || status=$?
    unpacker=
  fi
  exec {lock}>&-
  ((status == 0)) || exit "$status"
}

unpack_kernel() {
  local unpacked=$cache/unpacked begin=$SECONDS package version module file
  local log=$cache/kernel.log
  rm -rf "$kernel_dir" "$unpacked" "$cache/new"
  mkdir -p "$unpacked" "$cache/new"
  : >"$log"
  if [[ -z $(kernel_package) ]] && ((EUID == 0)); then
    apt-get -o DPkg::Lock::Timeout=300 update >>"$log" 2>&1 || true
  fi
  package=$(kernel_package)
  [[ -n $package ]] || lab_failure 'apt knows no package linux-image-amd64' \
    'this needs Debian; where package lists are missing, as root: apt-get update'
  progress "fetching $package (once; kept in $cache)"
  # As root, apt would download as the user _apt, who may not write here.
  (cd "$unpacked" && apt-get -o APT::Sandbox::User=root -o Acquire::Retries=3 download "$package") >>"$log" 2>&1 ||
    lab_failure "apt-get download $package failed" "$(tail -n 5 "$log")" \
      'old package lists? As root: apt-get update'
  dpkg -x "$unpacked/$package"_*.deb "$unpacked/files" >>"$log" 2>&1 ||
    lab_failure "dpkg -x of $package failed: is the disk full?" "$(tail -n 5 "$log")"
  file=$(echo "$unpacked/files/lib/modules"/*)
  version=${file##*/}
  depmod -b "$unpacked/files" "$version" >>"$log" 2>&1 || lab_failure "depmod of $package failed; see $log"
  cp "$unpacked/files/boot/vmlinuz-$version" "$cache/new/vmlinuz" || lab_failure "$package holds no kernel $version"
  echo "$version" >"$cache/new/version"
  for module in "${guest_modules[@]}"; do
    modprobe -d "$unpacked/files" -S "$version" --show-depends "$module" 2>>"$log" || {
      echo "missing $module"
      break
    }
  done | awk '$1 == "missing" { print; exit } $1 == "insmod" && !seen[$2]++ { print $2 }' >"$cache/new/list"
  ! grep -q '^missing' "$cache/new/list" || lab_failure "$package has no module: $(grep '^missing' "$cache/new/list")"
  while read -r file; do
    cp "$file" "$cache/new/" || lab_failure "cannot copy $file"
    echo "${file##*/}"
  done <"$cache/new/list" >"$cache/new/load-order"
  rm -rf "$cache/new/list" "$unpacked"
  kernel_manifest "$cache/new" >"$cache/manifest"
  mv "$cache/manifest" "$cache/new/manifest"
  mv "$cache/new" "$kernel_dir"   # in one step: an interrupted unpack leaves no kernel
  progress "kernel $version: $((SECONDS - begin)) s"
}

# The package that linux-image-amd64 stands for today, or nothing.
kernel_package() {
  apt-cache depends linux-image-amd64 2>/dev/null | awk '$1 == "Depends:" { print $2; exit }' || true
}
