// Global memory: plain accesses, and the few that carry an order between CTAs.
#pragma once
#include "prelude.cuh"

MG_DEVICE const char* at(const void* p, int64_t bytes) { return static_cast<const char*>(p) + bytes; }
MG_DEVICE char* at(void* p, int64_t bytes) { return static_cast<char*>(p) + bytes; }

MG_DEVICE uint32_t ldg16(const void* p) {   // zero-extended
  uint16_t v; asm volatile("ld.global.nc.u16 %0, [%1];" : "=h"(v) : "l"(p)); return v;
}
MG_DEVICE U4 ldg128(const void* p) {
  U4 v;
  asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return v;
}
MG_DEVICE void stg16(void* p, uint32_t v) {
  asm volatile("st.global.u16 [%0], %1;" :: "l"(p), "h"(static_cast<uint16_t>(v)) : "memory");
}
MG_DEVICE void stg128(void* p, U4 v) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" :: "l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}

// Partial results that another CTA wrote or will read: through L2, never through L1.
MG_DEVICE F4 ldg_partial(const float* p) {
  F4 v;
  asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(p) : "memory");
  return v;
}
MG_DEVICE void stg_partial(float* p, F4 v) {
  asm volatile("st.global.cg.v4.f32 [%0], {%1, %2, %3, %4};" :: "l"(p), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w) : "memory");
}
MG_DEVICE void red_add_f32(float* p, float v) { asm volatile("red.global.gpu.add.f32 [%0], %1;" :: "l"(p), "f"(v) : "memory"); }
MG_DEVICE U4 ldg128_coherent(const void* p) {
  U4 v;
  asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p) : "memory");
  return v;
}
MG_DEVICE uint32_t ldg16_coherent(const void* p) {
  uint16_t v; asm volatile("ld.global.cg.u16 %0, [%1];" : "=h"(v) : "l"(p) : "memory"); return v;
}

// Orders this thread's earlier accesses before its later ones, for every thread of the device.
MG_DEVICE void fence_gpu() { __threadfence(); }
// Adds one; wraps to 0 after `last`. Returns the value before. Relaxed: pair it with fence_gpu.
MG_DEVICE uint32_t atomic_inc_wrap(uint32_t* p, uint32_t last) { return atomicInc(p, last); }
// The value of a counter; later accesses of this thread see what came before the increments it counts.
MG_DEVICE uint32_t load_acquire(const uint32_t* p) {
  uint32_t v; asm volatile("ld.global.acquire.gpu.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory"); return v;
}
// Spins until *p equals `turn`; later accesses of this thread come after. Needs the CTA that writes it to be running.
MG_DEVICE void wait_for_turn(const uint32_t* p, uint32_t turn) {
  while (load_acquire(p) != turn) {}
}
MG_DEVICE void pass_turn(uint32_t* p, uint32_t turn) {
  asm volatile("st.global.release.gpu.u32 [%0], %1;" :: "l"(p), "r"(turn) : "memory");
}
