# Sourced by quickstart: Debian packages that are needed, and how to get them.
# shellcheck shell=bash

build_packages=(autoconf automake ca-certificates g++ gcc gettext libcli11-dev libfmt-dev libhwloc-dev libibverbs-dev libisal-dev liblua5.4-dev libsodium-dev
  libtool libucx-dev m4 make patch perl pkg-config python3 xz-utils)
check_packages=(clang git groff-base libclang-rt-14-dev libgtest-dev libjemalloc2 libmimalloc2.0 libtcmalloc-minimal4 llvm netpipe-mpich2 procps
  util-linux valgrind busybox-static cpio ibverbs-providers ibverbs-utils iproute2 kmod perftest qemu-system-x86 rdma-core socat)
# For the part clusters alone.
cluster_packages=(environment-modules munge nftables openssh-server slurm-client slurmctld slurmd)

is_installed() {
  [[ $(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null) == installed ]]
}

# Commands that stand for the packages where there is no dpkg.
missing_commands() {
  local name
  for name in autoconf automake g++ gcc libtoolize m4 make patch perl pkg-config python3 xz; do
    command -v "$name" >/dev/null || echo "$name"
  done
}

# install_packages PACKAGE...: installs those that are missing, or says which they are.
install_packages() {
  local -a missing=()
  local package
  if ! command -v dpkg-query >/dev/null; then
    mapfile -t missing < <(missing_commands)
    ((${#missing[@]} == 0)) || stop "these commands are missing: ${missing[*]}" \
      'this is not a Debian system: install them with its package manager and run quickstart again'
    note 'no dpkg here: the commands needed are there'
    return
  fi
  for package in "$@"; do
    is_installed "$package" || missing+=("$package")
  done
  if ((${#missing[@]} == 0)); then
    end_step 'all there'
    return
  fi
  note "missing: ${missing[*]}"
  if ((EUID != 0)); then
    stop "packages are missing: ${missing[*]}" \
      'install them with this command, then run quickstart again:' \
      "  sudo apt-get install --no-install-recommends ${missing[*]}"
  fi
  local -a apt=(env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3)
  # A fresh machine has no package lists, and old lists may name files that are gone: then update and try again.
  if ! apt-cache show "${missing[@]}" >/dev/null 2>&1; then
    must packages-update 'check the network and /etc/apt/sources.list*' "${apt[@]}" update
  fi
  if ! log_command packages-install "${apt[@]}" install --yes --no-install-recommends "${missing[@]}"; then
    must packages-update 'check the network and /etc/apt/sources.list*' "${apt[@]}" update
    must packages-install 'see the log; then run the apt-get command in its first line by hand' \
      "${apt[@]}" install --yes --no-install-recommends "${missing[@]}"
  fi
  end_step "installed ${#missing[@]} packages"
}

# Gets what the part clusters needs. Where systemd runs, these packages would start their services, sshd among them. So
# there, and where they cannot be had, says what is missing. The part then skips what it cannot test.
install_cluster_packages() {
  local -a missing=()
  local package
  command -v dpkg-query >/dev/null || return 0
  for package in "${cluster_packages[@]}"; do
    # Lmod is the other program of that kind, and Debian has one of them at a time.
    is_installed "$package" || { [[ $package == environment-modules ]] && is_installed lmod; } || missing+=("$package")
  done
  ((${#missing[@]} > 0)) || return 0
  # shellcheck disable=SC2016  # the other shell expands it
  if ((EUID == 0)) && [[ ! -d /run/systemd/system ]] && log_command packages-clusters env DEBIAN_FRONTEND=noninteractive \
    bash -c 'apt=(apt-get -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3)
      install() { "${apt[@]}" install --yes --no-install-recommends "$@"; }
      install "$@" || { "${apt[@]}" update && install "$@"; }' install "${missing[@]}"; then
    note "installed for the part clusters: ${missing[*]}"
  else
    note "the part clusters lacks: ${missing[*]}. To have all of it, install them (they start services) and check again."
  fi
}

fortran_compiler() {
  echo "${FC:-gfortran}"
}

# Gets a Fortran compiler if MPICH shall have Fortran. Without one, says so and lets MPICH be built without.
install_fortran() {
  ((with_fortran)) && ! command -v "$(fortran_compiler)" >/dev/null || return 0
  if [[ $(fortran_compiler) == gfortran ]] && ((EUID == 0)) && command -v apt-get >/dev/null &&
    log_command packages-fortran env DEBIAN_FRONTEND=noninteractive bash -c \
      'apt=(apt-get -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3)
       install() { "${apt[@]}" install --yes --no-install-recommends gfortran; }
       install || { "${apt[@]}" update && install; }'; then
    note 'installed gfortran'
  else
    note "there is no Fortran compiler ($(fortran_compiler)): MPICH is built without Fortran." \
      'To have it, install one (Debian: gfortran) and run quickstart again.'
  fi
}
