# Spack's MPICH with the device ch3:offload: its sources, its options, and what ch3-offload-graft adds.

from spack.package import *

try:
    from spack_repo.builtin.packages.mpich.package import Mpich
except ImportError:  # before Spack 1.0
    from spack.pkg.builtin.mpich import Mpich


class MpichCh3Offload(Mpich):
    """MPICH over ch3:offload."""

    # The same as ch3-offload-graft's wanted_versions.
    conflicts("@:3", msg="ch3:offload is for MPICH 4.0 to 4.3 or 5.0")
    conflicts("@4.4:4", msg="ch3:offload is for MPICH 4.0 to 4.3 or 5.0")
    conflicts("@5.1:", msg="ch3:offload is for MPICH 4.0 to 4.3 or 5.0")

    variant("device", default="ch3offload", values=("ch3offload",), description="this device alone")
    variant("netmod", default="none", values=("none",), description="it has transports of its own")

    # Spack's recipe has these of its own devices.
    for option in ("+cuda", "+rocm", "pmi=pmix", "datatype-engine=yaksa"):
        conflicts(option, msg="ch3:offload does not have it")

    # What is installed elsewhere is found as mpich.
    executables = []

    depends_on("ch3-offload")
    # The graft makes MPICH's configure anew.
    depends_on("autoconf@2.69:", type="build")
    depends_on("automake@1.15:", type="build")
    depends_on("libtool@2.4.4:", type="build")
    depends_on("m4", type="build")
    depends_on("perl", type="build")
    depends_on("python@3:", type="build")

    @run_before("autoreconf")
    def graft(self):
        graft = Executable(join_path(self.spec["ch3-offload"].prefix.bin, "ch3-offload-graft"))
        graft(self.stage.source_path)

    def configure_args(self):
        args = [arg for arg in super().configure_args() if not arg.startswith("--with-device=")]
        return args + [
            "--with-device=ch3:offload",
            "--with-ch3-offload={0}".format(self.spec["ch3-offload"].prefix),
        ]
