// Global memory, and what carries an order between CTAs; see ../device/global.cuh.
// Pointers are addresses of the modelled device: nothing here or in a kernel may follow them.
#pragma once
#include "prelude.cuh"

MG_DEVICE const char* at(const void* p, int64_t bytes) { return static_cast<const char*>(p) + bytes; }
MG_DEVICE char* at(void* p, int64_t bytes) { return static_cast<char*>(p) + bytes; }

MG_DEVICE uint32_t ldg16(const void* p, MG_SITE) {
  uint16_t v;
  sim::load_global(&v, p, sizeof v, sim::Path::read_only, line);
  return v;
}
MG_DEVICE U4 ldg128(const void* p, MG_SITE) {
  U4 v;
  sim::load_global(&v, p, sizeof v, sim::Path::read_only, line);
  return v;
}
MG_DEVICE void stg16(void* p, uint32_t v, MG_SITE) {
  const uint16_t low = static_cast<uint16_t>(v);
  sim::store_global(p, &low, sizeof low, line);
}
MG_DEVICE void stg128(void* p, U4 v, MG_SITE) { sim::store_global(p, &v, sizeof v, line); }

MG_DEVICE F4 ldg_partial(const float* p, MG_SITE) {
  F4 v;
  sim::load_global(&v, p, sizeof v, sim::Path::coherent, line);
  return v;
}
MG_DEVICE void stg_partial(float* p, F4 v, MG_SITE) { sim::store_global(p, &v, sizeof v, line); }
MG_DEVICE void red_add_f32(float* p, float v, MG_SITE) { sim::add_global(p, v, line); }
MG_DEVICE U4 ldg128_coherent(const void* p, MG_SITE) {
  U4 v;
  sim::load_global(&v, p, sizeof v, sim::Path::coherent, line);
  return v;
}
MG_DEVICE uint32_t ldg16_coherent(const void* p, MG_SITE) {
  uint16_t v;
  sim::load_global(&v, p, sizeof v, sim::Path::coherent, line);
  return v;
}

MG_DEVICE void fence_gpu() { sim::fence(); }
MG_DEVICE uint32_t atomic_inc_wrap(uint32_t* p, uint32_t last, MG_SITE) { return sim::increment(p, last, line); }
MG_DEVICE uint32_t load_acquire(const uint32_t* p, MG_SITE) { return sim::acquire_value(p, line); }
MG_DEVICE void wait_for_turn(const uint32_t* p, uint32_t turn, MG_SITE) { sim::wait_for_value(p, turn, line); }
MG_DEVICE void pass_turn(uint32_t* p, uint32_t turn, MG_SITE) { sim::release_value(p, turn, line); }
