# The library of ch3:offload and its tools, from the clone that this recipe lies in.

import os

from spack.package import *

try:
    from spack_repo.builtin.build_systems.autotools import AutotoolsPackage

    has_compilers = True  # as dependencies
except ImportError:  # before Spack 1.0 it is in spack.package
    has_compilers = False

# This file is spack/packages/ch3-offload/package.py of the clone.
_clone = os.path.dirname(os.path.realpath(__file__))
for _folder in range(3):
    _clone = os.path.dirname(_clone)


class Ch3Offload(AutotoolsPackage):
    """Message passing on clusters: matching, protocols and transports over shared memory, InfiniBand or
    RoCE, and TCP. MPICH's device ch3:offload (mpich-ch3-offload), Portals 4.3, active messages and modules
    use it."""

    git = "file://" + _clone

    # What is committed in the clone, at its HEAD.
    version("main")

    variant("verbs", default=True, description="InfiniBand and RoCE")
    variant("ucm", default=True, description="the pin-down cache, which UCX tells of memory that goes away")
    variant("lua", default=True, description="modules: programs of the user in the network processor")
    variant("checksums", default=True, description="checksums of messages")
    variant("tools", default=True, description="ch3-offload-info, -trace and -module")

    if has_compilers:
        depends_on("c", type="build")
        depends_on("cxx", type="build")
    depends_on("autoconf@2.69:", type="build")
    depends_on("automake@1.16:", type="build")
    depends_on("libtool", type="build")
    depends_on("m4", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("python@3:", type="build")

    depends_on("libsodium@1.0.18:")
    depends_on("hwloc@2.0:")
    depends_on("rdma-core@25:", when="+verbs")
    depends_on("ucx@1.12:", when="+ucm")
    depends_on("lua@5.4 +pcfile", when="+lua")
    depends_on("isa-l@2.20:", when="+checksums")
    depends_on("fmt@9:", when="+tools")
    depends_on("cli11@2.1:", type="build", when="+tools")

    # C++20.
    conflicts("%gcc@:11")
    conflicts("%clang@:13")

    def autoreconf(self, spec, prefix):
        Executable("./autogen.sh")()

    def configure_args(self):
        return ["--disable-static", "--enable-joined-sources", "--with-sodium", "--with-hwloc"] + [
            "--with-{0}".format(name) if self.spec.satisfies("+" + variant) else "--without-{0}".format(name)
            for name, variant in (("verbs", "verbs"), ("ucm", "ucm"), ("lua", "lua"), ("isal", "checksums"))
        ]
