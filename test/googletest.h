// Each source of a GoogleTest program includes this header first, through -include (test/Makefile.mk). So the
// header can be compiled once for all of them.

#include <gtest/gtest.h>

#include "tools/quickstart/standard.h"
