# Sourced by quickstart: the library, MPICH with the device in it, and the table that shows that it works.
# Uses: root, prefix, jobs, with_fortran, with_romio and the directories that quickstart sets.
# shellcheck shell=bash

# Sets mpich_options. With static libraries everything would be compiled twice. --no-recursion leaves out MPICH's own
# tests alone, which run-mpich-tests configures elsewhere.
choose_mpich_options() {
  mpich_options=(--with-device=ch3:offload --disable-static --without-ucx --without-libfabric --disable-doc
    --no-recursion --enable-fast=O3,ndebug)
  # With it, what was compiled with a precompiled header is compiled anew when a header of that changes.
  if takes_precompiled; then mpich_options+=("MPICHLIB_CPPFLAGS=${MPICHLIB_CPPFLAGS:-} -fpch-deps"); fi
  ((with_romio)) || mpich_options+=(--disable-romio)
  if ((!with_fortran)) || ! command -v "$(fortran_compiler)" >/dev/null; then
    mpich_options+=(--disable-fortran)
  elif takes_argument_mismatch; then
    mpich_options+=("FFLAGS=${FFLAGS:-} -fallow-argument-mismatch" "FCFLAGS=${FCFLAGS:-} -fallow-argument-mismatch")
  fi
}

# Whether MPICH's header is precompiled (precompiled.mk): by gcc, and without a cache of compilations.
takes_precompiled() {
  local compiler
  compiler=$(command -v "${CC:-gcc}") || return 1   # CC may be two words, as of a cache
  [[ $(realpath "$compiler") != *ccache* && $("$compiler" --version) == *'Free Software Foundation'* ]]
}

# gfortran 10 and later: without this option they do not compile MPICH 4.0.2's mpif.h bindings.
takes_argument_mismatch() {
  local probe=$build_dir/probe.f90
  echo end >"$probe"
  "$(fortran_compiler)" -fallow-argument-mismatch -fsyntax-only "$probe" >/dev/null 2>&1
}

# autoconf prefers a shell that knows line numbers, and so takes bash. In dash, MPICH's configure takes a
# fifth less processor time.
if [[ -z ${CONFIG_SHELL:-} && -x /bin/dash ]]; then export CONFIG_SHELL=/bin/dash; fi
environment_key="CC=${CC:-} CXX=${CXX:-} CFLAGS=${CFLAGS:-} CXXFLAGS=${CXXFLAGS:-} LDFLAGS=${LDFLAGS:-}"
fortran_key="F77=${F77:-} FC=${FC:-} FFLAGS=${FFLAGS:-} FCFLAGS=${FCFLAGS:-}"

# What the library is built from, and what is installed with it: the glue, too.
hash_of_library() {
  local -a files
  mapfile -t files < <(find "$root/src" "$root/tools" "$root/docs" -type f ! -path "$root/tools/quickstart/*" -print)
  hash_of "$prefix $environment_key $1" "$root/configure.ac" "$root/Makefile.am" "$root/ch3-offload.pc.in" \
    "$root"/*.md "$root/bench/ch3_offload_bench.c" "$root"/*/Makefile.mk "${files[@]}"
}

# Needed once after a checkout, and when a list of files changes; a tarball brings its configure along.
generate_configure() {
  local key
  key=$(hash_of autogen "$root/configure.ac" "$root/Makefile.am" "$root"/*/Makefile.mk)
  if [[ -f $root/configure && -f $root/Makefile.in ]] && is_current autogen "$key"; then return; fi
  must autogen 'are autoconf, automake and libtool complete? (the log names what is missing)' "$root/autogen.sh"
  set_stamp autogen "$key"
}

# configure_library DIRECTORY LOG_NAME OPTION...: configures there unless it has been, in the same way.
configure_library() {
  local directory=$1 name=$2 key
  shift 2
  key=$(hash_of "$environment_key $*" "$root/configure")
  if [[ -f $directory/Makefile ]] && is_current "$name-configure" "$key"; then
    # A later make may have flags for the tests on its command line. If it ran configure again, these would
    # become the library's. So let it run now.
    must "$name-configure" 'delete its build directory and try again' make -C "$directory" Makefile
    return
  fi
  clear_stamps "$name-configure"
  mkdir -p "$directory"
  must "$name-configure" 'the last lines say what configure did not find' \
    env --chdir="$directory" "$root/configure" "$@"
  set_stamp "$name-configure" "$key"
}

# -g1: tables of lines are enough for a backtrace, and a sixth of the time to compile goes into the rest.
# Joined, the sources compile in less than half of the time. The parts dist and own-tree compile each for itself.
prepare_library() {
  generate_configure
  configure_library "$library_build_dir" library --prefix="$prefix" --libdir="$prefix/lib" --disable-static \
    --enable-joined-sources CXXFLAGS="${CXXFLAGS:--O2 -g1}"
}

build_library() {
  local key
  begin_step "libch3offload: build and install to $prefix"
  key=$(hash_of_library build)
  if is_current library "$key" && [[ -e $prefix/include/ch3_offload.h && -e $prefix/lib/libch3offload.so ]]; then
    end_step 'unchanged'
    return
  fi
  clear_stamps library
  prepare_library
  must library-build 'a compiler error: fix the source; or delete build/library and try again' \
    make -C "$library_build_dir" -j"$jobs"
  # -C keeps the time of a header that is the same, so that MPICH's objects need not be compiled again.
  must library-install "is $prefix writable, and the disk not full?" \
    make -C "$library_build_dir" install INSTALL='install -C'
  set_stamp library "$key"
  end_step
}

get_mpich_source() {
  local key
  begin_step 'MPICH: source'
  key=$(hash_of "debian $wanted_mpich or ${user_mpich_source:-} $(state_of_user_tree)")
  if is_current mpich-source "$key" && [[ -f $mpich_source_dir/maint/version.m4 ]]; then
    mpich_version=$(version_of_tree "$mpich_source_dir")
    end_step "$mpich_version, unchanged"
    return
  fi
  if [[ -z $user_mpich_source ]]; then
    command -v apt-get >/dev/null || stop 'there is no apt-get to fetch MPICH with' \
      'give its source with --mpich-src'
    download_debian_source
  fi
  clear_stamps mpich-source mpich-graft mpich-configure mpich-install
  rm -rf "$mpich_source_dir" "$mpich_build_dir"
  if [[ -n $user_mpich_source ]]; then copy_user_tree; else unpack_debian_source; fi
  mpich_version=$(version_of_tree "$mpich_source_dir")
  set_stamp mpich-source "$key"
  end_step "$mpich_version"
}

# Uses an installed graft, as a user's own tree does. The graft copies only what changed, and runs autogen only
# when something that autogen reads changed.
graft_glue() {
  local key
  begin_step 'MPICH: graft the device'
  key=$(hash_of graft "$root/tools/ch3-offload-graft" "$glue_dir" "$glue_dir"/../ch3_offload_settings.*)
  if is_current mpich-graft "$key"; then
    end_step 'unchanged'
    return
  fi
  clear_stamps mpich-graft
  must mpich-graft 'the log says what was not as expected; delete build/mpich-source to start from a fresh tree' \
    "${graft_program:-$prefix/bin/ch3-offload-graft}" "$mpich_source_dir"
  set_stamp mpich-graft "$key"
  end_step
}

configure_mpich() {
  local key
  begin_step 'MPICH: configure'
  choose_mpich_options
  key=$(hash_of "$prefix $environment_key $fortran_key ${mpich_options[*]}" "$mpich_source_dir/configure" \
    "$prefix/include/ch3_offload.h")
  if is_current mpich-configure "$key" && [[ -f $mpich_build_dir/Makefile ]]; then
    end_step 'unchanged'
    return
  fi
  clear_stamps mpich-configure mpich-install
  rm -rf "$mpich_build_dir"
  mkdir -p "$mpich_build_dir"
  must mpich-configure "the last lines say what configure did not like; details are in $mpich_build_dir/config.log" \
    env --chdir="$mpich_build_dir" "$mpich_source_dir/configure" --prefix="$prefix" \
    --with-ch3-offload="$prefix" "${mpich_options[@]}"
  set_stamp mpich-configure "$key"
  end_step
}

hash_of_mpich() {
  hash_of "$prefix $(<"$stamp_dir/mpich-configure") $(readlink "$prefix/lib/libch3offload.so")" "$glue_dir" \
    "$prefix/include"/ch3_offload{.h,_settings.def}
}

build_mpich() {
  local key header=
  begin_step "MPICH: build and install to $prefix"
  key=$(hash_of_mpich)
  if is_current mpich-install "$key" && [[ -x $prefix/bin/mpicc ]]; then
    end_step 'unchanged'
    return
  fi
  clear_stamps mpich-install
  rm -f "$mpich_build_dir"/lib/libmpi*.la   # make does not know of libch3offload, whose version libmpi remembers
  if grep -q '^CPPFLAGS = .*-fpch-deps' "$mpich_build_dir/Makefile"; then header=precompiled; fi
  # gcc takes a precompiled header without a look at what that was made of. So it exists during this step alone.
  # shellcheck disable=SC2016  # for the inner shell
  must mpich-build 'a compiler error in the glue (src/ch3_offload/mpich)? else delete build/mpich and try again' \
    bash -c 'trap "rm -f src/include/mpiimpl.h.gch" EXIT
      cd "$1" && { [[ -z $4 ]] || make -f "$2" "$4"; } && make -j"$3"' \
    mpich-build "$mpich_build_dir" "$root/tools/quickstart/precompiled.mk" "$jobs" "$header"
  must mpich-install "is $prefix writable, and the disk not full?" make -C "$mpich_build_dir" install
  remove_absent
  set_stamp mpich-install "$key"
  end_step
}

# The device of the MPICH in the prefix, as its own mpichversion names it.
installed_device() {
  "$prefix/bin/mpichversion" 2>/dev/null | sed -n 's/^MPICH Device:[[:space:]]*//p'
}

# Removes what an earlier installation with other options has left, and pages of what is not there: MPICH installs all
# of its pages.
remove_absent() {
  local page name symbols
  if [[ ! -e $mpich_build_dir/lib/libmpifort.la ]]; then
    rm -f "$prefix"/bin/mpi{fort,f77,f90} "$prefix"/share/man/man1/mpifort.1 "$prefix"/lib/libmpifort.* \
      "$prefix"/include/{mpif.h,mpiof.h} "$prefix"/include/{mpi,pmpi}{,_*}.mod
  fi
  symbols=$(nm -D --defined-only "$prefix/lib/libmpi.so")
  for page in "$prefix"/share/man/man3/MPI_{File_*,Register_datarep*}.3; do
    name=$(basename "$page" .3)
    grep -q " $name\$" <<<"$symbols" || rm -f "$page"
  done
  [[ -e $mpich_build_dir/src/mpi/romio/Makefile ]] || rm -f "$prefix"/include/{mpio.h,mpiof.h}
}

build_everything() {
  build_library
  get_mpich_source
  graft_glue
  configure_mpich
  build_mpich
  [[ $(installed_device) == ch3:offload ]] || stop \
    "the MPICH in $prefix has the device '$(installed_device)', not ch3:offload" \
    'delete the prefix and build/stamps, and run quickstart again'
}

show_ping_pong() {
  must ping-pong "run it by hand: $prefix/bin/ch3-offload-perf PingPong -- -bind-to core" \
    "$prefix/bin/ch3-offload-perf" --prefix "$prefix" --build-dir "$build_dir/bench" --timeout 120 PingPong \
    -- -bind-to core
  sed 1d "$log_dir/ping-pong.log"
}
