# Sourced by run, compare and test/netpipe/run: programs of Debian that load Debian's MPICH, and what shows that their results are right.
# Uses work_dir, and start_job and wait_job of test/checks.bash.
# shellcheck shell=bash

applications_dir=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
system_libraries=/usr/lib/$(gcc -print-multiarch)
scalapack=$system_libraries/scalapack/mpich-tests
coarrays=$(echo "$system_libraries"/open-coarrays/mpich/bin/OpenCoarrays-*-tests)
# shellcheck disable=SC2034  # quickstart installs them
application_packages=(scalapack-mpi-test nwchem-mpich bagel tachyon-bin-nox libcoarrays-mpich-dev)

launcher=
# use_mpi PREFIX: programs load this MPICH, under the names that Debian's library has. An empty one: Debian's own.
use_mpi() {
  local language links=$work_dir/links
  launcher=mpiexec.mpich
  unset LD_LIBRARY_PATH
  [[ -n $1 ]] || return 0
  launcher=$1/bin/mpiexec
  rm -rf "$links"
  mkdir "$links"
  for language in '' fort cxx; do
    [[ ! -e $1/lib/libmpi$language.so.12 ]] || ln -s "$1/lib/libmpi$language.so.12" "$links/libmpich$language.so.12"
  done
  export LD_LIBRARY_PATH=$links:$1/lib
}

took=
# launch RANKS SECONDS COMMAND...: in a folder of its own, with the programs' input. Sets job_status, and took, in
# milliseconds; the output is in work_dir/out.
launch() {
  local ranks=$1 seconds=$2 begin
  shift 2
  rm -rf "$work_dir/in"
  mkdir "$work_dir/in"
  find "$applications_dir" /usr/share/scalapack -maxdepth 2 \( -name '*.dat' -o -name '*.nw' -o -name '*.json' \) \
    -exec ln -s -t "$work_dir/in" {} + 2>/dev/null || true
  begin=${EPOCHREALTIME/./}
  start_job "$work_dir/out" env --chdir="$work_dir/in" "$launcher" -n "$ranks" "$@"
  wait_job "$seconds"
  took=$(((${EPOCHREALTIME/./} - begin) / 1000))
}

# ---- what a program's output says ----

says() { grep -aqE -- "$1" "$work_dir/out"; }

# The last number that the output has behind a text.
value_behind() { sed -nE "s/^.*$1 *(-?[0-9]+\.[0-9]+).*/\1/p" "$work_dir/out" | tail -n 1; }

# close_to A B: energies in hartree that differ in the order of additions alone.
close_to() { awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; exit !(a != "" && b != "" && d < 1e-6 && d > -1e-6) }'; }

# ScaLAPACK, PBLAS and BLACS judge themselves. The tests of BLACS end by MPI_Abort, which they test last.
scalapack_is_right() {
  case $1 in
    x[CF]btest) says ' 0 FAILED' && says 'final auxiliary test is for BLACS_ABORT' && ! says ' [1-9][0-9]* FAILED' ;;
    x?hseqr | x?svd) ((job_status == 0)) && says 'PASSED|Passed' && ! says 'FAILED|Failed' ;;
    *tst) ((job_status == 0)) && says 'End of Tests' && ! says 'check: .*FAILED|^ *\| +P[A-Z0-9]+ +[0-9]+ +[0-9]+ +[1-9]' ;;
    *) ((job_status == 0)) && says '[1-9][0-9]* tests completed and passed' && says ' 0 tests completed and failed' ;;
  esac
}

coarray_is_right() { says 'Test passed' && ! says 'Test failed'; }
