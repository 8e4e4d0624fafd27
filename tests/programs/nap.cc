// A program that sleeps for a known time and tells when it began and ended.

#include <time.h>

#include <cstdint>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

static int64_t now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static ffi::Error Nap(ffi::Buffer<ffi::U32> in, ffi::ResultBuffer<ffi::U32> out) {
  const int64_t begin = now(), until = begin + in.typed_data()[0] * 1000LL;
  const timespec then = {until / 1000000000LL, until % 1000000000LL};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &then, nullptr)) {
  }
  const int64_t end = now();
  uint32_t* told = out->typed_data();
  told[0] = in.typed_data()[0];
  told[1] = begin >> 32, told[2] = static_cast<uint32_t>(begin);
  told[3] = end >> 32, told[4] = static_cast<uint32_t>(end);
  return ffi::Error::Success();
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(nap, Nap,
                              ffi::Ffi::Bind()
                                  .Arg<ffi::Buffer<ffi::U32>>()
                                  .Ret<ffi::Buffer<ffi::U32>>());
