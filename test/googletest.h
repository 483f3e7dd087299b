// What every file of a GoogleTest program reads first, by its flags (test/Makefile.mk), so that it can be compiled
// once.

#include <gtest/gtest.h>
