#!/usr/bin/env bash
# ch3-offload-graft on a toy MPICH tree: the same places to touch, and an autogen.sh that is over at once.
# CH3_OFFLOAD_TEST_GRAFT names another ch3-offload-graft to test: make installcheck tests the installed one.
# With CH3_OFFLOAD_TEST_MPICH=DIR (a pristine MPICH 4.0.2 source tree, which is copied) also on a real one.
set -euo pipefail

top=${top_srcdir:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}
glue=$(cd "$top" && pwd)/src/ch3_offload/mpich
graft=${CH3_OFFLOAD_TEST_GRAFT:-$(cd "$top" && pwd)/tools/ch3-offload-graft}
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
export TMPDIR=$work/tmp
mkdir "$TMPDIR"

for tool in autoconf automake autoreconf libtoolize m4 patch perl python3; do
  command -v "$tool" >/dev/null || {
    echo "SKIP: the graft needs $tool"
    exit 77
  }
done

failures=0
check() { # description, command...
  local description=$1
  shift
  if "$@" >"$work/output" 2>&1; then
    echo "ok: $description"
  else
    echo "FAILED: $description"
    sed 's/^/    /' "$work/output"
    failures=$((failures + 1))
  fi
}
not() { ! "$@"; }
says() { # text, command...: the command fails and says the text
  local text=$1
  shift
  if "$@" >"$work/said" 2>&1; then
    echo "it succeeded"
    return 1
  fi
  cat "$work/said"
  grep -qF -- "$text" "$work/said"
}
fingerprint() { (cd "$1" && find . -type f ! -path './modules/*' -print0 | sort -z | xargs -0 sha256sum | sha256sum); }
same() { [[ $(fingerprint "$1") == "$2" ]]; }

make_tree() {
  local tree=$1
  mkdir -p "$tree"/{maint,modules/hwloc,src/include,src/mpi/init,src/pm/hydra/utils/launch}
  mkdir -p "$tree"/src/mpid/ch3/{src,channels/sock}
  echo 'm4_define([MPICH_VERSION_m4],[4.0.2])dnl' >"$tree/maint/version.m4"
  echo 'AC_INIT' >"$tree/configure.ac"
  echo '# configure' >"$tree/configure"
  # shellcheck disable=SC2016
  printf '%s\n' 'include $(top_srcdir)/src/mpid/ch3/channels/nemesis/Makefile.mk' \
    'include $(top_srcdir)/src/mpid/ch3/channels/sock/Makefile.mk' >"$tree/src/mpid/ch3/channels/Makefile.mk"
  printf '%s\n' '#include "mpidimpl.h"' '#include "mpidi_recvq_statistics.h"' 'int stock;' \
    >"$tree/src/mpid/ch3/src/ch3u_recvq.c"
  printf '%s\n' '                fstack[i].f = 0;' '            }' >"$tree/src/mpi/init/init_util.c"
  printf '%s\n' '#include "hydra.h"' '        setsid();' >"$tree/src/pm/hydra/utils/launch/launch.c"
  cat >"$tree/autogen.sh" <<'END'
#!/bin/sh
[ ! -e autogen-fails ] || { echo "no autotools today"; exit 1; }
{ echo '# configure'; cat src/mpid/ch3/channels/*/subconfigure.m4; } >configure
echo "made in $PWD" >src/include/generated.h
echo run >>autogen.runs
END
  chmod +x "$tree/autogen.sh"
  cat >"$tree/maint/extracterrmsgs" <<'END'
for (glob("$ARGV[-1]/*.c")) {
    open(my $file, "<", $_) or die;
    while (my $line = <$file>) {
        print STDERR "Invalid argument $1 for the MPI Error class in MPIR_ERR_SET in $_\n"
            if $line =~ /MPIR_ERR_SET\(mpi_errno, (MY_CLASS\S*),/;
    }
}
END
}

tree=$work/mpich
make_tree "$tree"
before=$(fingerprint "$tree")

check "checking changes nothing" "$graft" --check "$tree"
check "... really" same "$tree" "$before"
check "grafts" "$graft" "$tree"
check "the channel is there, with every file of the glue" \
  diff -r -x '*~' -x '.*' -x README.md -x cvars.txt "$glue" "$tree/src/mpid/ch3/channels/offload"
check "... and the control variables" \
  grep -q '^    - name        : MPIR_CVAR_CH3_OFFLOAD_NIC$' "$tree/src/mpid/ch3/channels/offload/cvars.txt"
check "... and all are in the list" \
  test "$("$graft" --list | wc -l)" = "$(find "$glue" -type f ! -name '*~' ! -name '.*' ! -name README.md | wc -l)"
check "the include line is there" grep -qx 'include .*/channels/offload/Makefile.mk' "$tree/src/mpid/ch3/channels/Makefile.mk"
check "the guard is there" grep -q '^#ifndef MPIDI_CH3_OWNS_RECVQ' "$tree/src/mpid/ch3/src/ch3u_recvq.c"
check "what was done at the end leaves its list" grep -q 'fstack_sp--;$' "$tree/src/mpi/init/init_util.c"
check "a rank starts no session of its own without need" \
  grep -q 'setpgid(0, 0) != 0)$' "$tree/src/pm/hydra/utils/launch/launch.c"
check "configure was regenerated" grep -q BUILD_CH3_OFFLOAD "$tree/configure"
check "generated files name the tree, not the copy" grep -qx "made in $tree" "$tree/src/include/generated.h"
check "nothing is left in TMPDIR" test -z "$(ls -A "$TMPDIR")"

grafted=$(fingerprint "$tree")
check "a second run has nothing to do" "$graft" "$tree"
check "... and does nothing" same "$tree" "$grafted"
echo '/* older */' >>"$tree/src/mpid/ch3/channels/offload/src/ch3_send.c"
check "changed code is copied again" "$graft" "$tree"
check "... and nothing else is done" same "$tree" "$grafted"
check "autogen ran once" test "$(wc -l <"$tree/autogen.runs")" = 1
refused=$work/refused
mkdir -p "$refused"
cp -r "$glue" "$glue"/../ch3_offload_settings.* "$refused"
echo 'MPIR_ERR_SET(mpi_errno, MY_CLASS(flag), "**fail");' >>"$refused/mpich/src/ch3_send.c"
check "an error that MPICH does not take is found before anything changes" says "MY_CLASS(flag)" \
  env CH3_OFFLOAD_GLUE="$refused/mpich" "$graft" "$tree"
check "... and nothing is copied" same "$tree" "$grafted"
echo other >"$tree/.ch3-offload-graft/inputs"
check "a changed build file renews the graft" "$graft" "$tree"
check "... which ends the same" same "$tree" "$grafted"
check "removes" "$graft" --remove "$tree"
check "... every byte of it" same "$tree" "$before"
check "removing twice is no error" "$graft" --remove "$tree"

touch "$tree/autogen-fails"
before=$(fingerprint "$tree")
check "a failing autogen.sh is reported" says "autogen.sh failed" "$graft" "$tree"
check "... and leaves the tree alone" same "$tree" "$before"
rm "$tree/autogen-fails"

for other in 3.4.3 4.20 4.4.0 5.1.0; do
  sed -i "s/4\\.0\\.2/$other/" "$tree/maint/version.m4"
  check "$other is refused" says "is MPICH $other; this graft is made for 4.0 to 4.3 or 5.0" "$graft" "$tree"
  sed -i "s/$other/4.0.2/" "$tree/maint/version.m4"
done
newer=$TMPDIR/newer
make_tree "$newer"
sed -i 's/4\.0\.2/5.0.1/' "$newer/maint/version.m4"
mkdir -p "$newer/src/pm/hydra/lib/utils"
mv "$newer/src/pm/hydra/utils/launch/launch.c" "$newer/src/pm/hydra/lib/utils/launch.c"
before=$(fingerprint "$newer")
check "5.0, which has Hydra's launcher elsewhere" "$graft" "$newer"
check "... in the session of its proxy" grep -q setpgid "$newer/src/pm/hydra/lib/utils/launch.c"
check "... is restored" "$graft" --remove "$newer"
check "... every byte of it" same "$newer" "$before"
sed -i '/sock/d' "$tree/src/mpid/ch3/channels/Makefile.mk"
before=$(fingerprint "$tree")
check "an unexpected Makefile.mk is refused" says "is not as expected" "$graft" "$tree"
check "... and left alone" same "$tree" "$before"
check "something else is refused" says "is not an MPICH source tree" "$graft" "$TMPDIR"
check "no argument is wrong usage" says "Usage:" "$graft"

rm -rf "$tree"
make_tree "$tree"
if [[ $(id -u) != 0 ]]; then
  chmod -R a-w "$tree"
  check "a read-only tree is refused" says "cannot be written" "$graft" "$tree"
  chmod -R u+w "$tree"
fi

if [[ -n ${CH3_OFFLOAD_TEST_MPICH:-} ]]; then
  cp -a "$CH3_OFFLOAD_TEST_MPICH" "$work/real"
  before=$(fingerprint "$work/real")
  check "grafts a real tree" "$graft" "$work/real"
  check "its configure knows the channel" grep -q BUILD_CH3_OFFLOAD "$work/real/configure"
  check "no file names the copy" not grep -rqF "$TMPDIR" "$work/real" --exclude-dir=.ch3-offload-graft
  check "removes from a real tree" "$graft" --remove "$work/real"
  check "... every byte of it" same "$work/real" "$before"
fi

((failures == 0)) || {
  echo "$failures failed"
  exit 1
}
