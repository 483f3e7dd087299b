# Sourced by quickstart: Debian packages of the library, its tools and an MPICH with the device (debian/ says how they
# are built). Uses: root, build_dir, library_build_dir, jobs, user_mpich_source.
# shellcheck shell=bash

packages_dir=$build_dir/debian-packages
# Beside build_packages: test/quickstart/debian_packages compares them with debian/control.
packaging_packages=(debhelper dpkg-dev gfortran)

debian_upstream_version() { sed -n '1s/^ch3-offload (\([^)]*\)-[^-)]*).*/\1/p' "$root/debian/changelog"; }

# The tarball of MPICH, in the name that dpkg-source wants: Debian's own, or the user's tree.
put_mpich_tarball() {
  local stem=$1 tarball
  if [[ -n $user_mpich_source ]]; then
    must package-mpich 'is the disk full?' tar -C "$user_mpich_source" --transform 's,^\.,mpich,S' --exclude-vcs \
      -cJf "$stem.orig-mpich.tar.xz" .
    return
  fi
  tarball=$(find_debian_tarball)
  cp "$tarball" "$stem.orig-mpich.tar.${tarball##*.}"
}

# The tree as dpkg-source unpacks it: ours, MPICH below it, and debian.
make_source_package() {
  local version=$1 stem tree
  stem=$packages_dir/ch3-offload_$version
  tree=$packages_dir/ch3-offload-$version
  begin_step 'Debian source package'
  prepare_library
  rm -rf "$packages_dir"
  mkdir -p "$tree"
  must package-tarball 'is a file missing from a Makefile.mk?' make -C "$library_build_dir" dist-xz
  put_mpich_tarball "$stem"
  # The folder debian is Debian's part of a source package, and not in the tarball of ours.
  must package-unpack 'is the disk full?' bash -euc '
    tar -C "$1" --strip-components=1 --no-same-owner -xf "$2"
    mv "$1/debian" "$1.debian"
    tar -C "$(dirname "$1")" -cJf "$3" "$(basename "$1")"
    mv "$1.debian" "$1/debian"
    mkdir "$1/mpich"
    tar -C "$1/mpich" --strip-components=1 --no-same-owner -xf "$4"' \
    unpack "$tree" "$library_build_dir/ch3-offload-$version.tar.xz" "$stem.orig.tar.xz" \
    "$(echo "$stem".orig-mpich.tar.*)"
  must package-source 'the log says what dpkg-source did not like' \
    env --chdir="$packages_dir" dpkg-source -b "ch3-offload-$version"
  end_step
}

# build_debian_packages: leaves them in build/debian-packages.
build_debian_packages() {
  local version
  version=$(debian_upstream_version)
  [[ -n $user_mpich_source ]] || command -v apt-get >/dev/null || stop 'there is no apt-get to fetch MPICH with' \
    'give its source with --mpich-src'
  command -v dpkg-buildpackage >/dev/null || stop 'this is not a Debian system: it has no dpkg-buildpackage'
  if [[ -z $user_mpich_source ]]; then
    begin_step 'MPICH: source'
    download_debian_source
    end_step "$(<"$build_dir/apt/version")"
  fi
  make_source_package "$version"
  begin_step 'Debian packages: build (half an hour of processor time)'
  must package-build 'the last lines say what failed; the tree is in build/debian-packages' \
    env --chdir="$packages_dir/ch3-offload-$version" DEB_BUILD_OPTIONS="parallel=$jobs" \
    dpkg-buildpackage --build=binary --unsigned-changes --no-pre-clean
  end_step
}

show_debian_packages() {
  local -a files
  mapfile -t files < <(find "$packages_dir" -maxdepth 1 -name '*.deb' ! -name '*-dbgsym_*' -printf '%f\n' | LC_ALL=C sort)
  printf '\nThe packages are in build/debian-packages:\n'
  printf '  %s\n' "${files[@]}"
  printf 'Install them:\n  sudo apt-get install ./build/debian-packages/{%s}.deb\n' "$(
    printf '%s\n' "${files[@]%.deb}" | paste -sd,)"
}
