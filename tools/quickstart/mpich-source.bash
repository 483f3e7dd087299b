# Sourced by quickstart: gets a source tree of the right MPICH into $mpich_source_dir.
# Uses: root, build_dir, mpich_source_dir, user_mpich_source, wanted_mpich. Sets: mpich_version.
# shellcheck shell=bash

supported_mpichs='4.0 to 4.3 and 5.0'
checked_mpich=4.0.2   # the one that `quickstart check` builds, where Debian has it

is_supported_mpich() { [[ $1 =~ ^(4\.[0-3]|5\.0)(\.[0-9]+)*$ ]]; }

# Prints the version of an MPICH source tree, or nothing.
version_of_tree() {
  sed -n 's/^m4_define(\[MPICH_VERSION_m4\],\[\(.*\)\])dnl.*/\1/p' "$1/maint/version.m4" 2>/dev/null || true
}

# What a changed file of the user's tree changes.
state_of_user_tree() {
  [[ -z $user_mpich_source ]] || (cd "$user_mpich_source" && find . -type f -printf '%P %s %T@\n' | LC_ALL=C sort | sha256sum)
}

check_user_tree() {
  local version
  [[ -d $user_mpich_source ]] || stop "--mpich-src: no directory $user_mpich_source"
  version=$(version_of_tree "$user_mpich_source")
  [[ -n $version ]] || stop "--mpich-src: $user_mpich_source is no MPICH source tree (no maint/version.m4)" \
    'give the directory that holds MPICH'\''s configure.ac'
  is_supported_mpich "$version" || stop \
    "--mpich-src: that is MPICH $version, but ch3:offload supports MPICH $supported_mpichs" \
    "give a tree of one of those, or leave --mpich-src out"
  [[ -x $user_mpich_source/configure ]] || stop \
    "--mpich-src: $user_mpich_source has no configure" 'run its autogen.sh, or give an unpacked release'
  [[ ! -e $user_mpich_source/config.status ]] || stop \
    "--mpich-src: $user_mpich_source has been configured in place, so a copy of it cannot be built elsewhere" \
    'run "make distclean" there, or give a freshly unpacked tree'
}

# Writes the machine's own apt sources as source-package entries, in both of apt's formats. Entries of
# other suites than this Debian's are other people's repositories: they have no MPICH.
derive_source_entries() {
  local target=$1 codename
  # shellcheck source=/dev/null
  codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
  [[ -n $codename ]] || stop 'cannot tell this Debian release (/etc/os-release has no VERSION_CODENAME)' \
    "give MPICH's source with --mpich-src"
  mkdir -p "$target"
  rm -f "$target"/*
  find /etc/apt/sources.list.d -name '*.sources' -exec cat {} \; -exec echo \; |
    awk -v codename="$codename" -v RS= -v FS='\n' '
      {
        wanted = 0; text = ""
        for (i = 1; i <= NF; i++) {
          if ($i ~ /^#/) continue
          if (tolower($i) ~ /^enabled:[ \t]*(no|false|0)/) { wanted = 0; break }
          if (tolower($i) ~ /^types:/) { text = text "Types: deb-src\n"; continue }
          if (tolower($i) ~ /^architectures:/) continue
          if (tolower($i) ~ /^suites:/ && $i ~ ("[ \t]" codename)) wanted = 1
          text = text $i "\n"
        }
        if (wanted) print text
      }' >"$target/machine.sources"
  find /etc/apt -maxdepth 2 -name '*.list' -exec cat {} \; |
    awk -v codename="$codename" '
      $1 == "deb" || $1 == "deb-src" {
        suite = 3
        if ($2 ~ /^\[/) { suite = 2; while (suite < NF && $suite !~ /\]$/) suite++; suite += 2 }
        if (index($suite, codename) != 1) next
        $1 = "deb-src"
        gsub(/arch=[^] ]* ?/, "")
        gsub(/\[ *\] /, "")
        if (!seen[$0]++) print
      }' >"$target/machine.list"
  [[ -s $target/machine.sources || -s $target/machine.list ]] || stop \
    "found no apt source of $codename in /etc/apt to fetch MPICH's source package from" \
    "give MPICH's source with --mpich-src"
}

# The version of MPICH in the version of a Debian package: of 4.3.0+really4.2.1-1 it is 4.2.1.
upstream_of() {
  local version=${1#*:}
  version=${version%-*}
  echo "${version##*+really}"
}

# Reads versions of Debian's package, and prints the one to take: of the MPICH that --mpich names; else of the one that
# is checked; else the newest that is supported. Nothing: there is none.
choose_debian_version() {
  local package version
  while read -r package; do
    version=$(upstream_of "$package")
    is_supported_mpich "$version" || continue
    [[ -z $wanted_mpich || $version == "$wanted_mpich" || $version == "$wanted_mpich".* ]] || continue
    printf '%d %s %s\n' "$([[ $version == "$checked_mpich" ]] && echo 1 || echo 0)" "$version" "$package"
  done | sort -k1,1n -k2,2V -k3,3V | tail -n 1 | cut -d' ' -f3
}

# Debian's source package, checked by apt's own signatures, without touching /etc/apt or /var/lib/apt.
download_debian_source() {
  local apt_dir=$build_dir/apt versions debian_version
  mkdir -p "$apt_dir/lists/partial" "$apt_dir/cache/archives/partial" "$apt_dir/download"
  derive_source_entries "$apt_dir/sources"
  private_apt=(-o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$apt_dir/sources"
    -o "Dir::State::Lists=$apt_dir/lists" -o "Dir::Cache=$apt_dir/cache" -o APT::Sandbox::User=
    -o Debug::NoLocking=1 -o Acquire::Retries=3 -o Acquire::Languages=none)
  must mpich-lists "check the network and the apt sources in /etc/apt; or give --mpich-src" \
    apt-get "${private_apt[@]}" update
  versions=$(apt-cache "${private_apt[@]}" showsrc mpich 2>/dev/null | sed -n 's/^Version: //p') || true
  debian_version=$(choose_debian_version <<<"$versions")
  versions=${versions//$'\n'/ }
  [[ -n $debian_version ]] || stop \
    "this Debian has no source package of MPICH ${wanted_mpich:-$supported_mpichs}; it has: ${versions:-none}" \
    "give MPICH's source with --mpich-src"
  must mpich-download 'check the network, then run quickstart again: it continues here' \
    env --chdir="$apt_dir/download" apt-get "${private_apt[@]}" --download-only --tar-only source "mpich=$debian_version"
  echo "$debian_version" >"$apt_dir/version"
}

# Prints the name of the tarball that download_debian_source has left.
find_debian_tarball() {
  local package
  local -a tarballs
  package=$(<"$build_dir/apt/version")
  package=${package#*:}
  mapfile -t tarballs < <(find "$build_dir/apt/download" -name "mpich_${package%-*}.orig.tar.*" ! -name '*.asc')
  ((${#tarballs[@]} > 0)) || stop "apt did not leave MPICH's tarball in $build_dir/apt/download" \
    'delete that directory and run quickstart again; or give --mpich-src'
  echo "${tarballs[0]}"
}

unpack_debian_source() {
  local tarball version
  tarball=$(find_debian_tarball)
  version=$(upstream_of "$(<"$build_dir/apt/version")")
  mkdir -p "$mpich_source_dir"
  must mpich-unpack 'is the disk full?' \
    tar -C "$mpich_source_dir" --strip-components=1 --no-same-owner -xf "$tarball"
  [[ $(version_of_tree "$mpich_source_dir") == "$version" ]] || stop \
    "the tarball $tarball does not hold MPICH $version"
}

copy_user_tree() {
  mkdir -p "$mpich_source_dir"
  must mpich-copy 'is the disk full?' cp -a "$user_mpich_source/." "$mpich_source_dir/"
}
