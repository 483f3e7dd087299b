[#] start of __file__
dnl The ch3:offload channel. Copied here by ch3-offload-graft.

dnl _PREREQ runs before the compilers are set up.
AC_DEFUN([PAC_SUBCFG_PREREQ_]PAC_SUBCFG_AUTO_SUFFIX,[
AM_CONDITIONAL([BUILD_CH3_OFFLOAD],[test "X$device_name" = "Xch3" -a "X$channel_name" = "Xoffload"])
AM_COND_IF([BUILD_CH3_OFFLOAD],[
AC_MSG_NOTICE([RUNNING PREREQ FOR ch3:offload])
MPID_MAX_THREAD_LEVEL=MPI_THREAD_MULTIPLE
MPID_CH3I_CH_HCOLL_BCOL="basesmuma,basesmuma,ptpcoll"
if test -n "${channel_args}" ; then
    AC_MSG_ERROR([ch3:offload takes no channel options, but was given "${channel_args}": use --with-device=ch3:offload])
fi
])dnl end AM_COND_IF(BUILD_CH3_OFFLOAD,...)
])dnl
dnl
dnl _BODY finds the library.
AC_DEFUN([PAC_SUBCFG_BODY_]PAC_SUBCFG_AUTO_SUFFIX,[

AC_ARG_WITH([ch3-offload],
    [AS_HELP_STRING([--with-ch3-offload=PREFIX],
        [where libch3offload is installed, for --with-device=ch3:offload; without it, pkg-config's ch3-offload
         and then the compiler's own search paths are tried])],
    [],[with_ch3_offload=""])

AM_COND_IF([BUILD_CH3_OFFLOAD],[
AC_MSG_NOTICE([RUNNING CONFIGURE FOR ch3:offload])

if test "X$thread_granularity" = "XMPICH_THREAD_GRANULARITY__POBJ" ; then
    AC_MSG_ERROR([ch3:offload does not support --enable-thread-cs=per-object: use --enable-thread-cs=global])
fi

dnl ch3_layout.c walks through dataloops.
if test "X$with_datatype_engine" = "Xyaksa" ; then
    AC_MSG_ERROR([ch3:offload does not support --with-datatype-engine=yaksa: use --with-datatype-engine=dataloop])
fi

dnl Handles of MPI's ABI are not MPICH's.
if test "X$enable_mpi_abi" = "Xyes" ; then
    AC_MSG_ERROR([ch3:offload does not support --enable-mpi-abi: leave it out])
fi

ch3_offload_libdir=""
case "$with_ch3_offload" in
    no)
        AC_MSG_ERROR([--with-device=ch3:offload needs libch3offload, but --without-ch3-offload was given])
        ;;
    ""|yes)
        dnl pkg-config knows, or the compiler finds it by itself.
        if pkg-config --exists ch3-offload 2>/dev/null ; then
            PAC_APPEND_FLAG([`pkg-config --cflags ch3-offload`],[CPPFLAGS])
            ch3_offload_libdir=`pkg-config --variable=libdir ch3-offload`
        fi
        ;;
    *)
        if test ! -f "$with_ch3_offload/include/ch3_offload.h" ; then
            AC_MSG_ERROR([$with_ch3_offload/include/ch3_offload.h not found: --with-ch3-offload=PREFIX needs the prefix that libch3offload was installed to])
        fi
        dnl mpicc uses it from any directory.
        with_ch3_offload=`cd "$with_ch3_offload" && pwd`
        PAC_APPEND_FLAG([-I$with_ch3_offload/include],[CPPFLAGS])
        for dir in "$with_ch3_offload"/lib "$with_ch3_offload"/lib64 "$with_ch3_offload"/lib/*-linux-gnu ; do
            if test -f "$dir/libch3offload.so" -o -f "$dir/libch3offload.a" ; then
                ch3_offload_libdir="$dir"
                break
            fi
        done
        if test -z "$ch3_offload_libdir" ; then
            AC_MSG_ERROR([libch3offload not found in $with_ch3_offload/lib or lib64: --with-ch3-offload=PREFIX needs the prefix that libch3offload was installed to])
        fi
        ;;
esac

dnl These go into WRAPPER_LIBS, not into LDFLAGS and WRAPPER_LDFLAGS. The library's prefix may hold another MPICH:
dnl the compiler wrappers must name MPICH's own directory first, and this one only with a static libmpi.
ch3_offload_search=""
ch3_offload_rpath=""
case "$ch3_offload_libdir" in
    ""|/lib|/lib64|/usr/lib|/usr/lib64|/usr/lib/*-linux-gnu)
        ;;
    *)
        ch3_offload_search="-L$ch3_offload_libdir"
        ch3_offload_rpath="-Wl,-rpath,$ch3_offload_libdir"
        ;;
esac

AC_CHECK_HEADER([ch3_offload.h],[],
    [AC_MSG_ERROR([ch3_offload.h does not compile or is missing: install libch3offload and give --with-ch3-offload=PREFIX])])

dnl The number is the version of the interface that this glue was written against.
AC_MSG_CHECKING([whether libch3offload has the interface that this glue needs (version 20)])
AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[
    #include <ch3_offload.h>
    #if CH3_OFFLOAD_ABI_VERSION != 20
    #error wrong version
    #endif
    ]],[])],
    [AC_MSG_RESULT([yes])],
    [AC_MSG_RESULT([no])
     AC_MSG_ERROR([ch3_offload.h has another CH3_OFFLOAD_ABI_VERSION than this glue: run the ch3-offload-graft that belongs to the installed libch3offload])])

AC_MSG_CHECKING([whether libch3offload links])
PAC_PUSH_FLAG([LIBS])
ch3_offload_libs=""
for ch3_offload_extra in "" "-lstdc++ -lm -lpthread" ; do
    LIBS="$ch3_offload_search -lch3offload $ch3_offload_rpath $ch3_offload_extra $LIBS"
    AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <ch3_offload.h>]],[[
        ch3_offload_config_t config;
        ch3_offload_config_default(&config);
        return (int) ch3_offload_counter_count();
        ]])],
        [ch3_offload_libs="$ch3_offload_search -lch3offload $ch3_offload_rpath $ch3_offload_extra"; break])
done
PAC_POP_FLAG([LIBS])
if test -z "$ch3_offload_libs" ; then
    AC_MSG_RESULT([no])
    AC_MSG_ERROR([cannot link with -lch3offload (see config.log): install libch3offload and give --with-ch3-offload=PREFIX])
fi
AC_MSG_RESULT([yes, with $ch3_offload_libs])
PAC_PREPEND_FLAG([$ch3_offload_libs],[WRAPPER_LIBS])

AC_DEFINE([ENABLE_COMM_OVERRIDES], 1, [define to add per-vc function pointers to override send and recv functions])

AC_CHECK_HEADERS([signal.h sys/random.h])
])dnl end AM_COND_IF(BUILD_CH3_OFFLOAD,...)
])dnl end _BODY

[#] end of __file__
