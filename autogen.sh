#!/bin/sh
# Makes configure from configure.ac. Needed once after a checkout, and when configure.ac changes; a
# distribution tarball already has it.
set -eu
cd "$(dirname "$0")"
exec autoreconf --force --install --warnings=all,no-obsolete
